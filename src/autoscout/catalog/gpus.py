"""GPUs and clusters: nominal rates from `data/gpus.yaml`, extended by a user's own file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.document import load
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault

MOST_GPUS = 1_000_000  # of one kind in a cluster: ten times the largest there is
MOST_RATE = 1e12  # of any number that describes a GPU

PRECISIONS = {
    "fp32": "fp32",
    "float32": "fp32",
    "tf32": "fp32",
    "fp16": "bf16",
    "bf16": "bf16",
    "float16": "bf16",
    "bfloat16": "bf16",
    "amp_bf16": "bf16",
    "fp8": "fp8",
    "float8": "fp8",
    "mxfp8": "fp8",
    "amp_fp8": "fp8",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """One kind of GPU in its usual surroundings.

    The shares (`gemm`, `memory`, `bus`) say how much of the nominal rate large kernels and collectives reach.
    """

    name: str
    bf16_tflops: float
    memory_gb: float
    memory_gbps: float
    fp8_tflops: float = 0.0
    fp4_tflops: float = 0.0
    multiprocessors: float = 108
    scaleup_gbps: float = 32
    node_gpus: int = 8
    nic_gbps: float = 12.5
    gemm: float = 0.7
    memory: float = 0.75
    bus: float = 0.7
    latency_us: float = 18.0
    measured: str = ""

    @property
    def memory_bytes(self) -> float:
        """What a program can see: makers' gigabytes are binary ones, of which the driver keeps about a hundredth."""
        return self.memory_gb * 2**30 * 0.99

    def flops(self, precision: str) -> float:
        """Dense peak in FLOP/s; a precision the GPU lacks runs at the next wider one."""
        kind = PRECISIONS.get(precision.lower(), "bf16")
        # fp32: tensor cores take it as TF32, at half the rate; without them it is slower still, and the catalog does not say how much
        half = self.bf16_tflops / 2
        rates = {"fp4": self.fp4_tflops or self.fp8_tflops, "fp8": self.fp8_tflops, "bf16": self.bf16_tflops, "fp32": half}
        return (rates[kind] or self.bf16_tflops) * 1e12


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Some GPUs, perhaps of several kinds, in nodes with a network between them.

    `groups` pairs each kind with how many there are, each kind once; the order is the order in which ranks are placed.
    """

    groups: tuple[tuple[GpuKind, int], ...]
    node_gpus: int = 0  # 0 = usual size for the first kind
    nic_gbps: float = 0.0  # per GPU and direction; 0 = usual for the slowest kind
    scaleup_gbps: float = 0.0

    @property
    def gpus(self) -> int:
        return sum(count for _, count in self.groups)

    @property
    def is_mixed(self) -> bool:
        return len(self.groups) > 1

    @property
    def speeds(self) -> tuple[float, ...]:
        """How fast each kind multiplies large matrices, of what the first does.

        >>> [round(speed, 2) for speed in cluster("8xA100-80+4xA40").speeds]
        [1.0, 0.45]
        """
        rates = [gpu.bf16_tflops * gpu.gemm for gpu, _ in self.groups]
        return tuple(rate / rates[0] for rate in rates)

    @property
    def knobs(self) -> tuple[str, ...]:
        """What knobs call each kind: `a100`, or in full (`a100_80`) where two kinds would share the short name.

        >>> cluster("8xA100-80+4xA40").knobs, cluster("8xA100-80+8xA100-40").knobs
        (('a100', 'a40'), ('a100_80', 'a100_40'))
        """
        short = [short_name(gpu.name) for gpu, _ in self.groups]
        full = [long_name(gpu.name) for gpu, _ in self.groups]
        return tuple(name if short.count(name) == 1 else other for name, other in zip(short, full, strict=True))


def short_name(kind: str) -> str:
    """A kind of GPU without its variant.

    >>> short_name("A100-80")
    'a100'
    """
    return long_name(kind).partition("_")[0]


def long_name(kind: str) -> str:
    """A kind of GPU as part of a knob's name."""
    return re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")


@cache
def kinds() -> tuple[str, ...]:
    """The GPUs that the catalog knows, by name."""
    return tuple(_document()["gpus"])


def gpu(name: str, path: str | Path | None = None) -> GpuKind:
    """The GPU of that name (case, dashes and blanks do not matter), a user's file at `path` first."""
    by_alias = _by_alias(str(path) if path else "")
    match = by_alias.get(_plain(name))
    if match is None:
        fix = f"{suggestion(name, sorted({entry.name for entry in by_alias.values()}), listed=100)}; others go into a hardware file"
        raise ConfigError(Fault(where="gpu", value=repr(name), rule="unknown GPU", fix=fix))
    return match


def cluster(text: str, path: str | Path | None = None, *, node_gpus: int = 0, nic_gbps: float = 0.0, scaleup_gbps: float = 0.0) -> Cluster:
    """Read `8xA100-80`, or `8xA100-80+4xA40` for a mixed one.

    >>> cluster("8xA100-80+4xA40").gpus
    12
    """
    counts: dict[GpuKind, int] = {}
    faults: list[Fault] = []
    for part in text.split("+"):
        match = re.fullmatch(r"\s*(\d+)\s*[x×*]\s*(.+?)\s*", part)
        if match and (len(match[1]) > len(str(MOST_GPUS)) or int(match[1]) > MOST_GPUS):
            faults.append(Fault(where="gpus", value=repr(part), rule=f"a cluster has at most {MOST_GPUS:,} GPUs of a kind"))
            continue
        if not match or int(match[1]) < 1:
            faults.append(Fault(where="gpus", value=repr(part), rule="a cluster reads COUNTxGPU, joined by +", fix="Example: 8xA100-80"))
            continue
        try:
            kind = gpu(match[2], path)
            counts[kind] = counts.get(kind, 0) + int(match[1])
        except ConfigError as error:
            faults.extend(error.faults)
    if faults:
        raise ConfigError(faults)
    return Cluster(groups=tuple(counts.items()), node_gpus=node_gpus, nic_gbps=nic_gbps, scaleup_gbps=scaleup_gbps)


def gpu_fields(gpu: GpuKind, cluster: Cluster | None = None, precision: str = "bf16") -> dict[str, float]:
    """Rates of a GPU for either simulator, in FLOP/s, bytes and bytes/s; what the cluster states replaces the usual value."""
    nic_gbps = (cluster.nic_gbps if cluster else 0.0) or gpu.nic_gbps
    scaleup_gbps = (cluster.scaleup_gbps if cluster else 0.0) or gpu.scaleup_gbps
    return {
        "gemm_flops": gpu.flops(precision),
        "flops": gpu.flops("bf16"),
        "gemm_share": gpu.gemm,
        "memory_rate": gpu.memory_gbps * 1e9 * gpu.memory,
        "memory_bytes": gpu.memory_bytes,
        "node_gpus": float((cluster.node_gpus if cluster else 0) or gpu.node_gpus),
        "bus_rate": scaleup_gbps * 1e9 * gpu.bus,
        "nic_rate": nic_gbps * 1e9,
    }


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("nvidia", ""))


@cache
def _document() -> dict[str, Any]:
    text = files("autoscout.catalog").joinpath("data/gpus.yaml").read_text()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@cache
def _by_alias(path: str) -> dict[str, GpuKind]:
    by_alias: dict[str, GpuKind] = {}
    _add(by_alias, _document()["gpus"], "data/gpus.yaml")
    if path:
        try:
            extra = load(Path(path)).value
        except ConfigError as error:
            raise ConfigError([replace(fault, rule=f"the hardware file: {fault.rule}") for fault in error.faults]) from error
        entries = extra.get("gpus", {}) if isinstance(extra, Mapping) else None
        if not isinstance(entries, Mapping):
            raise ConfigError(
                Fault(where=path, field="gpus", rule="a hardware file maps names of GPUs to their rates", fix="Write gpus: {NAME: {...}}")
            )
        _add(by_alias, entries, path)
    return by_alias


def _add(by_alias: dict[str, GpuKind], entries: Mapping[Any, Any], where: str) -> None:
    allowed = {item.name for item in fields(GpuKind)} - {"name"}
    faults: list[Fault] = []
    for written, entry in entries.items():
        name = str(written)
        if not isinstance(entry, Mapping) or not isinstance(entry.get("aliases", []), list):
            faults.append(
                Fault(where=where, field=f"gpus.{name}", value=repr(entry), rule="must map fields to numbers, and aliases to a list")
            )
            continue
        values = {key: value for key, value in entry.items() if key != "aliases"}
        faults += [
            Fault(where=where, field=f"gpus.{name}.{key}", rule=f"unknown field; there are: {', '.join(sorted(allowed))}, aliases")
            for key in sorted(map(str, values.keys() - allowed))
        ]
        missing = {"bf16_tflops", "memory_gb", "memory_gbps"} - values.keys()
        faults += [Fault(where=where, field=f"gpus.{name}.{key}", rule="this field is needed") for key in sorted(missing)]
        bad = [
            key
            for key, value in values.items()
            if key != "measured" and not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_RATE)
        ]
        if not isinstance(values.get("measured", ""), str):
            rule = "says in words what was measured"
            faults.append(Fault(where=where, field=f"gpus.{name}.measured", value=repr(values["measured"])[:80], rule=rule))
        faults += [
            Fault(where=where, field=f"gpus.{name}.{key}", value=repr(values[key]), rule=f"must be a positive number up to {MOST_RATE:g}")
            for key in bad
        ]
        if not faults:
            gpu = GpuKind(name=name, **values)
            for alias in (name, *map(str, entry.get("aliases", ()))):
                by_alias[_plain(alias)] = gpu
    if faults:
        raise ConfigError(faults)


__all__ = ["PRECISIONS", "Cluster", "GpuKind", "cluster", "gpu", "gpu_fields", "kinds", "long_name", "short_name"]
