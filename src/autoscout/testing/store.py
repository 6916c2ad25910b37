"""What every store must do. Subclass `StoreSuite` in a test module and give it a fixture `store`:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path):
            yield from self.opened(MyStore, tmp_path)

`opened` begins a store at the place that the class names for tests (`example`), closes every handle at the end, and
compares `trials.jsonl`, if the store wrote one, with what it stored.

Needs no pytest itself; the methods are plain functions of a store and of an empty folder `tmp_path`.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.actions import Action, ActionKind, Pulse
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError, StoreError
from autoscout.core.history import best_of, bring, similar, trials_of
from autoscout.core.journal import read_trials
from autoscout.core.origin import Origin
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.room import Room
from autoscout.core.task import Budget, Direction, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.core.worker import worker_identity

LEASE_S = 3600.0
ELSEWHERE = "another-machine"
"""A worker that nobody here can see: only its lease says whether it lives."""


def task(**workload: Any) -> Task:
    """A small task; the arguments make it differ."""
    objective = Objective(metric="time_s", limits=(Limit.parse("memory_gb<=80"),))
    facts = {"gpus": 8, "memory_gb": 80.0}
    return Task(system="toy", objective=objective, workload={"batch": 16, "model": "small"} | workload, hardware=facts)


def record(name: str = "study", **changes: Any) -> StudyRecord:
    """A record of that task; the arguments replace its fields."""
    return replace(StudyRecord(name=name, task=task(), space="0123abcd", spec={"name": name, "space": ["tp", "pp"]}), **changes)


def proposal(x: int, repeat: int = 0) -> Proposal:
    """The proposal to look at configuration number `x`."""
    return Proposal(config=Config(x=x, kind="a"), origin=Origin(by="suite", notes={"round": x}), repeat=repeat)


def trial(x: int, repeat: int = 0, worker: str = ELSEWHERE, **measured: Any) -> Trial:
    """A finished trial of configuration number `x`; the arguments change its measurement."""
    answer = Measurement(status=Status.OK, metrics={"time_s": 1.0 + x, "memory_gb": 40.0}, cost_s=0.5)
    return Trial(
        proposal=proposal(x, repeat), measurement=replace(answer, **measured), worker=worker, started_s=100.0 + x, finished_s=101.0 + x
    )


class StoreSuite:
    """The contract of `autoscout.core.protocols.Store`, one method per rule."""

    def opened(self, kind: Any, folder: Path, target: str | None = None) -> Iterator[Any]:
        """A store for the fixture `store`: in `folder`, or at `target`."""
        self._target, self._journal = target or kind.example(folder), folder / "trials.jsonl"
        self._handles = [kind(self._target, create=True, journal=self._journal)]
        yield self._handles[0]
        for handle in self._handles:
            handle.close()
        if self._journal.exists():
            reader = kind(self._target, create=False, journal=None)
            stored = {record.name: list(trials_of(reader, record.name)) for record in reader.studies()}
            reader.close()
            assert {name: read_trials(self._journal, name) for name in stored} == stored, "the journal agrees with the store"

    def again(self, store: Any) -> Any:
        """Another handle on the same data, as another process would have; a store that cannot share its data gives itself."""
        if store.volatile:
            return store
        self._handles.append(type(store)(self._target, create=False, journal=self._journal))
        return self._handles[-1]

    # --- places ------------------------------------------------------------------------------------------------

    def test_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

    def test_has_schemes(self, store: Any) -> None:
        schemes = type(store).schemes
        assert isinstance(schemes, tuple)
        assert schemes, "without a scheme nobody can choose it"
        assert all(scheme == scheme.lower() and len(scheme) > 1 for scheme in schemes)

    def test_nothing_is_begun_unless_asked(self, store: Any, tmp_path: Path) -> None:
        place = store.example(tmp_path / "nothing")
        _raised(StoreError, lambda: type(store)(place, create=False, journal=None))
        assert not (tmp_path / "nothing").exists()

    def test_without_a_journal(self, store: Any, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        other = type(store)(store.example(tmp_path / "elsewhere"), create=True, journal=None)
        other.open(record())
        assert len(other.append("study", [trial(0)])) == 1
        other.close()

    def test_trials_outlive_the_handle(self, store: Any) -> None:
        if store.volatile:
            return
        store.open(record())
        written = store.append("study", [trial(0), trial(1)])
        store.close()
        other = self.again(store)
        assert [study.name for study in other.studies()] == ["study"]
        assert list(other.batches("study")) == [written]

    # --- studies -----------------------------------------------------------------------------------------------

    def test_open_creates_and_joins(self, store: Store) -> None:
        first = store.open(record())
        assert (first.name, first.task, first.space, first.spec) == ("study", task(), "0123abcd", record().spec)
        assert first.created_s > 0, "a new study is dated"
        assert store.open(record()) == first
        assert self.again(store).open(record(created_s=1.0)) == first, "joining does not make a study younger or older"

    def test_open_takes_a_new_budget_space_and_spec(self, store: Store) -> None:
        store.open(record())
        store.append("study", [trial(0)])
        bigger = replace(task(), budget=Budget(trials=50, wall_s=3600.0))
        changed = record(task=bigger, space="fedc9876", spec={"name": "study", "space": ["tp"]})
        assert store.open(changed).task.budget == bigger.budget
        (stored,) = self.again(store).studies()
        assert (stored.task, stored.space, stored.spec) == (bigger, "fedc9876", changed.spec)
        assert len(list(trials_of(store, "study"))) == 1, "trials of the old space stay"

    def test_open_refuses_another_task(self, store: Store) -> None:
        store.open(record())
        objective = Objective(metric="throughput", direction=Direction.MAXIMIZE)
        other = replace(task(batch=32, extra="yes"), objective=objective, hardware={"gpus": 4})
        error = _raised(ConfigError, lambda: store.open(record(task=other)))
        fields = {fault.field for fault in error.faults}
        expected = {"workload.batch", "workload.extra", "hardware.gpus", "hardware.memory_gb"}
        assert expected | {"objective.metric", "objective.direction", "objective.limits"} == fields, "all differences at once, nothing else"
        assert all("--experiment-name" in fault.fix and "--output-dir" in fault.fix for fault in error.faults)
        assert "32" in str(error)
        assert "16" in str(error)
        assert store.studies()[0].task == task(), "a refused opening changes nothing"

    def test_open_refuses_what_cannot_be_kept(self, store: Store) -> None:
        bad = [record(name=name) for name in ("", "  ", "x" * 201, "line\nbreak", "nul\0")] + [record(spec={"bad": object()})]
        for unusable in bad:
            _raised(ConfigError, partial(store.open, unusable))
        assert store.studies() == []

    def test_names_may_be_any_text(self, store: Store) -> None:
        for name in ("a b/c", "größe 量", "'; DROP TABLE autoscout_trials; --", "x" * 200, "%_\\"):
            store.open(record(name=name))
            store.append(name, [trial(0)])
            assert [each.study for each in trials_of(store, name)] == [name]

    def test_studies_are_listed_newest_first(self, store: Store) -> None:
        for name, created_s in (("old", 10.0), ("new", 30.0), ("middle", 20.0)):
            store.open(record(name=name, created_s=created_s))
        assert [study.name for study in store.studies()] == ["new", "middle", "old"]

    def test_unknown_studies_are_refused(self, store: Store) -> None:
        store.open(record(name="known"))
        calls: list[Callable[[], object]] = [
            lambda: store.claim("unknown", [proposal(0)], ELSEWHERE, LEASE_S),
            lambda: store.append("unknown", [trial(0)]),
            lambda: list(store.batches("unknown")),
        ]
        for call in calls:
            error = _raised(StoreError, call)
            assert "unknown" in str(error)
            assert "known" in str(error).replace("unknown", ""), "says which studies there are"

    # --- trials ------------------------------------------------------------------------------------------------

    def test_append_numbers_trials_and_batches(self, store: Store) -> None:
        store.open(record())
        first = store.append("study", [trial(0), trial(1)])
        second = store.append("study", [trial(2)])
        assert [(t.study, t.number, t.batch) for t in [*first, *second]] == [("study", 0, 0), ("study", 1, 0), ("study", 2, 1)]
        assert [t.config for t in first] == [proposal(0).config, proposal(1).config]

    def test_batches_come_back_in_order(self, store: Store) -> None:
        store.open(record())
        written = [store.append("study", [trial(10 * size + x) for x in range(size)]) for size in (1, 3, 2)]
        other = self.again(store)
        assert list(other.batches("study")) == written
        assert list(other.batches("study", 0)) == written[1:]
        assert list(other.batches("study", after=2)) == []
        assert list(other.batches("study", -7)) == written

    def test_many_batches(self, store: Store) -> None:
        store.open(record())
        for x in range(300):
            store.append("study", [trial(x)])
        batches = list(store.batches("study", 10))
        assert [t.batch for batch in batches for t in batch] == list(range(11, 300))

    def test_nothing_of_a_trial_is_lost(self, store: Store) -> None:
        store.open(record())
        measurement = Measurement(
            status=Status.CRASHED,
            metrics={"time_s": 0.1 + 0.2, "tiny": 5e-324, "big": 1.7e308},
            samples={"time_s": (1.0, 2.5), "broken": (math.inf, 1.0)},
            fidelity=Fidelity.SIMULATED,
            cost_s=12.25,
            conditions={"cpu_pressure": 0.125},
            reason="exit code 1: größer",
            bounds={"time_s": 0.75},
            log_tail="nul \0, bell \a, lone \udcff, 量, 'quoted' \"twice\"\n\ttail",
        )
        config = Config({"flag": True, "one": 1, "float": 1.0, "text": "é\0", "none": None, "long": "k" * 5000})
        sent = Trial(
            proposal=Proposal(config=config, origin=Origin(by="suite", notes={"cell": [0, 1], "why": {"gain": 0.5}}), repeat=-2),
            measurement=measurement,
            started_s=1.5,
            finished_s=1700000000.123456,
            worker="w",
        )
        (stored,) = store.append("study", [sent])
        assert stored == replace(sent, study="study", number=0, batch=0)
        assert list(trials_of(self.again(store), "study")) == [stored]
        assert {name: type(value) for name, value in stored.config.items()}["one"] is int

    def test_live_and_replayed_trials_are_the_same(self, store: Store) -> None:
        store.open(record())
        notes: dict[Any, Any] = {"cell": (0, 1), 3: {"set"}, "number": math.nan, "array": np.arange(3), "float": np.float32(0.5)}
        odd = replace(trial(0), proposal=replace(proposal(0), origin=Origin(notes=notes)))
        stored = store.append("study", [odd])
        assert list(store.batches("study")) == [stored]

    def test_failures_are_stored(self, store: Store) -> None:
        store.open(record())
        failures = [status for status in Status if status.failed or status is Status.BOUNDED]
        stored = store.append("study", [trial(x, status=status, metrics={}) for x, status in enumerate(failures)])
        assert [t.measurement.status for t in stored] == failures
        assert store.claim("study", [proposal(0)], ELSEWHERE, LEASE_S) == [], "a failed configuration is finished"

    def test_a_trial_is_stored_once(self, store: Store) -> None:
        store.open(record())
        assert len(store.append("study", [trial(0), trial(0), trial(1)])) == 2
        assert self.again(store).append("study", [trial(0, cost_s=99.0), trial(1)]) == []
        (late,) = store.append("study", [trial(1), trial(2)])
        assert (late.number, late.batch) == (2, 1), "dropped trials use up neither numbers nor batches"
        assert [t.measurement.cost_s for t in trials_of(store, "study")] == [0.5, 0.5, 0.5], "the first one stays as it was"

    def test_repeats_and_fidelities_are_trials_of_their_own(self, store: Store) -> None:
        store.open(record())
        looks = [trial(0), trial(0, repeat=1), trial(0, repeat=-1), trial(0, fidelity=Fidelity.SIMULATED)]
        assert len(store.append("study", looks)) == 4
        assert store.append("study", looks) == []

    def test_studies_share_nothing(self, store: Store) -> None:
        for name in ("one", "two"):
            store.open(record(name=name))
            assert store.claim(name, [proposal(0)], name, LEASE_S) == [proposal(0)]
        for name in ("one", "two"):
            (stored,) = store.append(name, [trial(0)])
            assert (stored.study, stored.number, stored.batch) == (name, 0, 0)

    def test_appending_nothing_changes_nothing(self, store: Store) -> None:
        store.open(record())
        assert store.append("study", []) == []
        assert list(store.batches("study")) == []

    # --- claims ------------------------------------------------------------------------------------------------

    def test_a_claim_holds_against_others(self, store: Store) -> None:
        store.open(record())
        assert store.claim("study", [proposal(0), proposal(1), proposal(0)], "a", LEASE_S) == [proposal(0), proposal(1)]
        assert self.again(store).claim("study", [proposal(2), proposal(1), proposal(3)], "b", LEASE_S) == [proposal(2), proposal(3)]
        assert store.claim("study", [proposal(1, repeat=1)], "b", LEASE_S) == [proposal(1, repeat=1)], "another look is free"
        assert store.claim("study", [], "b", LEASE_S) == []

    def test_no_more_is_granted_than_a_budget_has_room_for(self, store: Store) -> None:
        store.open(record())
        store.append("study", [trial(0)])
        others = store.claim("study", [proposal(1), proposal(2)], ELSEWHERE, LEASE_S, Room(trials=5, seen=1))
        assert others == [proposal(1), proposal(2)]
        mine = [proposal(x) for x in range(3, 9)]
        assert store.claim("study", mine, "b", LEASE_S, Room(trials=5, seen=1)) == mine[:3], "two of five are held"
        store.append("study", [trial(1, worker=ELSEWHERE)])
        assert store.claim("study", mine[3:], "b", LEASE_S, Room(trials=5 - 3, seen=1)) == [], "one held, one new, three of its own"
        assert store.claim("study", mine[3:], "b", LEASE_S, Room(trials=2, seen=2)) == mine[3:4]
        assert store.claim("study", mine[4:], "b", LEASE_S) == mine[4:], "nothing is bounded without"

    def test_a_worker_gets_its_own_claims_again(self, store: Store) -> None:
        store.open(record())
        store.claim("study", [proposal(0)], "a", LEASE_S)
        assert store.claim("study", [proposal(0)], "a", LEASE_S) == [proposal(0)], "it may have lost track of them"
        assert store.claim("study", [proposal(0)], "b", LEASE_S) == []

    def test_finished_proposals_cannot_be_claimed(self, store: Store) -> None:
        store.open(record())
        store.append("study", [trial(0), trial(1, fidelity=Fidelity.SIMULATED)])
        proposals = [proposal(0), proposal(1), proposal(2)]
        assert store.claim("study", proposals, "a", LEASE_S) == [proposal(2)]
        assert store.claim("study", [proposal(1, repeat=-1)], "a", LEASE_S) == [proposal(1, repeat=-1)], "a recheck is another look"

    def test_an_aborted_trial_only_gives_its_claim_back(self, store: Store) -> None:
        store.open(record())
        store.claim("study", [proposal(0), proposal(1)], "a", LEASE_S)
        assert store.append("study", [trial(0, worker="a", status=Status.ABORTED)]) == []
        assert list(store.batches("study")) == []
        assert store.claim("study", [proposal(0), proposal(1)], "b", LEASE_S) == [proposal(0)]
        store.append("study", [trial(0, worker="a", status=Status.ABORTED)])
        assert store.claim("study", [proposal(0)], "c", LEASE_S) == [], "nobody gives back what another holds now"

    def test_a_lease_ends(self, store: Store) -> None:
        store.open(record())
        store.claim("study", [proposal(0)], ELSEWHERE, lease_s=0.0)
        assert store.claim("study", [proposal(0)], "b", LEASE_S) == [proposal(0)]
        (stored,) = store.append("study", [trial(0, worker=ELSEWHERE)])
        assert stored.worker == ELSEWHERE, "whoever finishes first is stored, lease or not"
        assert store.append("study", [trial(0, worker="b")]) == []

    def test_dead_processes_of_this_machine_lose_their_claims(self, store: Store) -> None:
        store.open(record())
        with subprocess.Popen(
            [sys.executable, "-c", "from autoscout.core.worker import worker_identity as w; print(w(), flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            worker = process.stdout.readline().strip()
            assert store.claim("study", [proposal(0)], worker, LEASE_S) == [proposal(0)]
            assert store.claim("study", [proposal(0)], worker_identity(), LEASE_S) == [], "it lives"
            process.kill()
            process.wait()
        assert store.claim("study", [proposal(0)], worker_identity(), LEASE_S) == [proposal(0)], "no waiting for the lease"

    # --- many at once ------------------------------------------------------------------------------------------

    def test_claims_race(self, store: Store) -> None:
        store.open(record())
        proposals = [proposal(x) for x in range(12)]

        def work(me: int) -> list[Proposal]:
            mine = self.again(store) if me % 2 else store
            got = [each for p in (proposals if me % 3 else proposals[::-1]) for each in mine.claim("study", [p], f"worker-{me}", LEASE_S)]
            if mine is not store:
                mine.close()
            return got

        got = [each for part in _together(8, work) for each in part]
        assert sorted(p.config.canonical for p in got) == sorted(p.config.canonical for p in proposals), "each to exactly one worker"

    def test_appends_race(self, store: Store) -> None:
        store.open(record())

        def work(me: int) -> list[Trial]:
            mine = self.again(store) if me % 2 else store
            batches = [[trial(100), trial(step)] if me % 2 else [trial(1000 + 1000 * me + step)] for step in range(10)]
            got = [each for batch in batches for each in mine.append("study", batch)]
            if mine is not store:
                mine.close()
            return got

        acknowledged = [each for part in _together(6, work) for each in part]
        stored = list(trials_of(store, "study"))
        assert sorted(t.number for t in acknowledged) == list(range(len(acknowledged)))
        assert sorted(acknowledged, key=lambda t: t.number) == stored
        assert len({t.identity for t in stored}) == len(stored) == 11 + 30
        batches = [t.batch for t in stored]
        assert batches == sorted(batches)
        assert set(batches) == set(range(batches[-1] + 1)), "batch numbers have no gaps"

    def test_openings_race(self, store: Store) -> None:
        def work(me: int) -> StudyRecord:
            return store.open(record(name=f"study {me % 2}"))

        opened = _together(8, work)
        assert len({each.created_s for each in opened if each.name == "study 0"}) == 1
        assert len(store.studies()) == 2

    # --- history -----------------------------------------------------------------------------------------------

    def test_actions_are_kept_in_order_and_answered(self, store: Store) -> None:
        if not store.takes_actions:
            return
        store.open(record())
        store.open(record("other"))
        first = store.act("study", Action(kind=ActionKind.TRY, config=Config(x=3), reason="why not"))
        assert (first.number, first.at_s > 0, first.answer) == (0, True, "")
        store.act("study", Action(kind=ActionKind.BUDGET, budget={"trials": 9}))
        store.answer("study", 0, "refused")
        actions = self.again(store).actions("study")
        assert [(action.kind, action.answer) for action in actions] == [(ActionKind.TRY, "refused"), (ActionKind.BUDGET, "")]
        assert (actions[0].config, actions[0].reason, actions[1].budget) == (Config(x=3), "why not", {"trials": 9})
        assert store.actions("other") == []
        _raised(StoreError, lambda: store.act("nobody", Action(kind=ActionKind.STOP)))

    def test_pulses_tell_how_far_every_study_is(self, store: Store) -> None:
        if not store.takes_actions:
            return
        store.open(record())
        store.open(record("other"))
        store.append("study", [trial(0), trial(1)])
        store.claim("study", [proposal(2)], ELSEWHERE, LEASE_S)
        store.claim("study", [proposal(3)], "gone", -1.0)
        store.act("study", Action(kind=ActionKind.STOP))
        assert store.pulses() == {"study": Pulse(trials=2, actions=(1, 0), workers=(ELSEWHERE,)), "other": Pulse(trials=0)}

    def test_similar_studies(self, store: Store) -> None:
        tasks = {"same": task(), "near": task(batch=32), "far": task(batch=1600, model="large")}
        for age, (name, its) in enumerate(tasks.items()):
            store.open(record(name=name, task=its, created_s=100.0 - age))
        store.open(record(name="other metric", task=replace(task(), objective=Objective(metric="energy_j"))))
        store.open(record(name="other system", task=replace(task(), system="megatron")))
        store.append("near", [trial(3), trial(1), trial(2, metrics={"time_s": 0.1, "memory_gb": 99.0}), trial(0, status=Status.TIMEOUT)])
        studies = similar(store, task(), limit=2)
        assert [study.name for _, study in studies] == ["same", "near"]
        assert [round(alike, 3) for alike, _ in studies] == [1.0, 0.875]
        assert [study.name for _, study in similar(store, task(), exclude=["same"])] == ["near", "far"]
        assert best_of(store, studies[0][1]) is None
        best = best_of(store, studies[1][1])
        assert best is not None
        assert best.config == proposal(1).config, "failures and broken limits do not win"

    def test_trials_can_be_brought_from_elsewhere(self, store: Store) -> None:
        for name in ("from", "to"):
            store.open(record(name=name))
        for batch in ([trial(0), trial(1)], [trial(2)]):
            store.append("from", batch)
        assert bring(store, "to", trials_of(store, "from")) == 3
        assert bring(store, "to", trials_of(store, "from")) == 0
        assert list(store.batches("to")) == [[replace(t, study="to") for t in batch] for batch in store.batches("from")]


def _raised(kind: type[AutoScoutError], call: Callable[[], object]) -> AutoScoutError:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def _together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do `work(0)` ... `work(count - 1)` on threads that begin at the same moment."""
    gate = threading.Barrier(count)

    def begin(me: int) -> Any:
        gate.wait()
        return work(me)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))
