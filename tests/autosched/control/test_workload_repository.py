"""Job events: kept once, in any order, by hour, and told as jobs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from autosched.arrivals.synthetic import Recipe, generate
from autosched.control.repository import WorkloadRepository
from autosched.events import JobEvent, events_of_sacct, events_of_trace
from autoscout.core.errors import ConfigError

HOUR_S = 3_600.0


def event(job: str, kind: str, at_s: float, **attributes: float | str) -> JobEvent:
    return JobEvent(job=job, kind=kind, at_s=at_s, attributes=attributes)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "control.db")
    return str(request.getfixturevalue("postgres_url"))


def test_events_in_any_order_and_twice_make_the_same_jobs(target: str) -> None:
    trace = generate(Recipe(profile="philly", jobs=300, days=2, seed=3))
    told = list(events_of_trace(trace))
    mixed = [*told, *told[::2]]
    random.Random(1).shuffle(mixed)
    repository = WorkloadRepository(target)
    added = repository.add("lab", mixed)
    assert added.new == len(told), "every event is kept once"
    assert added.known == len(mixed) - len(told)
    assert repository.add("lab", told).new == 0, "a second time brings nothing"
    known = repository.jobs("lab")
    assert known.jobs.job_id.tolist() == trace.job_id.tolist()
    np.testing.assert_allclose(known.jobs.duration_s, trace.duration_s)
    np.testing.assert_allclose(known.end_s, trace.submit_s + trace.duration_s)
    assert known.jobs.user.texts().tolist() == trace.user.texts().tolist()
    assert len(repository.jobs("another").jobs) == 0
    repository.close()


def test_a_job_is_what_its_events_say(tmp_path: Path) -> None:
    repository = WorkloadRepository(tmp_path / "control.db")
    repository.add(
        "lab",
        [
            event("ran", "end", 500.0, status="COMPLETED"),
            event("ran", "start", 200.0),
            event("ran", "submit", 100.0, gpus=4.0, user="ann"),
            event("again", "submit", 100.0, gpus=1.0),
            event("again", "start", 110.0),
            event("again", "requeue", 150.0),
            event("again", "start", 300.0),
            event("again", "end", 350.0),
            event("waits", "submit", 120.0, gpus=2.0, estimate_s=60.0),
            event("back", "submit", 130.0, gpus=2.0),
            event("back", "start", 140.0),
            event("back", "end", 145.0),
            event("back", "requeue", 146.0),
            event("gave up", "submit", 100.0, gpus=2.0),
            event("gave up", "cancel", 105.0),
            event("no gpu", "submit", 100.0, user="ann"),
            event("no gpu", "start", 101.0),
        ],
    )
    known = repository.jobs("lab")
    found = {name: (known.jobs.duration_s[row], known.end_s[row]) for row, name in enumerate(known.jobs.job_id.tolist())}
    assert found == {
        "ran": (300.0, 500.0),
        "again": (50.0, 350.0),
        "waits": (60.0, np.inf),
        "back": (3_600.0, np.inf),
    }


def test_retention_keeps_what_has_not_ended(tmp_path: Path) -> None:
    repository = WorkloadRepository(tmp_path / "control.db")
    repository.add("lab", [event("old", "submit", 10.0, gpus=1.0), event("old", "start", 20.0), event("old", "end", 30.0)])
    repository.add("lab", [event("long", "submit", 10.0, gpus=1.0), event("long", "start", 20.0)])
    repository.add("lab", [event("late", "submit", 10.0, gpus=1.0), event("late", "end", 5 * HOUR_S, duration_s=9.0)])
    assert repository.counts("lab") == {0: 6, 5: 1}
    assert repository.forget("lab", 3 * HOUR_S) == 3
    assert sorted(repository.jobs("lab").jobs.job_id.tolist()) == ["late", "long"]


def test_a_span_leaves_earlier_arrivals_out(tmp_path: Path) -> None:
    repository = WorkloadRepository(tmp_path / "control.db")
    repository.add("lab", [event("early", "submit", 10.0, gpus=1.0), event("early", "end", 9 * HOUR_S, duration_s=1.0, gpus=1.0)])
    repository.add("lab", [event("new", "submit", 9 * HOUR_S, gpus=1.0)])
    assert repository.jobs("lab", 8 * HOUR_S).jobs.job_id.tolist() == ["new"]


def test_bad_events_are_refused_all_at_once(tmp_path: Path) -> None:
    repository = WorkloadRepository(tmp_path / "control.db")
    bad = [
        event("", "submit", 1.0),
        event("a", "sleeps", 1.0),
        event("b", "submit", float("nan")),
        event("c", "submit", 1.0, gpus=-1.0),
        event("d", "submit", 1.0, colour="red"),
        event("e", "submit", 1.0, user="x" * 1_000),
        event("f", "submit", 1.0, gpus=1e9),
    ]
    with pytest.raises(ConfigError) as caught:
        repository.add("lab", bad)
    assert len(caught.value.faults) == len(bad)
    assert repository.counts("lab") == {}


def test_ten_thousand_jobs_in_a_minute(tmp_path: Path) -> None:
    repository = WorkloadRepository(tmp_path / "control.db")
    jobs = (event(f"job-{number}", "submit", 60.0 * number / 10_000, gpus=1.0) for number in range(10_000))
    assert repository.add("lab", jobs).new == 10_000
    assert len(repository.jobs("lab").jobs) == 10_000


def test_accounting_of_slurm(tmp_path: Path) -> None:
    path = tmp_path / "sacct"
    path.write_text(
        "JobID|User|Partition|JobName|State|Submit|Start|End|Timelimit|ReqTRES\n"
        "7|ann|gpu|train|COMPLETED|2024-05-01T12:00:00|2024-05-01T12:01:00|2024-05-01T12:03:00|01:00:00|cpu=4,gres/gpu=2\n"
        "7.batch|ann|gpu|batch|COMPLETED|2024-05-01T12:00:00|2024-05-01T12:01:00|2024-05-01T12:03:00||cpu=4,gres/gpu=2\n"
        "8|bob|gpu|x|REQUEUED|2024-05-01T12:00:00|2024-05-01T12:01:00|2024-05-01T12:02:00|UNLIMITED|gres/gpu:a100=1\n"
        "8|bob|gpu|x|RUNNING|2024-05-01T12:02:00|2024-05-01T12:05:00|Unknown|UNLIMITED|gres/gpu:a100=1\n"
        "9|bob|gpu|x|CANCELLED by 0|2024-05-01T12:02:00|None|2024-05-01T12:05:00|UNLIMITED|gres/gpu=1\n"
        "10|bob|cpu|x|PENDING|2024-05-01T12:02:00|Unknown|Unknown|UNLIMITED|cpu=1\n"
    )
    found = [(each.job, each.kind) for each in events_of_sacct(path)]
    assert found == [
        ("7", "submit"), ("7", "start"), ("7", "end"),
        ("8", "submit"), ("8", "start"), ("8", "requeue"), ("8", "submit"), ("8", "start"),
        ("9", "submit"), ("9", "cancel"),
    ]  # fmt: skip
    repository = WorkloadRepository(tmp_path / "control.db")
    repository.add("lab", events_of_sacct(path))
    known = repository.jobs("lab")
    assert known.jobs.job_id.tolist() == ["7", "8"]
    assert known.jobs.duration_s[0] == 120.0
    assert np.isinf(known.end_s[1])
