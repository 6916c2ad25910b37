"""Deployments of a server that are compared: layout, experts, batching limits, prompts apart, and with leave also narrower numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators.serving.read import ServingTask

TP, DP = "tensor_parallel_size", "data_parallel_size"
EXPERTS, PRECISION, CACHE = "enable_expert_parallel", "precision", "kv_cache_dtype"


SEQS, STEP = "max_num_seqs", "max_num_batched_tokens"


def deployments(
    reading: ServingTask,
    pins: Mapping[str, Value],
    default: Mapping[str, Value],
    baseline: Mapping[str, Value],
    others: Mapping[str, Value],
    *,
    lossy: bool,
    apart: bool,
) -> list[Config]:
    """Every sensible config that uses all GPUs, with the pinned knobs as they are.

    Args:
        reading: What is served, and where.
        pins: Knobs that stay.
        default: What the engine does by itself; its limits of a batch are compared too, and it comes first, however many GPUs it uses.
        baseline: What the user runs today; its limits of a batch are compared too.
        others: What it sets besides, and is not varied: it holds in every config but the engine's default.
        lossy: Whether weights and cache may be narrower than published, which changes answers.
        apart: Whether prompts may get GPUs of their own.

    Raises:
        ConfigError: one replica needs more GPUs than there are, or its width does not divide the heads.
    """
    gpu, count = reading.cluster.groups[0]
    node = min(count, reading.cluster.node_gpus or gpu.node_gpus)
    _check(reading, pins, count)
    widths = [2**power for power in range(7) if 2**power <= max(node, 1) and count % 2**power == 0 and reading.shape.heads % 2**power == 0]
    batching: dict[str, Sequence[Value]] = {SEQS: [256, 64, 1024], STEP: [8192, 2048]}
    batching = {
        name: list(dict.fromkeys([default.get(name, values[0]), *([baseline[name]] if name in baseline else []), *values]))
        for name, values in batching.items()
    }
    choices: dict[str, Sequence[Value]] = {TP: widths or [1], **batching}
    if reading.shape.experts:
        choices[EXPERTS] = [False, True]
    if lossy:
        narrow = [word for word, rate in (("fp8", gpu.fp8_tflops), ("fp4", gpu.fp4_tflops)) if rate and word != reading.shape.stored]
        choices |= {PRECISION: ["auto", *narrow], CACHE: ["auto", "fp8"]}
    choices = {name: [pins[name]] if name in pins else values for name, values in choices.items()}
    stages = _degree(pins.get("pipeline_parallel_size"))
    layouts = [Config({**{name: values[0] for name, values in choices.items()}, DP: 1, **default, **pins})] if default else []
    for values in itertools.product(*choices.values()):
        knobs = dict(zip(choices, values, strict=True))
        width = _degree(knobs[TP]) * stages
        for share in (0, count // 4, count // 2) if apart and "prefill_gpus" not in pins else (0,):
            if share % _degree(knobs[TP]) or (share and stages > 1) or (count - share) // width < 1:
                continue
            replicas = (count - share) // width
            if knobs.get(EXPERTS) is True and reading.shape.experts % (width * replicas):
                continue  # ranks would hold different numbers of experts
            more: dict[str, Value] = {"prefill_gpus": share, "prefill_tp": knobs[TP]} if share else {}
            layouts.append(Config({**others, **knobs, DP: replicas, **more, **pins}))
    return list(dict.fromkeys(layouts))


def _check(reading: ServingTask, pins: Mapping[str, Value], count: int) -> None:
    width, stages = _degree(pins.get(TP)), _degree(pins.get("pipeline_parallel_size"))
    if reading.shape.heads % width:
        rule = f"must divide the model's {reading.shape.heads} attention heads"
        raise ConfigError(Fault(where="pins (--set)", field=TP, value=str(width), rule=rule))
    if width * stages > count:
        rule = f"one replica needs {width * stages} GPUs, there are {count}"
        raise ConfigError(Fault(where="pins (--set)", field=f"{TP} x pipeline_parallel_size", value=str(width * stages), rule=rule))
    replicas = _degree(pins.get(DP))
    if width * stages * replicas > count:
        rule = f"{replicas} replicas of {width * stages} GPUs need more than the {count} there are"
        raise ConfigError(Fault(where="pins (--set)", field=DP, value=str(replicas), rule=rule))


def _degree(value: Value | None) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


__all__ = ["SEQS", "STEP", "deployments"]
