"""Clusters that a controller tunes, on the dashboard: found in the stores, shown over time, followed, and inert."""

from __future__ import annotations

import json
import sqlite3
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from _dashboard_studies import HOSTILE, cluster_entries, make_clusters, make_study

sys.path.insert(0, str(Path(__file__).parents[3]))

pytest.importorskip("fastapi", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

from benchmarks._browser import dashboard

from autosched.control.ledger import Entry, Ledger
from autosched.web.clusters import Clusters, is_controllers_own
from autoscout.core.actions import Action, ActionKind, Pulse
from autoscout.core.clock import RealClock, VirtualClock
from autoscout.core.config import Config
from autoscout.store.sql import database
from autoscout.store.sql.engine import connect
from autoscout.store.sql.store import SqlStore
from autoscout.web.library import Library

Site = tuple[str, Library]
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("clusters")
    make_clusters(root / "lab" / "control.db", hostile=HOSTILE)
    with dashboard(str(root)) as found:
        yield found


def ask(site: Site, path: str) -> tuple[int, str]:
    key = next(entry.key for entry in cluster_entries(site[1]) if entry.name.startswith("lab"))
    try:
        with urllib.request.urlopen(site[0] + path.replace("KEY", key), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def document(site: Site, path: str) -> Any:
    status, text = ask(site, path)
    assert status == 200, text
    return json.loads(text)


@pytest.mark.parametrize("path", ["/", "/clusters/KEY", "/clusters/KEY?before=2", "/clusters/KEY/decisions/2"])
def test_every_page_opens_and_hostile_words_stay_text(site: Site, path: str) -> None:
    status, text = ask(site, path)
    assert status == 200, text
    assert "<img" not in text
    assert "&lt;img" in text, "it is shown as what it is"


def test_a_cluster_over_time(site: Site) -> None:
    _, text = ask(site, "/clusters/KEY")
    for kind in ("settings", "gains", "compare"):
        assert f'class="plot {kind}"' in text
    assert "1.200x [1.050, 1.400]" in text
    assert "0.950x" in text
    assert "priority_weight_age 1 → 5" in text
    lanes = text.split('class="plot settings"')[1].split("</svg>")[0]
    assert ("priority_weight_age" in lanes, "frozen" in lanes) == (True, False), "a setting that never changed has no lane"
    assert "simulated cluster" not in text
    for entry in cluster_entries(site[1]):
        entry.follow()
    rows = {row["name"]: row for row in document(site, "/api/clusters")["clusters"]}
    assert rows["attic"]["simulated"]
    found = document(site, "/api/clusters/KEY")
    assert (len(found["decisions"]), found["simulated"], len(found["at_s"])) == (3, False, 48)


def test_one_decision_is_explained(site: Site) -> None:
    _, text = ask(site, "/clusters/KEY/decisions/2")
    for words in ("the queue is long", "Measured gain 0.950 times", "1.100 times as long", "rolled back", "PriorityWeightAge=5"):
        assert words in text
    assert ask(site, "/clusters/KEY/decisions/99")[0] == 404
    assert ask(site, "/clusters/nothing")[0] == 404
    assert ask(site, "/api/events?study=nothing")[0] == 404


def test_old_decisions_are_a_page_further(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "control.db", "lab")
    same = Config(weight=1)
    for number in range(130):
        ledger.add(Entry(at_s=3_600.0 * number, state="same", kind="hourly", before=same, after=same), "decided", "")
    ledger.close()
    with dashboard(str(tmp_path / "control.db")) as found:
        _, usual = ask(found, "/clusters/KEY")
        assert "0 of 130 would change something" in usual
        assert "/decisions/130" not in usual, "what changes nothing is listed on request"
        _, newest = ask(found, "/clusters/KEY?all=1")
        assert "/clusters/KEY?before=31&amp;all=1#".replace("KEY", cluster_entries(found[1])[0].key) in newest
        assert ("/decisions/130" in newest, "/decisions/30" in newest) == (True, False)
        _, older = ask(found, "/clusters/KEY?before=31&all=1")
        assert ("/decisions/30" in older, "/decisions/31" in older) == (True, False)


def test_what_an_operator_should_look_at_comes_first(tmp_path: Path) -> None:
    now_s = RealClock().now_s()
    with closing(Ledger(tmp_path / "control.db", "lab")) as ledger:
        for at_s in (now_s - 2_000.0, now_s - 1_000.0):
            ledger.sample(at_s, {"load": 1.0, "waiting": 0, "running": 0, "settings": {}})
        with dashboard(str(tmp_path / "control.db")) as found:
            _, calm = ask(found, "/clusters/KEY")
            assert ("What to look at" in calm, "The last look was" in calm) == (False, False)
        ledger.note(now_s, "no answer", "slurmctld is down\nin many words")
    with closing(sqlite3.connect(tmp_path / "control.db")) as connection, connection:
        connection.execute("UPDATE autoscout_cluster_samples SET at_s = at_s - 86400")
    with dashboard(str(tmp_path / "control.db")) as found:
        _, late = ask(found, "/clusters/KEY")
        assert "slurmctld is down" in late
        assert "in many words" not in late
        assert "The last look was 1 d" in late


def test_the_store_of_a_controller_stays_as_it_is(tmp_path: Path) -> None:
    make_clusters(tmp_path / "control.db")
    library = Library(str(tmp_path / "control.db"))
    assert ([entry.name for entry in cluster_entries(library)], library.entries(), library.problems) == (["attic", "lab"], [], ())
    library.close()
    with closing(sqlite3.connect(tmp_path / "control.db")) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "autoscout_decisions" in names
    assert "autoscout_trials" not in names, "looking makes no tables"


def test_studies_and_clusters_in_one_store(tmp_path: Path) -> None:
    make_study(tmp_path, 4).close()
    make_clusters(tmp_path / "store.db")
    library = Library(str(tmp_path))
    assert [entry.record.name for entry in library.entries()] == ["engine"]
    lab = cluster_entries(library)[1]
    lab.follow()
    before = lab.version
    ledger = Ledger(tmp_path / "store.db", "lab")
    ledger.note(9e9, "no answer", "slurmctld is down")
    ledger.close()
    lab.clock.sleep(2.1)
    lab.follow()
    assert lab.version == before + 1, "a page that follows it changes"
    library.close()


def test_a_look_for_clusters_opens_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "control.db")
    make_clusters(Path(place))
    opened: list[object] = []
    monkeypatch.setattr(database, "connect", lambda *given: (opened.append(given), connect(*given))[1])
    clock = VirtualClock(Path(place).stat().st_mtime)
    found = Clusters(clock)
    for number in (1, 2):
        found.look(place)
        assert len(opened) == number, "it was just written"
    clock.sleep(DAY_S)
    for _ in range(3):
        found.look(place)
    assert len(opened) == 3, "once more, and then it has not changed"
    assert [entry.name for entry in found.entries()] == ["attic", "lab"]
    assert is_controllers_own(place)
    assert len(opened) == 4


def test_only_stores_that_have_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        make_study(tmp_path / name, 4, name=name).close()
    library = Library(str(tmp_path), VirtualClock(RealClock().now_s() + DAY_S))  # for which every commit was long ago
    library.look()
    read: list[str] = []
    take_in = library._take_in
    monkeypatch.setattr(library, "_take_in", lambda place, store: (read.append(Path(place).parent.name), take_in(place, store)))
    library.look()
    library.look()
    assert read == []
    store = SqlStore(tmp_path / "two" / "store.db")
    store.act("two", Action(kind=ActionKind.STOP))
    library.look()
    assert read == ["two"]
    two = next(entry for entry in library.entries() if entry.record.name == "two")
    two.follow()
    assert [action.kind for action in two.view().actions] == [ActionKind.STOP]
    store.close()
    library.look()  # closing may have written too
    read.clear()
    library.look()
    assert read == []
    two.pulse = Pulse(trials=4, workers=("elsewhere",))
    library.look()
    assert read == ["two"], "a claim may end without a word"
    assert two.pulse.workers == ()
    library.close()


def test_what_is_wrong_with_a_store_is_said_as_long_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "control.db").write_text("this is not a database, it is a longer text than its header would be" * 20)
    library = Library(str(tmp_path))
    for _ in range(3):
        library.look()
        assert len(library.problems) == 1
    library.close()
