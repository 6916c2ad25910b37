"""The list of studies: looking for some, titles, tags and notes that are kept with the study, and what was put away."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from _dashboard_site import Site, signed_in
from _dashboard_studies import HOSTILE, TOKEN, make_study

sys.path.insert(0, str(Path(__file__).parents[3]))

pytest.importorskip("fastapi", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

from benchmarks._browser import dashboard

from autoscout.core.actions import Action, ActionKind
from autoscout.core.worker import worker_identity

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def two_studies(folder: Path) -> str:
    """A store with the studies `first` and `second`."""
    store = make_study(folder, 6, name="first")
    store.close()
    make_study(folder, 4, name="second").close()
    return str(folder / "store.db")


def key_of(site: Site, name: str) -> str:
    rows = [*site.document("/api/studies")["studies"], *site.document("/api/studies?state=archived")["studies"]]
    return str(next(row["key"] for row in rows if row["name"] == name))


def describe(site: Site, name: str, **words: Any) -> tuple[int, str]:
    body = json.dumps({"kind": "describe", **words}).encode()
    status, text, _ = site.ask(f"/api/studies/{key_of(site, name)}/actions", body, **BEARER)
    return status, text


def names(site: Site, **query: str) -> list[str]:
    return sorted(row["name"] for row in site.document("/api/studies?" + urlencode(query))["studies"])


def test_a_title_tags_and_a_note_are_kept_with_the_study(tmp_path: Path) -> None:
    target = two_studies(tmp_path)
    with dashboard(target, token=TOKEN) as (url, library):
        site = Site(url, library)
        status, text = describe(site, "first", title="Nightly on two cards", tags=["h100", "nightly"], note=f"Ran hot.\n{HOSTILE}")
        assert status == 201, text
        assert describe(site, "first", tags=["nightly"])[0] == 201, "what is not named stays"
    with dashboard(target) as (url, library):  # another one, without a token
        site = Site(url, library)
        (row,) = (row for row in site.document("/api/studies")["studies"] if row["name"] == "first")
        assert (row["title"], row["tags"], row["archived"]) == ("Nightly on two cards", ["nightly"], False)
        assert row["note"].startswith("Ran hot.")
        page = site.ask(f"/studies/{row['key']}")[1]
        assert "<h1>Nightly on two cards</h1>" in page
        assert "Ran hot." in page
        assert "<img" not in page
        assert "study first" in page, "its own name stays in sight"
        assert names(site, text="two CARDS") == names(site, text="hot") == names(site, tag="nightly") == ["first"]
        assert names(site, text="second") == ["second"]
        assert names(site, tag="h100") == names(site, text="first second") == []
        assert "No study is like that." in site.ask("/?text=nowhere")[1]
        assert "1 of 2" in site.ask("/?tag=nightly")[1]
        body = json.dumps({"kind": "describe", "title": "x"}).encode()
        assert site.ask(f"/api/studies/{row['key']}/actions", body, **BEARER)[0] == 401, "read-only without a token"
        assert site.ask("/archive", urlencode({"study": row["key"]}).encode())[0] == 401


def test_studies_are_put_away_and_brought_back_from_the_list(tmp_path: Path) -> None:
    target = two_studies(tmp_path)
    with dashboard(target, token=TOKEN) as (url, library):
        site = Site(url, library)
        cookie = signed_in(site)
        page = site.ask("/", Cookie=cookie)[1]
        assert 'formaction="/archive"' in page
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        key = key_of(site, "second")
        form = urlencode([("study", key), ("csrf", csrf)]).encode()
        assert site.ask("/archive", urlencode({"study": key}).encode(), Cookie=cookie)[0] == 403, "no secret of the session"
        assert site.ask("/archive", form, Cookie=cookie)[0] == 303
        assert (names(site), names(site, state="archived")) == (["first"], ["second"])
    with dashboard(target, token=TOKEN) as (url, library):
        site = Site(url, library)
        assert names(site) == ["first"], "kept with the study"
        cookie = signed_in(site)
        page = site.ask("/?state=archived", Cookie=cookie)[1]
        assert 'formaction="/unarchive"' in page
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        assert site.ask("/unarchive", urlencode([("study", key), ("csrf", csrf)]).encode(), Cookie=cookie)[0] == 303
        assert names(site) == ["first", "second"]


def test_the_form_of_a_study_renames_it(tmp_path: Path) -> None:
    with dashboard(two_studies(tmp_path), token=TOKEN) as (url, library):
        site = Site(url, library)
        cookie, key = signed_in(site), key_of(site, "first")
        page = site.ask(f"/studies/{key}", Cookie=cookie)[1]
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        fields = {"kind": "describe", "csrf": csrf, "title": "Short", "tags": "a, b,, a", "note": "one\r\ntwo"}
        assert site.ask(f"/studies/{key}/actions", urlencode(fields).encode(), Cookie=cookie)[0] == 303
        study = site.document(f"/api/studies/{key}")
        assert (study["title"], study["tags"], study["note"]) == ("Short", ["a", "b"], "one\ntwo")
        fields |= {"title": "", "tags": "", "note": ""}
        assert site.ask(f"/studies/{key}/actions", urlencode(fields).encode(), Cookie=cookie)[0] == 303
        study = site.document(f"/api/studies/{key}")
        assert (study["title"], study["tags"], study["note"]) == ("first", [], "")


def test_a_description_that_is_none_is_refused(tmp_path: Path) -> None:
    with dashboard(two_studies(tmp_path), token=TOKEN) as (url, library):
        site = Site(url, library)
        wrong: list[dict[str, Any]] = [
            {},
            {"title": 3},
            {"title": "x" * 201},
            {"tags": ["x" * 41]},
            {"note": "x" * 4_001},
            {"archived": "maybe"},
        ]
        for words in wrong:
            status, text = describe(site, "first", **words)
            assert status == 400, words
            assert all(name in text for name in words), text
        key = key_of(site, "first")
        assert site.ask(f"/api/studies/{key}/actions", b'{"kind": "run", "worker": "me"}', **BEARER)[0] == 400, "only a run notes itself"
        assert site.ask("/?state=sleeping")[0] == 400


def test_a_list_tells_how_each_study_stands(tmp_path: Path) -> None:
    gone = worker_identity().split(":")
    gone[1:3] = ["999999999", "1"]  # no process has this number
    stands: dict[str, tuple[str, str | None]] = {
        "finished": (worker_identity(), "finished: trial budget used"),
        "interrupted": (worker_identity(), "interrupted: interrupted"),
        "failed": (worker_identity(), "failed: too many failures in a row"),
        "running": (worker_identity(), None),
        "dead": (":".join(gone), None),
    }
    for name, (worker, answer) in stands.items():
        store = make_study(tmp_path, 4, name=name)
        run = store.act(name, Action(kind=ActionKind.RUN, worker=worker))
        if answer:
            store.answer(name, run.number, answer)
        store.close()
    make_study(tmp_path, 4, name="idle").close()
    make_study(tmp_path, 0, name="waiting").close()
    with dashboard(str(tmp_path / "store.db")) as (url, library):
        site = Site(url, library)
        rows = {row["name"]: row for row in site.document("/api/studies")["studies"]}
        assert {name: row["state"] for name, row in rows.items()} == {name: name for name in (*stands, "idle", "waiting")}
        assert "verdict" not in rows["waiting"], "nothing is claimed before the first trial"
        assert site.document(f"/api/studies/{rows['waiting']['key']}")["result"] is None
        assert site.ask("/?state=waiting")[1].count("nothing measured yet") == 1
        for name, row in rows.items():
            assert names(site, state=name) == [name]
            assert site.document(f"/api/studies/{row['key']}")["state"] == name
            assert f">{name}</span>" in site.ask(f"/studies/{row['key']}")[1]
            assert f">{name}</span>" in site.ask(f"/?state={name}")[1]
