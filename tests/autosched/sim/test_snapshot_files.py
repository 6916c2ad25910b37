"""Snapshots as files, and clusters as Slurm sees them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_session import CLUSTERS, SCHEDULERS, draw_trace, ends

from autosched.schedulers.fifo import FIFO
from autosched.sim import snapshot_file
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.session import Session
from autosched.sim.snapshot_file import read_snapshot, write_snapshot
from autosched.traces.slurm_queue import node_names, read_queue
from autosched.traces.slurm_text import gpus_of, seconds_of
from autoscout.core.errors import ConfigError


@pytest.mark.parametrize("name", ["fifo", "srtf", "tiresias gittins", "themis spreading", "slurm by fair share", "lucid that pauses"])
def test_a_file_keeps_everything(name: str, tmp_path: Path) -> None:
    trace, cluster, scheduler = draw_trace(21, CLUSTERS[2].vcs), CLUSTERS[2], SCHEDULERS[name]
    session = Session(trace, cluster, scheduler)
    session.step(2_345.6)
    write_snapshot(session.snapshot(), tmp_path / "s.npz")
    again = Session(trace.between(2_345.6, np.inf), cluster, scheduler, snapshot=read_snapshot(tmp_path / "s.npz"))
    session.step()
    again.step()
    later = ends(again.result())
    assert len(later) > 20
    assert later.items() <= ends(session.result()).items()


def _first(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        table, _, column = name.partition("/")
        (arrays[table][column] if column else arrays[table])[0] = value

    return change


def _shorter(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name][:-1]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_first("part0.job/remaining_s", np.nan), "part: job.remaining_s: must be numbers"),
        (_first("part0.job/status", 7.0), "job.status"),
        (_first("part0.job/rate", 0.0), "job.rate: must be above zero"),
        (_first("part0.active", 10_000), "active: must be numbers of jobs"),
        (_first("part0.rows", -1), "rows: must be numbers of jobs"),
        (_first("part0.node/free", 99.0), "node.free: does not go with who holds which GPUs"),
        (_first("part0.cluster/present", 10_000), "cluster.present"),
        (_first("remaining_s", np.inf), "remaining_s: must be numbers that are not negative"),
        (_first("gpus", -1.0), "a job must want GPUs"),
        (_shorter("part0.job"), "must have"),
        (_shorter("executed_s"), "executed_s: must have"),
        (_shorter("part0.recent"), "recent: must have 1024 values"),
        (lambda arrays: arrays.pop("part0.memory"), "KeyError"),
        (lambda arrays: arrays.update(about=np.asarray(json.dumps({"format": "other"}))), "must be autoscout snapshot"),
    ],
)
def test_files_that_cannot_be(change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path) -> None:
    session = Session(draw_trace(22), CLUSTERS[0], SCHEDULERS["tiresias"])
    session.step(2_000.0)
    path = tmp_path / "s.npz"
    write_snapshot(session.snapshot(), path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(ConfigError, match=words) as caught:
        read_snapshot(path)
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"job_id,submit_time\n", b"\x93NUMPY\x01\x00"])
def test_files_that_are_no_snapshot(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "s.npz").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as a snapshot"):
        read_snapshot(tmp_path / "s.npz")


def test_a_file_that_says_it_is_encrypted(tmp_path: Path) -> None:
    _archive(tmp_path / "s.npz", "{}", _header((0,)))
    data = bytearray((tmp_path / "s.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # a bit in the table of contents
    (tmp_path / "s.npz").write_bytes(data)
    with pytest.raises(ConfigError, match="cannot be read as a snapshot"):
        read_snapshot(tmp_path / "s.npz")


def _archive(path: Path, about: str, header: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with io.BytesIO() as text:
            np.lib.format.write_array(text, np.asarray(about))
            archive.writestr("about.npy", text.getvalue())
        archive.writestr("gpus.npy", header)


def _header(shape: tuple[int, ...]) -> bytes:
    with io.BytesIO() as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        return file.getvalue()


@pytest.mark.parametrize(
    ("about", "data", "words"),
    [
        ("[" * 200_000, _header((0,)), "cannot be read as a snapshot: RecursionError"),
        ("{}", _header((100_000_000_000_000,)), "says that it has 100,000,000,000,000 entries"),
        ("{}", _header((2**18,)) + bytes(2**21), "holds at most 1 MiB"),
    ],
    ids=["deep", "promise", "zeros"],
)
def test_files_that_would_take_the_machine_with_them(
    about: str, data: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_file, "MOST_BYTES", 2**20)
    _archive(tmp_path / "s.npz", about, data)
    with pytest.raises(ConfigError, match=words):
        read_snapshot(tmp_path / "s.npz")


SQUEUE = """\
JOBID|USER|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|TRES_PER_NODE|NODES|NODELIST
7|ann|gpu|RUNNING|2024-01-01T00:00:00|2024-01-01T00:10:00|50:00|2:00:00|gres/gpu:a100:4|2|n[01-02]
8|bob|gpu|PENDING|2024-01-01T00:20:00|N/A|0:00|1-00:00:00|gres/gpu:1|1|
9|bob|gpu|RUNNING|2024-01-01T00:30:00|2024-01-01T00:30:00|30:00|UNLIMITED|gres/gpu:2|1|n03
10|eve|cpu|RUNNING|2024-01-01T00:30:00|2024-01-01T00:30:00|30:00|UNLIMITED|N/A|1|n03
11|eve|gpu|COMPLETED|2024-01-01T00:30:00|2024-01-01T00:30:00|30:00|UNLIMITED|gres/gpu:1|1|n03
"""
NOON = 1_704_070_800.0  # 2024-01-01T01:00 UTC


def test_squeue(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(SQUEUE)
    snapshot = read_queue(tmp_path / "q.txt", NOON, nodes=["n01", "n02", "n03"])
    assert list(snapshot.jobs.job_id) == ["7", "8", "9"]
    assert list(snapshot.jobs.gpus) == [8, 1, 2]
    assert list(snapshot.jobs.kind.texts()) == ["a100", "", ""]
    assert list(snapshot.running) == [True, False, True]
    assert list(snapshot.executed_s) == [3_000, 0, 1_800]
    assert list(snapshot.remaining_s) == [4_200, 86_400, 3_600]
    assert snapshot.where.tolist() == [[0, 0, 4], [0, 1, 4], [2, 2, 2]]
    result = simulate(snapshot.jobs.take(np.empty(0, np.int64)), Cluster.parse("3x4@a100"), FIFO(), Run(snapshot=snapshot))
    assert (result.end_s - NOON).tolist() == [4_200, 86_400, 3_600]
    assert result.nodes.tolist() == [2, 1, 1]


def test_sacct_of_jobs_that_run(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "JobID|User|Partition|Submit|State|ElapsedRaw|Timelimit|AllocTRES|NodeList\n"
        "1|a|gpu|2024-01-01T00:00:00|RUNNING|600|01:00:00|cpu=1,gres/gpu=2,gres/gpu:t4=2|n1\n"
        "1.batch|a|gpu|2024-01-01T00:00:00|RUNNING|600||cpu=1,gres/gpu=2|n1\n"
        "2|a|gpu|2024-01-01T00:00:00|COMPLETED|600|01:00:00|cpu=1,gres/gpu=2|n1\n"
    )
    snapshot = read_queue(tmp_path / "a.txt", NOON)
    assert list(snapshot.jobs.job_id) == ["1"]
    assert list(snapshot.remaining_s) == [3_000]
    assert len(snapshot.where) == 0


def test_queues_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(SQUEUE)
    with pytest.raises(ConfigError, match="3 jobs were submitted after"):
        read_queue(tmp_path / "q.txt", NOON - 7_200)
    (tmp_path / "q.txt").write_text("JOBID|STATE|SUBMIT_TIME\n1|RUNNING|2024-01-01T00:00:00\n")
    with pytest.raises(ConfigError, match="TRES_PER_NODE"):
        read_queue(tmp_path / "q.txt", NOON)


def test_words_of_slurm() -> None:
    assert node_names("gpu[01-03,7]-ib,login") == ["gpu01-ib", "gpu02-ib", "gpu03-ib", "gpu7-ib", "login"]
    assert gpus_of("cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=1G") == (4, "a100")
    assert gpus_of("gres/gpu:3090:2") == (2, "3090")
    assert gpus_of("gres/gpu:a100=2,gres/gpu:t4=1,gres/gpu=3") == (3, "")
    assert gpus_of("cpu=8,mem=4G") == (0, "")
    assert list(seconds_of(["1-02", "1-02:03", "1-02:03:04", "2:03:04", "3:04", "5"])) == [93_600, 93_780, 93_784, 7_384, 184, 300]
    assert np.isnan(seconds_of(["UNLIMITED", "Partition_Limit", ""])).all()
