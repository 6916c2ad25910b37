"""What a store says about its clusters, to readers who change nothing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import inspect

from autosched.control.ledger import Entry, Ledger
from autosched.control.overview import Overview, clusters, overview, read_on
from autosched.control.report import write_report
from autoscout.core.config import Config
from autoscout.core.errors import StoreError
from autoscout.store.sql.database import Database

OLD, NEW = Config(weight=1, small=False), Config(weight=5, small=False)


def filled(path: Path | str, name: str, looks: int, *, simulated: bool = False) -> None:
    ledger = Ledger(path, name)
    for number in range(looks):
        settings = (OLD if number < looks // 2 else NEW).to_json()
        told = {"load": number / looks, "waiting": number, "running": 3, "settings": settings}
        ledger.sample(10.0 * number, told | ({"simulated": True} if simulated else {}))
    ledger.add(Entry(at_s=5.0, state="same", kind="hourly", before=OLD, after=OLD, predicted=1.0), "decided", "")
    ledger.add(Entry(at_s=15.0, state="kept", kind="hourly", before=OLD, after=NEW, predicted=1.2, measured=1.1), "kept", "")
    ledger.close()


def test_clusters_of_a_store(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    Database(store, True).close()
    assert clusters(store) == []
    database = Database(store, False)
    before = database.read(lambda connection: inspect(connection).get_table_names())
    database.close()
    assert not any("decisions" in name for name in before), "to ask creates nothing"
    filled(store, "lab", 4)
    filled(store, "attic", 4, simulated=True)
    assert clusters(store) == ["attic", "lab"]
    assert [overview(store, name).simulated for name in clusters(store)] == [True, False]


def test_a_cluster_over_time(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    filled(store, "lab", 20)
    seen = overview(store, "lab")
    assert list(seen.at_s) == [10.0 * number for number in range(20)]
    assert seen.waiting[-1] == 19
    assert list(seen.changed_knobs) == ["weight"]
    assert seen.knobs["weight"] == [1] * 10 + [5] * 10
    assert [(entry.predicted, entry.measured) for entry in seen.predictions] == [(1.2, 1.1)]
    assert [line[3] for line in seen.log] == ["decided", "kept"]
    later = overview(store, "lab", from_s=100.0, to_s=150.0)
    assert (list(later.at_s), len(later.entries)) == ([100.0, 110.0, 120.0, 130.0, 140.0], 0)
    data = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert (data["decisions"][0]["measured"], data["knobs"]["small"][0]) == (None, False)


DEEP = '{"a": [' * 150 + "1" + "]}" * 150  # the standard library reads it; whoever shows it must not
BAD = ["{", "[]", "[" * 200_000, '{"load": "x"}', '{"settings": 3}', '{"waiting": NaN}', b"\xff", ""]
BAD += ['{"running": null}', '{"waiting": true}', '{"waiting": "7"}', f'{{"load": 1{"0" * 400}}}', f'{{"settings": {{"weight": {DEEP}}}}}']


@pytest.mark.parametrize("content", BAD, ids=lambda content: str(content)[:12])
def test_a_damaged_sample_is_named_and_left_out(tmp_path: Path, content: object, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(tmp_path / "store.db", "lab")
    for at_s in range(5):
        ledger.sample(float(at_s), {"load": 0.5, "waiting": 1, "running": 2, "settings": {"weight": at_s}})
    ledger.add(Entry(at_s=2.0, state="kept", kind="hourly", before=OLD, after=NEW), "intent", "words")
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE autoscout_cluster_samples SET data = ? WHERE at_s IN (2, 4)", (content,))
    assert [at_s for at_s, _ in ledger.samples()] == [0.0, 1.0, 3.0]
    assert ledger.last_sample() is not None
    assert (ledger.last_sample() or (0.0,))[0] == 3.0
    write_report(ledger, tmp_path / "report", 0.0, 10.0, simulated=False)
    ledger.close()
    assert caplog.text.count("cannot be read and is left out") == 2
    seen = overview(tmp_path / "store.db", "lab")
    assert list(seen.at_s) == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("damage", ["'{'", f"json_set(data, '$.plan', json('{DEEP}'))"], ids=["cut", "deep"])
def test_a_damaged_decision_is_left_out_by_those_who_look_on(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(tmp_path / "store.db", "lab")
    for at_s in range(3):
        ledger.add(Entry(at_s=float(at_s), state="applied", kind="hourly", before=OLD, after=NEW), "intent", "words")
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(f"UPDATE autoscout_decisions SET data = {damage} WHERE at_s = 1")
    json.dumps(overview(tmp_path / "store.db", "lab").to_json(), allow_nan=False)
    assert [entry.at_s for entry in ledger.history()] == [0.0, 2.0]
    assert "decision 2 cannot be read" in caplog.text
    with pytest.raises(StoreError, match="decision 2 cannot be read"):
        ledger.in_state("applied")  # a controller must know all that it has done
    ledger.close()


def test_readers_get_no_secrets_and_no_whole_files(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "store.db", "lab")
    diff = "+PriorityWeightAge=5\n+# DB_PASSWORD=hunter2\n"
    entry = Entry(at_s=1.0, state="kept", kind="hourly", before=OLD, after=NEW, diff=diff, plan={"old": "AuthAltParameters=hunter2"})
    ledger.add(entry, "intent", diff)
    ledger.close()
    seen = overview(tmp_path / "store.db", "lab")
    assert seen.entries[0].plan, "the controller needs it"
    assert "PriorityWeightAge=5" in json.dumps(seen.to_json())
    assert "hunter2" not in json.dumps(seen.to_json())


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_many_looks_are_thinned_evenly(store: str) -> None:
    filled(store, "lab", 500)
    assert clusters(store) == ["lab"]
    seen = overview(store, "lab", most_points=50)
    assert 45 <= len(seen.at_s) <= 51
    assert seen.at_s[-1] == 4_990.0, "the newest look is always shown"
    gaps = [after - before for before, after in zip(seen.at_s, seen.at_s[1:], strict=False)]
    assert max(gaps) <= 120.0


def shown(seen: Overview) -> tuple[object, ...]:
    return seen.to_json(), [entry.plan for entry in seen.entries]


def test_reading_on_gives_what_reading_all_gives(store: str) -> None:
    filled(store, "lab", 20)
    before = overview(store, "lab")
    assert read_on(before, store) is before, "nothing was added"
    filled(store, "attic", 3)
    assert read_on(before, store) is before, "of this cluster"
    ledger = Ledger(store, "lab")
    first = ledger.history()[0]
    ledger.move(first, "undone", 300.0, "undone", "worse", why="worse")
    ledger.add(Entry(at_s=310.0, state="proposed", kind="watch", before=NEW, after=OLD, predicted=1.3), "proposed", "")
    ledger.note(320.0, "no answer", "slurmctld is down")
    ledger.sample(330.0, {"load": 2.0, "waiting": 7, "running": 1, "settings": {"weight": 5, "new": 3}, "simulated": True})
    now = read_on(before, store)
    assert shown(now) == shown(overview(store, "lab"))
    assert (now.entries[0].state, len(now.entries), now.knobs["new"][-2:], now.simulated) == ("undone", 3, [None, 3], True)
    ledger.note(200.0, "clock", "the clock went back")
    ledger.sample(205.0, {"load": 1.0, "waiting": 1, "running": 1, "settings": {"weight": 5}})
    ledger.close()
    assert shown(read_on(now, store)) == shown(overview(store, "lab")), "looks before the newest one are not missed"


def test_reading_on_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store.db"
    filled(store, "lab", 200)
    ledger = Ledger(store, "lab")
    for number in range(200):
        ledger.note(float(number), "answers", "")
    before = overview(store, "lab")
    ledger.sample(9e9, {"load": 1.0, "waiting": 0, "running": 0, "settings": {}})
    ledger.add(Entry(at_s=9e9, state="same", kind="hourly", before=OLD, after=OLD), "decided", "")
    ledger.close()
    rows: list[int] = []
    for name in ("samples", "entries", "history", "log"):
        read = getattr(Ledger, name)
        monkeypatch.setattr(Ledger, name, lambda *given, read=read, **more: (found := read(*given, **more), rows.append(len(found)))[0])
    assert len(read_on(before, store).at_s) == 201
    assert sum(rows) < 60, "of more than 400"


def test_many_new_looks_are_thinned_again(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    filled(store, "lab", 60)
    seen = overview(store, "lab", most_points=20)
    ledger = Ledger(store, "lab")
    for number in range(60, 200):
        ledger.sample(10.0 * number, {"load": 1.0, "waiting": 0, "running": 0, "settings": {}})
        seen = read_on(seen, store, most_points=20)
        assert len(seen.at_s) <= 42
        assert seen.at_s[-1] == 10.0 * number
    ledger.close()


def test_a_store_that_was_begun_anew_is_read_anew(tmp_path: Path) -> None:
    filled(tmp_path / "store.db", "lab", 30)
    before = overview(tmp_path / "store.db", "lab")
    for path in tmp_path.glob("store.db*"):
        path.unlink()
    ledger = Ledger(tmp_path / "store.db", "lab")
    ledger.note(1.0, "started", "")
    ledger.close()
    filled(tmp_path / "store.db", "lab", 4)
    assert shown(read_on(before, tmp_path / "store.db")) == shown(overview(tmp_path / "store.db", "lab"))


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        clusters(tmp_path / "nothing.db")
    (tmp_path / "text.db").write_text("this is not a database, it is a longer text than its header would be" * 20)
    with pytest.raises(StoreError):
        clusters(tmp_path / "text.db")
