"""GPUs of this machine and who is on them, asked from the vendor's own tools; finding none is not an error."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autoscout.common import processes
from autoscout.core.log import logger

VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
FAKE = "AUTOSCOUT_FAKE_GPUS"
"""For tests only: a JSON file that describes the GPUs and their processes; see `_fake`."""

_TIMEOUT_S = 30.0
_GIB = 1024.0**3

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    name: str
    memory_gb: float
    utilisation: float | None = None  # share of the GPU's time, 0 to 1; None where the driver does not say
    graphics: bool = False  # draws a desktop: no tenant to wait for


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at one moment."""

    index: str
    uuid: str
    name: str
    total_gb: float
    free_gb: float
    utilisation: float  # share of the last moment in which anything ran on it, 0 to 1
    processes: tuple[GpuProcess, ...] = ()
    power_w: float | None = None  # None where the hardware does not report it
    energy_j: float | None = None  # since the driver was loaded; likewise

    @property
    def used_gb(self) -> float:
        return self.total_gb - self.free_gb


def read_gpus() -> tuple[Gpu, ...]:
    """All GPUs whose memory and load can be read: through NVML where `pynvml` is installed, else from `nvidia-smi`."""
    if fake := os.environ.get(FAKE):
        return _fake(Path(fake))
    nvml = _nvml()
    return _smi() if nvml is None else _by_nvml(nvml)


def reading_is_cheap() -> bool:
    """Whether `read_gpus` takes milliseconds; `nvidia-smi` is a program of its own and takes up to a second."""
    return FAKE in os.environ or _nvml() is not None


def named(gpus: Sequence[str], readings: Sequence[Gpu]) -> dict[str, Gpu]:
    """The reading of each GPU as `CUDA_VISIBLE_DEVICES` names it: by index, or by uuid or the beginning of one."""
    by_name: dict[str, Gpu] = {}
    for gpu in gpus:
        for reading in readings:
            if gpu == reading.index or (not gpu.isdigit() and reading.uuid.startswith(gpu)):
                by_name[gpu] = reading
                break
    return by_name


def present_gpus(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Identifiers of the GPUs this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    A list that a scheduler or the user already set there is used unchanged.
    """
    environment = os.environ if environment is None else environment
    for name in VISIBLE_GPUS:
        if name in environment:
            listed = [part.strip() for part in environment[name].split(",")]
            return tuple(part for part in listed if part and part not in ("-1", "NoDevFiles"))
    return tuple(gpu.index for gpu in read_gpus()) or tuple(str(number) for number in range(_amd_count()))


def gpu_environment(gpus: Sequence[str]) -> dict[str, str]:
    """The environment in which a program sees exactly these GPUs."""
    listed = ",".join(gpus)
    # nvidia-smi counts by bus, CUDA by speed unless told otherwise
    return {"CUDA_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": listed, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _fake(path: Path) -> tuple[Gpu, ...]:
    """GPUs from a file: `[{"total_gb": 80, "processes": [{"pid": 12, "name": "x", "memory_gb": 30, "utilisation": 0.5}]}]`.

    A process leaves the GPU when it ends.
    """
    gpus: list[Gpu] = []
    for number, data in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        inside = [GpuProcess(**process) for process in data.get("processes", ())]
        alive = set(processes.running([process.pid for process in inside]))
        there = tuple(process for process in inside if process.pid in alive)
        total_gb = float(data.get("total_gb", 80.0))
        gpus.append(
            Gpu(
                index=str(number),
                uuid=str(data.get("uuid", f"GPU-fake-{number}")),
                name="fake",
                total_gb=total_gb,
                free_gb=total_gb - float(data.get("used_gb", sum(process.memory_gb for process in there))),
                utilisation=min(1.0, float(data.get("utilisation", sum(process.utilisation or 0.0 for process in there)))),
                processes=there,
                power_w=data.get("power_w"),
                energy_j=data.get("energy_j"),
            )
        )
    return tuple(gpus)


@cache
def _nvml() -> Any | None:
    """The library, started once; None where it or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # its errors have no class before it is loaded
        log.debug("NVML cannot be used: %s", error)
        return None
    return pynvml


def _by_nvml(nvml: Any) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    with contextlib.suppress(nvml.NVMLError):  # a GPU that fell off the bus hides those after it, as in nvidia-smi
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)  # without what the driver reserves
            except (nvml.NVMLError, AttributeError, TypeError):
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            busy = 0.0
            with contextlib.suppress(nvml.NVMLError):
                busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            total_gb = memory.total / _GIB
            gpus.append(
                Gpu(
                    index=str(number),
                    uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                    name=_text(nvml.nvmlDeviceGetName(handle)),
                    total_gb=total_gb,
                    free_gb=total_gb - memory.used / _GIB,
                    utilisation=busy,
                    processes=_nvml_processes(nvml, handle),
                    power_w=_thousandth(nvml, "nvmlDeviceGetPowerUsage", handle),
                    energy_j=_thousandth(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle),
                )
            )
    return tuple(gpus)


def _thousandth(nvml: Any, question: str, handle: Any) -> float | None:
    """Watts or joules of an answer in milliwatts or millijoules; None where there is none."""
    try:
        return float(getattr(nvml, question)(handle)) / 1000
    except (nvml.NVMLError, AttributeError):
        return None


def _nvml_processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    shares: dict[int, float] = {}
    has_shares = False
    try:
        since_us = int((time.time() - 2.0) * 1e6)
        for sample in nvml.nvmlDeviceGetProcessUtilization(handle, since_us):
            shares[sample.pid] = max(sample.smUtil / 100, shares.get(sample.pid, 0.0))
        has_shares = True
    except nvml.NVMLError_NotFound:
        has_shares = True  # nobody ran anything
    except nvml.NVMLError:
        pass
    by_pid: dict[int, GpuProcess] = {}
    for graphics, ask in ((True, nvml.nvmlDeviceGetGraphicsRunningProcesses), (False, nvml.nvmlDeviceGetComputeRunningProcesses)):
        with contextlib.suppress(nvml.NVMLError):
            for process in ask(handle):
                pid = int(process.pid)
                memory_gb = (process.usedGpuMemory or 0) / _GIB
                share = shares.get(pid, 0.0) if has_shares else None
                by_pid[pid] = GpuProcess(pid=pid, name=_name(pid), memory_gb=memory_gb, utilisation=share, graphics=graphics)
    return tuple(by_pid.values())


def _smi() -> tuple[Gpu, ...]:
    tenants: dict[str, list[GpuProcess]] = {}
    for uuid, pid, name, memory in _rows("compute-apps", "gpu_uuid,pid,process_name,used_memory"):
        if pid.isdigit():
            tenants.setdefault(uuid, []).append(
                GpuProcess(pid=int(pid), name=Path(name).name or _name(int(pid)), memory_gb=_number(memory) / 1024)
            )
    return tuple(
        Gpu(
            index=index,
            uuid=uuid,
            name=name,
            total_gb=_number(total) / 1024,
            free_gb=(_number(total) - _number(used)) / 1024,
            utilisation=_number(busy) / 100,
            processes=tuple(tenants.get(uuid, ())),
            power_w=_number(power) or None,
        )
        for index, uuid, name, total, used, busy, power in _rows(
            "gpu", "index,uuid,name,memory.total,memory.used,utilization.gpu,power.draw"
        )
    )


def _rows(what: str, fields: str) -> list[list[str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()] if answer.returncode == 0 else []
    return [row for row in rows if len(row) == fields.count(",") + 1]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # "[N/A]" on systems whose memory is shared with the CPU


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "not visible from here"


def _amd_count(nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> int:
    count = 0
    for properties in nodes.glob("*/properties"):
        try:
            text = properties.read_text()
        except OSError:
            continue
        simds = [line.split()[1] for line in text.splitlines() if line.startswith("simd_count ")]
        count += bool(simds and simds[0] != "0")  # a node without compute units is a CPU
    return count
