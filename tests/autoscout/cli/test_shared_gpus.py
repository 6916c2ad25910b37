"""Whole studies on a machine with one GPU that others use too."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from _cli_program import PROGRAM, campaign
from _gpus import process, tenant, write_gpus
from autoscout.common.leases import Ticket, lease_folder
from autoscout.testing.executor import wait_for

# Fails as a GPU program does when it is not alone.
ALONE = """\
import os, sys, time
try:
    os.mkdir(sys.argv[3])
except FileExistsError:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB")
time.sleep(0.1)
os.rmdir(sys.argv[3])
assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
print("score", (int(sys.argv[1]) - 3) ** 2 + int(sys.argv[2]) + 1)
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("AUTOSCOUT_LEASES", str(tmp_path / "leases"))
    path = write_gpus(tmp_path / "gpus.json", [])
    monkeypatch.setenv("AUTOSCOUT_FAKE_GPUS", str(path))
    return path


def on_one_gpu(tmp_path: Path, **options: Any) -> Path:
    command = f"python3 {tmp_path / 'program.py'} {{x}} {{y}} {tmp_path / 'inside'}"
    return campaign(
        tmp_path,
        script=ALONE,
        workload={"command": command, "resources": {"gpus": 1}},
        budget={"trials": 4},
        finals={"rounds": 0},
        execute={"options": options},
    )


def tune(tmp_path: Path, path: Path, output: str) -> subprocess.Popen[str]:
    command = [*PROGRAM, "tune", str(path), "-o", output, "--json"]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def waiting_trials(tmp_path: Path, count: int) -> None:
    wait_for(lambda: len(list((tmp_path / "leases").glob("wait-*"))) == count, f"{count} trials wait for the GPU")


def statuses(tmp_path: Path, output: str) -> list[str]:
    path = tmp_path / output / "numbers" / "trials.jsonl"
    return [json.loads(line)["status"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.usefixtures("gpus")
def test_two_studies_share_one_gpu(tmp_path: Path) -> None:
    path = on_one_gpu(tmp_path, gpu_wait_s=60)
    lease = Ticket(1, {"0": "GPU-fake-0"}, "test", lease_folder()).take(lambda free: free)
    assert lease is not None
    started = [tune(tmp_path, path, output) for output in ("a", "b")]
    waiting_trials(tmp_path, 2)
    lease.release()  # only now, so that the two really compete
    ended = [program.communicate(timeout=240) for program in started]
    for program, (_, said) in zip(started, ended, strict=True):
        assert program.returncode == 0, said
    assert statuses(tmp_path, "a") == statuses(tmp_path, "b") == ["ok"] * 4
    assert any("waiting for GPU 0, held by pid" in said for _, said in ended), "who waits says for whom"


def test_a_tenant_is_waited_for(tmp_path: Path, gpus: Path) -> None:
    path = on_one_gpu(tmp_path, gpu_wait_s=120)
    with tenant() as other:
        write_gpus(gpus, [process(other.pid)])
        program = tune(tmp_path, path, "a")
        waiting_trials(tmp_path, 1)
    _, said = program.communicate(timeout=240)
    assert program.returncode == 0, said
    assert statuses(tmp_path, "a") == ["ok"] * 4
    assert f"waiting for pid {other.pid} (trainer) with 40 GB on GPU 0" in said


def test_a_tenant_that_stays_is_named_and_nothing_is_blamed_or_lost(tmp_path: Path, gpus: Path) -> None:
    path = on_one_gpu(tmp_path, gpu_wait_s=1)
    write_gpus(gpus, [process(os.getpid())])
    program = tune(tmp_path, path, "a")
    told, said = program.communicate(timeout=240)
    assert program.returncode == 2, said
    (fault,) = json.loads(told)["faults"]
    assert f"pid {os.getpid()} (trainer) with 40 GB on GPU 0" in fault["rule"]
    assert "gpu_wait_s" in fault["fix"]
    assert "Traceback" not in said
    assert statuses(tmp_path, "a") == []
    write_gpus(gpus, [])
    program = tune(tmp_path, path, "a")
    _, said = program.communicate(timeout=240)
    assert program.returncode == 0, said
    assert statuses(tmp_path, "a") == ["ok"] * 4


# Does as ALONE; the second run lets somebody else onto the GPU, and fails or works, as told.
ARRIVAL = """
from pathlib import Path
count = Path(sys.argv[3]).with_name("count")
count.write_text(count.read_text() + "x" if count.exists() else "x")
if count.stat().st_size == 2:
    Path({gpus!r}).write_text({arrival!r})
    sys.exit({ends!r})
"""


def let_in(tmp_path: Path, gpus: Path, ends: str | None) -> None:
    """Have the second run of the program let this process onto the GPU."""
    arrival = json.dumps([{"processes": [process(os.getpid())]}])
    (tmp_path / "program.py").write_text(ALONE + ARRIVAL.format(gpus=str(gpus), arrival=arrival, ends=ends))


def test_what_was_measured_before_a_tenant_came_is_kept(tmp_path: Path, gpus: Path) -> None:
    path = on_one_gpu(tmp_path, gpu_wait_s=0.5)
    let_in(tmp_path, gpus, ends=None)
    program = tune(tmp_path, path, "a")
    told, said = program.communicate(timeout=240)
    assert program.returncode == 2, said
    assert "trainer" in told
    assert statuses(tmp_path, "a") == ["ok"] * 2
    write_gpus(gpus, [])
    program = tune(tmp_path, path, "a")
    _, said = program.communicate(timeout=240)
    assert program.returncode == 0, said
    assert statuses(tmp_path, "a") == ["ok"] * 4


def test_a_failure_next_to_a_tenant_is_repeated_and_not_stored(tmp_path: Path, gpus: Path) -> None:
    path = on_one_gpu(tmp_path, gpu_wait_s=240)
    path.write_text(path.read_text().replace("dirty_repeats: 0", "dirty_repeats: 2"))
    let_in(tmp_path, gpus, ends="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB")
    program = tune(tmp_path, path, "a")
    wait_for(lambda: (tmp_path / "count").exists() and (tmp_path / "count").read_text() == "xx", "somebody came, and it failed")
    waiting_trials(tmp_path, 1)  # its repetition
    write_gpus(gpus, [])
    _, said = program.communicate(timeout=240)
    assert program.returncode == 0, said
    assert statuses(tmp_path, "a") == ["ok"] * 4


def test_doctor_names_tenants_and_leases(tmp_path: Path, gpus: Path) -> None:
    write_gpus(gpus, [process()], [])
    folder = lease_folder()
    lease = Ticket(1, {"1": "GPU-fake-1"}, "study x", folder).take(lambda free: free)
    assert lease is not None
    answer = subprocess.run([*PROGRAM, "doctor", "--json"], capture_output=True, text=True, timeout=120, check=True)
    first, second = json.loads(answer.stdout)["gpus"]
    assert (first["processes"][0]["name"], first["leased_by"]) == ("trainer", "")
    assert second["leased_by"] == f"pid {os.getpid()} (study x)"
    shown = subprocess.run([*PROGRAM, "doctor"], capture_output=True, text=True, timeout=120, check=True).stdout
    lease.release()
    assert "GPU 0: fake, 40 of 80 GB free" in shown
    assert "leased by pid" in shown
