"""Slurm's JSON, old and new, and its text: the same rows, and text where JSON does not work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autosched.live.slurm import documents
from autosched.live.slurm.reading import QUEUE, SlurmReader
from autosched.live_scheduler import LiveError
from autoscout.core.errors import Fault

NOW_S = 1_700_000_600.0
OLD, NEW = (22, 5), (24, 5)


def number(value: int | None, *, new: bool, infinite: bool = False) -> Any:
    """As an old or a new Slurm writes it."""
    if new:
        return {"set": value is not None, "infinite": infinite, "number": value or 0}
    return 4_294_967_295 if infinite else value


def squeue(*, new: bool) -> str:
    def job(own: int, state: str, **more: Any) -> dict[str, Any]:
        told = {
            "job_id": own, "job_state": [state] if new else state, "user_name": "ann", "partition": "gpu", "submit_time": 1_700_000_000,
            "start_time": 1_700_000_300 if state == "RUNNING" else 0, "time_limit": 90, "node_count": 2, "array_job_id": 0,
            "array_task_id": None, "het_job_id": 0, "het_job_offset": 0, **more,
        }  # fmt: skip
        numbers = ("submit_time", "start_time", "time_limit", "node_count", "array_job_id", "array_task_id", "het_job_id", "het_job_offset")
        told = {name: number(value, new=new) if name in numbers and not isinstance(value, dict) else value for name, value in told.items()}
        return told | {"nodes": "n[1-2]" if state == "RUNNING" else "", "tres_alloc_str": "gres/gpu=8" if state == "RUNNING" else "",
                       "tres_req_str": "gres/gpu=8,gres/gpu:a100=8"}  # fmt: skip

    unlimited = {"time_limit": number(None, new=new, infinite=True)}
    jobs = [
        job(1, "RUNNING"),
        job(2, "PENDING") | unlimited,
        job(3, "PENDING", array_job_id=3, array_task_string="0-4:2,7%2"),
        job(4, "RUNNING", array_job_id=3, array_task_id=9),
        job(5, "PENDING", het_job_id=5, het_job_offset=0),
        job(6, "PENDING", het_job_id=5, het_job_offset=1, partition="cpu,debug"),
        job(7, "COMPLETED"),
    ]
    return json.dumps({"jobs": jobs})


@pytest.mark.parametrize("new", [False, True], ids=["22.05", "24.05"])
def test_queue(new: bool) -> None:
    rows = {row["JOBID"]: row for row in documents.queue_rows(squeue(new=new), NOW_S)}
    assert list(rows) == ["1", "2", "3_0", "3_2", "3_4", "3_7", "3_9", "5+0", "5+1", "7"]
    assert rows["1"] == {
        "JOBID": "1", "USER": "ann", "PARTITION": "gpu", "STATE": "RUNNING", "SUBMIT_TIME": "2023-11-14T22:13:20",
        "START_TIME": "2023-11-14T22:18:20", "ElapsedRaw": "300", "TIME_LIMIT": "0-01:30:00", "AllocTRES": "gres/gpu=8", "NODES": "2",
        "NODELIST": "n[1-2]",
    }  # fmt: skip
    assert (rows["2"]["TIME_LIMIT"], rows["2"]["AllocTRES"]) == ("UNLIMITED", "gres/gpu=8,gres/gpu:a100=8")


NODE = {"name": "n1", "state": "idle", "state_flags": [], "partitions": ["gpu", "debug"], "gres": "gpu:a100:4(S:0)"}
OLD_NODES = {"nodes": [NODE, {**NODE, "name": "n10"}, {**NODE, "name": "n2", "state_flags": ["DRAIN"]}, {**NODE, "name": "n3", "gres": ""}]}
NEW_NODES = {
    "sinfo": [
        {"node": {"state": state}, "nodes": {"nodes": names}, "gres": {"total": gres}, "partition": {"name": partition}}
        for partition in ("gpu", "debug")
        for state, names, gres in ((["IDLE"], ["n1", "n10"], "gpu:a100:4(S:0)"), (["IDLE", "DRAIN"], ["n2"], "gpu:a100:4(S:0)"))
    ]
}
TEXT_NODES = [(name, partition, state, "gpu:a100:4(S:0)") for partition in ("gpu*", "debug") for name, state in
              (("n1", "idle"), ("n10", "idle~"), ("n2", "drained"), ("n3", "idle*"))]  # fmt: skip
SACCT = {
    "job_id": 12, "array": {"job_id": 0, "task_id": None}, "association": {"user": "ann"}, "name": 'a|"b', "partition": "gpu",
    "state": {"current": "COMPLETED"}, "time": {"submission": 1_700_000_000, "start": 1_700_000_060, "end": 1_700_000_090, "limit": 5},
    "tres": {"requested": [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 4},
                           {"type": "gres", "name": "gpu:a100", "count": 4}]},
}  # fmt: skip
NEW_SACCT = {
    **SACCT, "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}}, "user": "ann",
    "state": {"current": ["COMPLETED"]}, "time": {**SACCT["time"], "limit": {"set": True, "infinite": False, "number": 5}},  # type: ignore[dict-item]
}  # fmt: skip
COLUMNS = ("12", "ann", "gpu", 'a|"b', "COMPLETED", "2023-11-14T22:13:20", "2023-11-14T22:14:20", "2023-11-14T22:14:50", "00:05:00",
           "cpu=8,gres/gpu=4,gres/gpu:a100=4")  # fmt: skip

ODD = ("12", "ann", "gpu", "a\x1fb", *COLUMNS[4:])
"""A name that holds what separates cells."""


class Fake:
    """Commands that print what a Slurm would, and remember what they were asked."""

    def __init__(self, printed: dict[str, str], text: dict[str, str]) -> None:
        self.printed, self.text = printed, text
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, *command: str, **_: object) -> str:
        as_json = "--json" in command
        self.asked.append((command[0], as_json))
        answer = (self.printed if as_json else self.text).get(command[0])
        if answer is None:
            raise LiveError(Fault(where=command[0], rule="failed with exit code 1"))
        return answer


def cells(rows: list[tuple[str, ...]]) -> str:
    return "".join("".join(f"{cell:<400}" for cell in row) + "\n" for row in rows)


def text_of_queue() -> str:
    rows = documents.queue_rows(squeue(new=False), NOW_S)
    spans = {"1": "5:00", "3_9": "5:00"}
    listed = [{**row, "TIME": spans.get(row["JOBID"], "0:00")} for row in rows if row["STATE"] != "COMPLETED"]
    return cells([tuple(row[column] for column in QUEUE.values()) for row in listed])


JSON = {"squeue": squeue(new=False), "sinfo": json.dumps(OLD_NODES), "sacct": json.dumps({"jobs": [SACCT]})}
LATER = {"squeue": squeue(new=True), "sinfo": json.dumps(NEW_NODES), "sacct": json.dumps({"jobs": [NEW_SACCT]})}
HEAD = "JobID\x1fUser\x1fPartition\x1fJobName\x1fState\x1fSubmit\x1fStart\x1fEnd\x1fTimelimit\x1fReqTRES\n"
TEXT = {"squeue": text_of_queue(), "sinfo": cells(TEXT_NODES), "sacct": HEAD + "\x1f".join(COLUMNS) + "\n" + "\x1f".join(ODD) + "\n"}


@pytest.mark.parametrize("partitions", [(), ("gpu",)])
def test_the_same_from_json_old_and_new_and_from_text(partitions: tuple[str, ...]) -> None:
    seen = []
    for version, printed in ((OLD, JSON), (NEW, LATER), ((20, 11), {})):
        ask = Fake(printed, TEXT)
        reading = SlurmReader(ask, partitions, True, "auto")
        names, cluster = reading.nodes(version)
        queue = reading.queue(version, names, lambda: NOW_S)
        events = reading.accounting(version, 0.0, long=False)
        assert {as_json for _, as_json in ask.asked} == {bool(printed)}
        jobs = zip(queue.jobs.job_id.tolist(), queue.jobs.gpus.tolist(), queue.running.tolist(), queue.executed_s.tolist(), strict=True)
        seen.append((names, cluster, list(jobs), queue.where.tolist(), queue.remaining_s.tolist(), events))
    assert seen[0] == seen[1] == seen[2]
    names, cluster, jobs, *_, events = seen[0]
    assert (names, cluster.gpus) == (["n1", "n10"], 8)
    assert ("1", 8.0, True, 300.0) in jobs
    assert len(jobs) == (9 if not partitions else 8)
    assert [(event.job, event.kind) for event in events] == [("12", "submit"), ("12", "start"), ("12", "end")]


def test_a_long_past_is_read_as_text() -> None:
    ask = Fake(JSON, TEXT)
    assert SlurmReader(ask, (), True, "auto").accounting(OLD, 0.0, long=True)
    assert ask.asked == [("sacct", False)]


@pytest.mark.parametrize("printed", ["", "[]", "{}", '{"jobs": 1}', '{"jobs": [{}]}', '{"jobs": [{"job_id": 1, "job_state": []}]}'])
def test_json_that_is_not_understood_is_said_once_and_text_read(printed: str, caplog: pytest.LogCaptureFixture) -> None:
    ask = Fake({"squeue": printed}, TEXT)
    reading = SlurmReader(ask, (), True, "auto")
    for _ in range(2):
        assert len(reading.queue(OLD, ["n1"], lambda: NOW_S).jobs) == 9
    assert sum("text is read instead" in record.message for record in caplog.records) == 1
    ask.printed["squeue"] = JSON["squeue"]
    ask.asked.clear()
    assert len(reading.queue(OLD, ["n1"], lambda: NOW_S).jobs) == 9
    assert ask.asked == [("squeue", True)], "half an answer is no reason to do without JSON for good"
    with pytest.raises(LiveError, match="output: text"):
        SlurmReader(Fake({"squeue": printed}, TEXT), (), True, "json").queue(OLD, ["n1"], lambda: NOW_S)


@pytest.mark.parametrize(
    ("complaint", "for_good"),
    [
        ("squeue: unrecognized option '--json' Try \"squeue --help\" for more information", True),
        ("squeue: error: cannot find serializer plugin for serializer/json squeue: fatal: JSON plugin load failure", True),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", False),
        ("", False),
    ],
)
def test_json_is_given_up_only_where_it_is_unknown(complaint: str, for_good: bool) -> None:
    class Refusing(Fake):
        def __call__(self, *command: str, **more: object) -> str:
            if "--json" not in command:
                return super().__call__(*command, **more)
            self.asked.append((command[0], True))
            raise LiveError(Fault(where="squeue --json", rule="failed with exit code 1", value=complaint))

    ask = Refusing({}, TEXT)
    reading = SlurmReader(ask, (), True, "auto")
    for _ in range(2):
        assert len(reading.queue(OLD, ["n1"], lambda: NOW_S).jobs) == 9
    assert ask.asked == [("squeue", True), ("squeue", False), *([] if for_good else [("squeue", True)]), ("squeue", False)]


def test_a_command_that_fails_both_ways_is_asked_for_json_again() -> None:
    ask = Fake({}, {})
    reading = SlurmReader(ask, (), True, "auto")
    for _ in range(2):
        with pytest.raises(LiveError):
            reading.nodes(OLD)
    assert ask.asked == [("sinfo", True), ("sinfo", False)] * 2
