"""Who is on which GPU, from every source that can tell."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from _gpus import process, write_gpus
from autoscout.common import gpus
from autoscout.common.gpus import FAKE, GpuProcess


@pytest.fixture(autouse=True)
def forget_nvml() -> Any:
    gpus._nvml.cache_clear()
    yield
    gpus._nvml.cache_clear()


def test_gpus_that_the_environment_names_are_used_unchanged() -> None:
    assert gpus.present_gpus({"CUDA_VISIBLE_DEVICES": "2, GPU-8f3a"}) == ("2", "GPU-8f3a")
    assert gpus.present_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert gpus.present_gpus({"HIP_VISIBLE_DEVICES": "0,1"}) == ("0", "1")
    assert gpus.present_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == ()


def test_amd_gpus_are_nodes_with_compute_units(tmp_path: Path) -> None:
    for number, simds in enumerate((0, 440, 440)):
        node = tmp_path / str(number)
        node.mkdir()
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\nmem_banks_count 1\n")
    assert gpus._amd_count(tmp_path) == 2


def test_fake_gpus_lose_processes_that_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = 2**22 + 1  # above the largest process number of Linux
    monkeypatch.setenv(FAKE, str(write_gpus(tmp_path / "gpus.json", [process(), process(gone)], [])))
    first, second = gpus.read_gpus()
    assert (first.used_gb, first.processes[0].pid, second.free_gb) == (40.0, os.getppid(), 80.0)
    assert gpus.present_gpus({}) == ("0", "1")


def test_nvidia_smi_is_asked_where_nvml_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "--query-gpu=*) echo '0, GPU-aa, NVIDIA X, 81920, 40960, 75, 310.5'; echo '1, GPU-bb, NVIDIA X, [N/A], [N/A], [N/A], [N/A]';;\n"
        "*) echo 'GPU-aa, 77, /usr/bin/python3, 20480'; echo 'GPU-aa, [N/A], x, y';;\n"
        "esac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    first, second = gpus.read_gpus()
    assert (first.uuid, first.total_gb, first.free_gb, first.utilisation) == ("GPU-aa", 80.0, 40.0, 0.75)
    assert first.processes == (GpuProcess(pid=77, name="python3", memory_gb=20.0),)
    assert (second.index, second.total_gb, second.processes) == ("1", 0.0, ())
    assert (first.power_w, second.power_w) == (310.5, None)
    assert not gpus.reading_is_cheap()


def nvml(fails: bool = False) -> Any:
    """As much of pynvml as is used, with one GPU on which a desktop and a trainer run."""

    class NVMLError(Exception): ...

    class NVMLError_NotFound(NVMLError): ...  # noqa: N801, N818 - its own name

    def init() -> None:
        if fails:
            raise NVMLError("Driver Not Loaded")

    def memory(_handle: object, version: int = 1) -> Any:
        return types.SimpleNamespace(total=80 * 2**30, used=(11 if version == 2 else 12) * 2**30)

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotFound=NVMLError_NotFound,
        nvmlMemory_v2=2,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetUtilizationRates=lambda _: types.SimpleNamespace(gpu=50),
        nvmlDeviceGetUUID=lambda _: b"GPU-aa",
        nvmlDeviceGetName=lambda _: "NVIDIA X",
        nvmlDeviceGetProcessUtilization=lambda _handle, _since: [types.SimpleNamespace(pid=os.getppid(), smUtil=30)],
        nvmlDeviceGetGraphicsRunningProcesses=lambda _: [types.SimpleNamespace(pid=1, usedGpuMemory=2**30)],
        nvmlDeviceGetComputeRunningProcesses=lambda _: [types.SimpleNamespace(pid=os.getppid(), usedGpuMemory=10 * 2**30)],
    )


def test_nvml_tells_who_uses_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    (gpu,) = gpus.read_gpus()
    assert (gpu.uuid, gpu.used_gb, gpu.utilisation) == ("GPU-aa", 11.0, 0.5)
    assert {(each.pid, each.memory_gb, each.utilisation, each.graphics) for each in gpu.processes} == {
        (1, 1.0, 0.0, True),
        (os.getppid(), 10.0, 0.3, False),
    }
    assert gpus.reading_is_cheap()


def test_a_driver_that_is_not_loaded_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails=True))
    monkeypatch.setenv("PATH", "/nowhere")
    assert gpus.read_gpus() == ()


def test_a_gpu_is_found_by_index_and_by_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE, str(write_gpus(tmp_path / "gpus.json", [], [])))
    found = gpus.named(["1", "GPU-fake-0", "GPU-fake", "7", "MIG-x"], gpus.read_gpus())
    assert {name: gpu.index for name, gpu in found.items()} == {"1": "1", "GPU-fake-0": "0", "GPU-fake": "0"}
