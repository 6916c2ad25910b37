"""Launches on GPUs that others use too: leases, other tenants, and what is recorded of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from _gpus import STRANGER, process, write_gpus
from autoscout.common.gpus import FAKE, Gpu, GpuProcess, read_gpus
from autoscout.common.leases import PLACE, holder
from autoscout.core.launch import Launch, Resources, Tenant
from autoscout.execute._shared import tenants
from autoscout.execute.inline import InlineExecutor, InlineOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.executor import PATIENCE_S, finish, python, shell, wait_for

ONE = Resources(gpus=1)
SHOW = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


@pytest.fixture(autouse=True)
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    monkeypatch.setenv(PLACE, str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One free GPU."""
    path = write_gpus(tmp_path / "gpus.json", [])
    monkeypatch.setenv(FAKE, str(path))
    return path


@pytest.fixture(params=["local", "inline"])
def executor(request: pytest.FixtureRequest, gpus: Path, tmp_path: Path) -> Iterator[LocalExecutor | InlineExecutor]:
    if request.param == "local":
        with LocalExecutor(LocalOptions(folder=tmp_path, gpu_wait_s=0.3)) as made:
            yield made
    else:
        with InlineExecutor(InlineOptions(folder=tmp_path, gpu_wait_s=0.3)) as made:
            yield made


def test_a_launch_leases_its_gpu_while_it_runs(executor: LocalExecutor | InlineExecutor, leases: Path, tmp_path: Path) -> None:
    job = executor.submit(python(SHOW + "; import time; time.sleep(3600)", resources=ONE, outputs=("x",)))
    wait_for(lambda: leases.exists() and holder(leases, "GPU-fake-0"), "the GPU is leased")
    who = holder(leases, "GPU-fake-0")
    assert who is not None
    assert (who.pid, who.what) == (os.getpid(), f"study in {tmp_path}")
    job.cancel()
    completed = job.result(PATIENCE_S)
    assert completed.cancelled
    assert holder(leases, "GPU-fake-0") is None
    assert finish(executor, python(SHOW, resources=ONE)).stdout == "0\n"


def test_two_executors_take_turns(gpus: Path, tmp_path: Path) -> None:
    alone = f"mkdir {tmp_path}/inside && sleep 0.05 && rmdir {tmp_path}/inside"
    with LocalExecutor() as one, LocalExecutor() as other:
        jobs = [each.submit(shell(alone, resources=ONE)) for _ in range(3) for each in (one, other)]
        assert [job.result(PATIENCE_S).returncode for job in jobs] == [0] * 6


def test_cancelling_while_it_waits(gpus: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with LocalExecutor(LocalOptions(folder=tmp_path)) as one, LocalExecutor() as other:
        running = one.submit(shell("sleep 3600", resources=ONE))
        wait_for(lambda: holder(tmp_path / "leases", "GPU-fake-0"), "the GPU is leased")
        waiting = other.submit(shell("true", resources=ONE))
        wait_for(lambda: "waiting for" in caplog.text, "it says for whom it waits")
        assert f"waiting for GPU 0, held by pid {os.getpid()} (study in {tmp_path})" in caplog.text
        waiting.cancel()
        assert waiting.result(PATIENCE_S).cancelled
        running.cancel()
        assert running.result(PATIENCE_S).cancelled


OWNER = """
import sys, time
from autoscout.core.launch import Launch, Resources
from autoscout.execute.local import LocalExecutor
executor = LocalExecutor()
executor.submit(Launch(argv=("sh", "-c", "echo $$ > $0; sleep 3600", sys.argv[1]), resources=Resources(gpus=1)))
time.sleep(3600)
"""


def test_a_killed_study_frees_its_gpu_when_its_trial_is_gone(gpus: Path, leases: Path, tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path / "pid")])
    try:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the trial runs")
        trial = int((tmp_path / "pid").read_text())
        supervisor = int(Path(f"/proc/{trial}/stat").read_text().rpartition(")")[2].split()[1])
        locks = {str(path.readlink()) for path in Path(f"/proc/{trial}/fd").iterdir()}
        assert not any("gpu-" in lock for lock in locks), "the trial itself does not hold the lease"
        os.kill(supervisor, signal.SIGSTOP)
        owner.kill()
        owner.wait()
        assert holder(leases, "GPU-fake-0"), "the trial still runs: its supervisor holds the lease"
        os.kill(supervisor, signal.SIGCONT)
        wait_for(lambda: holder(leases, "GPU-fake-0") is None, "trial and lease are gone")
    finally:
        owner.kill()
        owner.wait()


def test_of_several_gpus_those_that_nobody_uses_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE, str(write_gpus(tmp_path / "gpus.json", [process()], [], [process(memory_gb=1.0, utilisation=0.9)], [])))
    with LocalExecutor(LocalOptions(gpu_wait_s=0.0)) as executor:
        assert finish(executor, python(SHOW, resources=Resources(gpus=2))).stdout == "1,3\n"
        assert finish(executor, python(SHOW, resources=ONE, env={"CUDA_VISIBLE_DEVICES": "GPU-fake-3"})).stdout == "GPU-fake-3\n"
        refused = finish(executor, python(SHOW, resources=ONE, env={"CUDA_VISIBLE_DEVICES": "0"}))
        assert "on GPU 0" in refused.error


def test_a_tenant_is_waited_for(gpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_gpus(gpus, [process()])
    with LocalExecutor(LocalOptions(gpu_wait_s=PATIENCE_S)) as executor:
        job = executor.submit(python(SHOW, resources=ONE))
        wait_for(lambda: "waiting for" in caplog.text, "it says for whom it waits")
        assert f"waiting for pid {STRANGER} (trainer) with 40 GB on GPU 0" in caplog.text
        write_gpus(gpus, [])
        completed = job.result(PATIENCE_S)
    assert (completed.returncode, completed.disturbed_by) == (0, ())
    assert completed.conditions["gpu_other_memory_gb"] == completed.conditions["gpu_other_share"] == 0.0
    assert caplog.text.count("waiting for") == 1


def test_a_tenant_that_stays_is_reported(executor: LocalExecutor | InlineExecutor, gpus: Path, leases: Path) -> None:
    write_gpus(gpus, [process(utilisation=0.7)])
    completed = finish(executor, python(SHOW, resources=ONE))
    assert completed.returncode is None
    assert completed.disturbed_by == (Tenant(pid=STRANGER, name="trainer", gpu="0", memory_gb=40.0),)
    assert completed.error == f"waited 0.3 s for GPUs that others use: pid {STRANGER} (trainer) with 40 GB on GPU 0"
    assert holder(leases, "GPU-fake-0") is None
    assert finish(executor, shell("true")).returncode == 0, "who needs no GPU waits for nobody"


def test_the_same_reason_for_waiting_is_not_said_by_every_launch(gpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_gpus(gpus, [process()])
    with LocalExecutor(LocalOptions(gpu_wait_s=0.0)) as executor:
        for _ in range(3):
            finish(executor, python(SHOW, resources=ONE))
        assert caplog.text.count("waiting for") == 1
        write_gpus(gpus, [process(pid=1)])
        finish(executor, python(SHOW, resources=ONE))
        assert caplog.text.count("waiting for") == 2, "somebody else"


def test_running_next_to_a_tenant_is_a_choice(gpus: Path) -> None:
    write_gpus(gpus, [process(utilisation=0.7)])
    with LocalExecutor(LocalOptions(gpu_wait_s=0.0, gpu_shared=True)) as executor:
        completed = finish(executor, python(SHOW, resources=ONE))
    assert completed.stdout == "0\n"
    assert [tenant.pid for tenant in completed.disturbed_by] == [STRANGER]
    seen = completed.conditions
    assert (seen["gpu_other_memory_gb"], seen["gpu_other_share"], seen["gpu_memory_before_gb"]) == (40.0, 0.7, 40.0)


def test_a_tenant_that_comes_later_is_seen(gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "LOOK_S", 0.01)
    with LocalExecutor() as executor:
        job = executor.submit(shell(f"touch {tmp_path}/on; while [ -e {tmp_path}/on ]; do sleep 0.01; done; exit 3", resources=ONE))
        wait_for((tmp_path / "on").exists, "it runs")
        write_gpus(gpus, [process()])
        wait_for(lambda: read_gpus()[0].processes, "somebody came")
        (tmp_path / "on").unlink()
        completed = job.result(PATIENCE_S)
    assert completed.returncode == 3
    assert [tenant.pid for tenant in completed.disturbed_by] == [STRANGER]


def test_a_call_on_a_gpu_waits_like_a_command(gpus: Path) -> None:
    with InlineExecutor() as executor:
        assert finish(executor, Launch(call=lambda: len(holder_of(gpus)), resources=ONE)).value == 1


def holder_of(gpus: Path) -> list[str]:
    who = holder(gpus.parent / "leases", "GPU-fake-0")
    return [] if who is None else [str(who)]


def test_leftover_memory_of_our_own_is_waited_for(gpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = json.dumps([{"used_gb": 30.0}])
    fill = f"from pathlib import Path; Path({str(gpus)!r}).write_text({full!r})"
    with LocalExecutor(LocalOptions(gpu_settle_s=0.3)) as executor:
        assert finish(executor, python(fill, resources=ONE)).returncode == 0
        assert "has not come back after 0.3 s" in caplog.text


# --- who counts as a tenant ------------------------------------------------------------------------------------------


def gpu(used_gb: float = 0.0, utilisation: float = 0.0, *inside: GpuProcess) -> Gpu:
    return Gpu(index="0", uuid="GPU-a", name="x", total_gb=100.0, free_gb=100.0 - used_gb, utilisation=utilisation, processes=inside)


def user(pid: int, memory_gb: float, utilisation: float | None = None, graphics: bool = False) -> GpuProcess:
    return GpuProcess(pid=pid, name="p", memory_gb=memory_gb, utilisation=utilisation, graphics=graphics)


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        (gpu(), []),
        (gpu(6.0, 0.0, user(7, 6.0)), [7]),
        (gpu(4.0, 0.0, user(7, 4.0)), []),
        (gpu(0.5, 0.9, user(7, 0.5)), [7]),
        (gpu(0.5, 0.9, user(7, 0.5, utilisation=0.1)), []),
        (gpu(0.5, 0.9), []),
        (gpu(2.0, 0.9), [0]),
        (gpu(30.0), [0]),
        (gpu(30.0, 0.9, user(5, 30.0)), []),
        (gpu(9.0, 0.0, user(7, 9.0, graphics=True)), []),
        (gpu(90.0, 0.0, user(7, 20.0), user(8, 40.0), user(5, 5.0)), [8, 0, 7]),
    ],
    ids=[
        "free",
        "memory",
        "little-memory",
        "load",
        "load-of-another",
        "fading-load",
        "hidden-load",
        "hidden-memory",
        "ours",
        "desktop",
        "several",
    ],
)
def test_who_takes_a_gpu(reading: Gpu, found: list[int]) -> None:
    assert [tenant.pid for tenant in tenants.tenants("0", reading, {5})] == found


def test_a_container_that_the_launch_started_through_a_daemon_is_not_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes that came with the launch and are gone with it; they are visible, but not below us.
    pids = [2**22 + 1, 2**22 + 2]
    readings = iter([(gpu(50.0, 1.0, user(pids[0], 50.0)),), (gpu(50.0, 1.0, user(pids[0], 50.0), user(os.getpid(), 1.0)),)])
    monkeypatch.setattr(tenants, "named", lambda gpus, found: {"0": found[0]})
    monkeypatch.setattr(Path, "exists", lambda path: True)
    for expected in ([], [pids[0]]):
        sample = next(readings)
        monkeypatch.setattr(tenants, "read_gpus", lambda sample=sample: sample)
        with tenants.Watch(["0"]) as watch:
            pass
        assert [tenant.pid for tenant in watch.disturbed_by()] == expected, "only where the launch had processes of its own there"


def powered(power_w: float | None, utilisation: float, energy_j: float | None = None) -> Gpu:
    return Gpu(index="0", uuid="GPU-x", name="x", total_gb=80.0, free_gb=80.0, utilisation=utilisation, power_w=power_w, energy_j=energy_j)


@pytest.mark.parametrize(
    ("first", "during", "found"),
    [
        # 80 W while it starts and 700 W under load; the counter of the hardware tells the joules
        (powered(80.0, 0.0, 1000.0), [powered(80.0, 0.0, 1100.0), powered(690.0, 0.9, 1700.0), powered(710.0, 1.0)], (700.0, 1500.0)),
        (powered(None, 0.0), [powered(None, 1.0), powered(None, 1.0)], None),
    ],
    ids=["counted", "not reported"],
)
def test_power_and_energy_of_a_launch(
    first: Gpu, during: list[Gpu], found: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = powered(90.0, 0.0, 2500.0) if found else powered(None, 0.0)
    seen: list[Gpu] = []

    def read() -> tuple[Gpu, ...]:
        seen.append(during[len(seen)] if len(seen) < len(during) else after)
        return (seen[-1],)

    monkeypatch.setattr(tenants, "read_gpus", read)
    monkeypatch.setattr(tenants, "LOOK_S", 0.0)
    monkeypatch.setattr(tenants, "EXPENSIVE_LOOK_S", 0.0)
    with tenants.Watch(["0"], (), {"0": first}) as watch:
        wait_for(lambda: len(seen) > len(during), "every reading")
    conditions = watch.conditions()
    if found is None:
        assert "gpu_power_w" not in conditions
    else:
        assert (conditions["gpu_power_w"], conditions["gpu_energy_j"]) == found


def test_without_a_counter_the_energy_is_power_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "read_gpus", lambda: (powered(500.0, 1.0),))
    with tenants.Watch(["0"]) as watch:
        pass
    conditions = watch.conditions()
    assert conditions["gpu_power_w"] == 500.0
    assert 0.0 <= conditions["gpu_energy_j"] < 500.0 * PATIENCE_S
