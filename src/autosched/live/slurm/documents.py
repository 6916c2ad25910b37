"""What squeue, sinfo and sacct print as JSON, in the columns that they print as text.

Slurm 21.08 and 22.05 write plain numbers; later ones write `{"set": true, "infinite": false, "number": 5}` and lists of states, and sinfo
groups nodes that are alike. All are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Row = dict[str, str]
FIRST_VERSION = (21, 8)
"""The first Slurm whose commands print JSON."""
_NO_VALUE = 4_294_967_294  # what Slurm keeps where there is no value, and one more for infinite
_MOST_TASKS = 1_000_000


def read(text: str, key: str) -> list[Mapping[str, Any]]:
    """The records of a document below a key.

    Raises:
        ValueError: it is not such a document.
    """
    data = json.loads(text)
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError(f"there is no list {key!r}")
    return value


def queue_rows(text: str, now_s: float) -> list[Row]:
    """`squeue --json`: a row for every job, and for every task of an array."""
    rows = []
    for job in read(text, "jobs"):
        states = _words(job["job_state"])
        start_s = _number(job.get("start_time")) or 0.0
        limit = _number(job.get("time_limit"))
        began_s = _number(job.get("suspend_time")) or start_s  # a job that was stopped for a while continues from there
        row = {
            "USER": str(job.get("user_name") or ""),
            "PARTITION": str(job.get("partition") or ""),
            "STATE": "COMPLETING" if "COMPLETING" in states else states[0],
            "SUBMIT_TIME": _date(_number(job["submit_time"])),
            "START_TIME": _date(start_s),
            "ElapsedRaw": f"{max(0.0, now_s - began_s + (_number(job.get('pre_sus_time')) or 0.0)) if start_s else 0.0:.0f}",
            "TIME_LIMIT": _span(limit),
            "AllocTRES": str(job.get("tres_alloc_str") or job.get("tres_req_str") or ""),
            "NODES": f"{_number(job.get('node_count')) or 1:.0f}",
            "NODELIST": str(job.get("nodes") or ""),
        }
        rows += [{"JOBID": name, **row} for name in _names(job)]
    return rows


def node_rows(text: str) -> list[Row]:
    """`sinfo --json`: a row for every node in every partition."""
    try:
        nodes = read(text, "nodes")
    except ValueError:
        return _grouped_nodes(text)
    rows = []
    for node in nodes:
        row = {"NODELIST": str(node["name"]), "STATE": " ".join((*_words(node["state"]), *_words(node.get("state_flags") or [])))}
        rows += [{**row, "GRES": str(node.get("gres") or ""), "PARTITION": str(name)} for name in node.get("partitions") or []]
    return rows


def _grouped_nodes(text: str) -> list[Row]:
    """As `sinfo --json` prints them since 23.02."""
    return [
        {
            "NODELIST": str(name),
            "STATE": " ".join(_words(group["node"]["state"])),
            "GRES": str(group["gres"]["total"] or ""),
            "PARTITION": str(group["partition"]["name"]),
        }
        for group in read(text, "sinfo")
        for name in group["nodes"]["nodes"]
    ]


def accounting_rows(text: str) -> list[Row]:
    """`sacct --json`: a row for every attempt of every job, in the columns of `events.SACCT`."""
    rows = []
    for job in read(text, "jobs"):
        times, tres = job["time"], job.get("tres") or {}
        requested = tres.get("requested") or []
        named = [(f"{each['type']}/{each['name']}" if each.get("name") else str(each["type"]), each["count"]) for each in requested]
        association = job.get("association") or {}
        rows.append(
            {
                "JobID": _accounting_name(job),
                "User": str(job.get("user") or association.get("user") or ""),
                "Partition": str(job.get("partition") or ""),
                "JobName": str(job.get("name") or ""),
                "State": _words(job["state"]["current"])[0],
                "Submit": _date(_number(times["submission"])),
                "Start": _date(_number(times.get("start"))),
                "End": _date(_number(times.get("end"))),
                "Timelimit": _span(_number(times.get("limit"))),
                "ReqTRES": ",".join(f"{name}={_number(count) or 0:.0f}" for name, count in named),
            }
        )
    return rows


def _names(job: Mapping[str, Any]) -> Iterator[str]:
    """What squeue calls a job, `12`, a part of one, `12+1`, or the tasks of an array, `12_3`."""
    own, array, task = str(job["job_id"]), _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    waiting = str(job.get("array_task_string") or "")
    if array and task is not None:
        yield f"{array:.0f}_{task:.0f}"
    elif array and waiting:
        for number in _tasks(waiting):
            yield f"{array:.0f}_{number}"
    elif leader := _number(job.get("het_job_id")):
        yield f"{leader:.0f}+{_number(job.get('het_job_offset')) or 0:.0f}"
    else:
        yield own


def _accounting_name(job: Mapping[str, Any]) -> str:
    array, parts = job.get("array") or {}, job.get("het") or {}
    leader, task = _number(array.get("job_id")), _number(array.get("task_id"))
    if leader and task is not None:
        return f"{leader:.0f}_{task:.0f}"
    if leader and array.get("task"):
        return f"{leader:.0f}_[{array['task']}]"  # tasks that wait, as one row; each of them has its own once it starts
    if whole := _number(parts.get("job_id")):
        return f"{whole:.0f}+{_number(parts.get('job_offset')) or 0:.0f}"
    return str(job["job_id"])


def _tasks(text: str) -> Iterator[int]:
    """The tasks of `0-2,5,8-20:4%2`."""
    count = 0
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text.split("%")[0]):
        for number in range(int(first), int(last or first) + 1, max(1, int(step or 1))):
            count += 1
            if count > _MOST_TASKS:
                raise ValueError(f"an array of more than {_MOST_TASKS:,} tasks")
            yield number


def _number(value: Any) -> float | None:
    """A number as any version writes it; None where there is none."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return math.inf
        value = value.get("number") if value.get("set", True) else None
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    return None if number == _NO_VALUE else math.inf if number > _NO_VALUE else number


def _words(value: Any) -> list[str]:
    """States, one or several, in capitals."""
    return [str(each).upper() for each in (value if isinstance(value, list) else [value])]


def _date(moment_s: float | None) -> str:
    """As the commands print dates in UTC."""
    if not moment_s or not math.isfinite(moment_s):
        return "Unknown"
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _span(minutes: float | None) -> str:
    """A time limit, which Slurm counts in minutes."""
    if minutes is None or not math.isfinite(minutes):
        return "UNLIMITED"
    days, rest = divmod(int(minutes), 1_440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"
