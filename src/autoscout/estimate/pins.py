"""What a person gives `estimate`: the system by name, and knobs that stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscout.catalog.gpus import Cluster
from autoscout.catalog.training_knobs import HARDWARE_KNOBS, SHARE
from autoscout.catalog.training_knobs import KNOBS as TRAINING_KNOBS
from autoscout.common.text import nearest, suggestion
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators.serving.job import NARROW, WEIGHT_ONLY, precision_named
from autoscout.simulators.serving.read import KNOBS as SERVING_KNOBS
from autoscout.simulators.training.calibration import STACKS

SERVING_SYSTEMS = ("vllm", "sglang", "trtllm", "tensorrt-llm")
TRAINING_SYSTEMS = (*STACKS, "default")
SERVING_NAMES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "max_requests": "max_num_seqs",
    "max_step_tokens": "max_num_batched_tokens",
}
MOST_SHARE = 100.0
_COUNTS = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "micro_batch", "max_requests", "max_step_tokens")


def read_system(name: str) -> str:
    """The system as calibrations know it.

    >>> read_system("Megatron_LM")
    'megatron-lm'
    """
    system = name.lower().replace("_", "-")
    if system in SERVING_SYSTEMS or system in TRAINING_SYSTEMS:
        return system
    training, serving = ", ".join(TRAINING_SYSTEMS), ", ".join(SERVING_SYSTEMS)
    rule = f"unknown system; for training there are: {training} (any other software); for serving: {serving}"
    raise ConfigError(
        Fault(where="estimate", field="SYSTEM", value=repr(name), rule=rule, fix=suggestion(system, TRAINING_SYSTEMS + SERVING_SYSTEMS))
    )


def training_pins(fixed: Mapping[str, Value]) -> dict[str, Value]:
    """Pinned knobs of a training job under the names that `layouts` uses."""
    short = {field: names[0] for field, names in TRAINING_KNOBS.items()}
    return _pins(fixed, TRAINING_KNOBS, short, HARDWARE_KNOBS)


def check_kinds(pins: Mapping[str, Value], cluster: Cluster) -> None:
    """Refuse pins of GPUs that the cluster does not have: kinds, counts and shares.

    Raises:
        ConfigError: with all faults.
    """
    counts = {knob: count for knob, (_, count) in zip(cluster.knobs, cluster.groups, strict=True)}
    faults = []
    for name, value in pins.items():
        if name not in HARDWARE_KNOBS and name.removesuffix(SHARE) not in counts:
            continue
        kind, is_number = name.removesuffix(SHARE), isinstance(value, int | float) and not isinstance(value, bool)
        if kind not in counts:
            rule = f"the cluster has no such GPUs; its kinds are: {', '.join(counts)}"
            faults.append(Fault(where="pins (--set)", field=name, value=repr(value), rule=rule))
        elif name.endswith(SHARE) and not (is_number and 0 < float(value or 0) <= MOST_SHARE):
            rule = f"must be a number above 0 and up to {MOST_SHARE:g}: work of a GPU of this kind, of what one of {cluster.knobs[0]} gets"
            faults.append(Fault(where="pins (--set)", field=name, value=repr(value), rule=rule))
        elif name in counts and not (type(value) is int and 0 <= value <= counts[name]):
            rule = f"must be a whole number from 0 to {counts[name]}, the GPUs of this kind in the cluster"
            faults.append(Fault(where="pins (--set)", field=name, value=repr(value), rule=rule))
    if not faults and not any(int(pins.get(knob, count) or 0) for knob, count in counts.items()):
        faults.append(Fault(where="pins (--set)", field=", ".join(counts), value="0", rule="no GPUs are left"))
    if faults:
        raise ConfigError(faults)


def serving_pins(fixed: Mapping[str, Value]) -> dict[str, Value]:
    """Pinned knobs of a server; those that are varied, under the names they are varied by."""
    pins = _pins(fixed, SERVING_KNOBS, SERVING_NAMES, ())
    faults = []
    for name, value in pins.items():
        if name in SERVING_KNOBS["precision"] and precision_named(str(value)) is None:
            rule = f"unknown format; there are: bf16, fp8, fp4, {', '.join((*NARROW, *WEIGHT_ONLY))}"
            faults.append(Fault(where="estimate", field=name, value=repr(value), rule=rule))
        if name in SERVING_KNOBS["memory_share"] and not (isinstance(value, int | float) and 0.0 < value <= 1.0):
            faults.append(
                Fault(where="estimate", field=name, value=repr(value), rule="must be a share of the memory, above 0 and at most 1")
            )
    if faults:
        raise ConfigError(faults)
    return pins


def _pins(
    fixed: Mapping[str, Value], knobs: Mapping[str, tuple[str, ...]], names: Mapping[str, str], others: Iterable[str]
) -> dict[str, Value]:
    fields = {alias: field for field, aliases in knobs.items() for alias in aliases}
    pin_names = (*fields, *others)
    pins: dict[str, Value] = {}
    faults = []
    for pin, value in fixed.items():
        field = fields.get(pin, "")
        name = names.get(field, pin)
        if pin not in pin_names:
            usual = ", ".join(names.values())
            fix = suggestion(pin, pin_names) if nearest(pin, pin_names) else f"The usual ones are: {usual}"
            faults.append(Fault(where="pins (--set)", field=pin, value=repr(value), rule="no such knob in this model", fix=fix))
        elif isinstance(value, list | dict):
            faults.append(Fault(where="pins (--set)", field=pin, value=repr(value), rule="must be one number, word or yes/no"))
        elif field in _COUNTS and not (type(value) is int and value >= 1):
            faults.append(Fault(where="pins (--set)", field=pin, value=repr(value), rule="must be a whole number of at least 1"))
        elif name in pins and pins[name] != value:
            faults.append(Fault(where="pins (--set)", field=pin, value=repr(value), rule=f"{name} is already pinned to {pins[name]!r}"))
        else:
            pins[name] = value
    if faults:
        raise ConfigError(faults)
    return pins


__all__ = ["SERVING_NAMES", "SERVING_SYSTEMS", "TRAINING_SYSTEMS", "check_kinds", "read_system", "serving_pins", "training_pins"]
