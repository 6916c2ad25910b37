"""Layouts of a training job that engines accept, and why there is none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.catalog.models import ModelShape
from autoscout.catalog.training_knobs import SHARE
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault

USUAL_STAGES = 16
"""Pipelines are deeper only where nothing else fits: each stage more is a bubble, and a failure domain, more."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What layouts must divide."""

    shape: ModelShape
    gpus: int
    node_gpus: int
    sequence: int
    global_batch: int
    plain_attention: bool = False  # whether scores are kept, so that computing only them again saves anything
    ends: int = 0  # layers that embedding and loss count as in a pipeline: 2 for Megatron-core, which can split 126 + 2 over 16 x 8

    def stages(self, pp: int, vp: int = 1) -> bool:
        """Whether a pipeline of `pp` ranks with `vp` parts each gets whole layers."""
        parts = pp * vp
        return parts <= self.shape.layers + self.ends and (self.shape.layers % parts == 0 or (self.shape.layers + self.ends) % parts == 0)


def layouts(ground: Ground, pins: Mapping[str, Value], deep: bool = False) -> Iterator[dict[str, Value]]:
    """Layouts that use all GPUs and divide evenly, with the pinned knobs as they are; `deep` ones have more than the usual stages."""
    uneven = any(name.endswith(SHARE) and value != 1 for name, value in pins.items())  # replicas get micro-batches by their speed
    for values in itertools.product(*(choices := _choices(ground, pins, deep)).values()):
        layout: dict[str, Any] = dict(zip(choices, values, strict=True))
        tp, pp, cp, mbs = (int(layout[name]) for name in ("tp", "pp", "cp", "mbs"))
        ep = int(layout["ep"])
        if ground.gpus % (tp * pp * cp) or (ep > 1 and (not ground.shape.experts or ground.shape.experts % ep)):
            continue
        dp = ground.gpus // (tp * pp * cp)
        micro_batches, rest = divmod(ground.global_batch, mbs)
        if rest or micro_batches < dp or (micro_batches % dp and not uneven) or ep > dp * cp * tp or pins.get("dp", dp) != dp:
            continue
        rounds = micro_batches // dp if micro_batches % dp == 0 else 1
        for vp in [int(pins["vp"] or 1)] if "vp" in pins else _parts(ground, pp, rounds):
            if vp == 1 or (pp > 1 and ground.stages(pp, vp)):
                yield {**layout, "vp": vp, "dp": dp, "sp": tp > 1, **pins}


def _choices(ground: Ground, pins: Mapping[str, Value], deep: bool) -> dict[str, Sequence[Value]]:
    powers = [2**power for power in range(12) if 2**power <= ground.gpus]
    shape = ground.shape
    choices: dict[str, Sequence[Value]] = {
        "tp": [power for power in powers if power <= ground.node_gpus and shape.heads % power == 0],
        "pp": [pp for pp in divisors(ground.gpus) if (pp > USUAL_STAGES) == deep and ground.stages(pp)],
        "cp": [power for power in powers if power == 1 or ground.sequence // power >= 4096],
        "ep": [power for power in powers if shape.experts % power == 0] if shape.experts else [1],
        "mbs": [1, 2, 4, 8],
        "ar": ["none", "selective", "full"] if ground.plain_attention else ["none", "full"],
    }
    if "pp" in pins and deep:
        return dict.fromkeys(choices, ())
    return {name: [pins[name]] if name in pins else values for name, values in choices.items()}


def _parts(ground: Ground, pp: int, rounds: int) -> list[int]:
    """Every number of parts per rank that gives whole layers; interleaving needs micro-batches in groups of the stages."""
    if pp == 1 or rounds % pp:
        return [1]
    both = {*divisors(max(1, ground.shape.layers // pp)), *divisors(max(1, (ground.shape.layers + ground.ends) // pp))}
    return sorted(vp for vp in both if vp == 1 or ground.stages(pp, vp))


def no_layout(ground: Ground, pins: Mapping[str, Value]) -> ConfigError:
    """What stands in the way: each pinned knob that cannot be, else the product of all."""
    shape, faults = ground.shape, []

    def add(name: str, rule: str) -> None:
        faults.append(Fault(where="pins (--set)", field=name, value=str(pins[name]), rule=rule))

    sizes = {name: int(value) for name, value in pins.items() if type(value) is int}
    if "tp" in sizes and shape.heads % sizes["tp"]:
        add("tp", f"must divide the model's {shape.heads} attention heads")
    if "pp" in sizes and not ground.stages(sizes["pp"]):
        also = f", or {shape.layers} + {ground.ends} with embedding and loss" if ground.ends else ""
        add("pp", f"must divide the model's {shape.layers} layers{also}")
    if "ep" in sizes and (not shape.experts or shape.experts % sizes["ep"]):
        add("ep", f"must divide the model's {shape.experts} experts" if shape.experts else "the model has no experts")
    for name in ("tp", "pp", "cp", "dp"):
        if name in sizes and ground.gpus % sizes[name]:
            add(name, f"must divide the {ground.gpus} GPUs")
    degrees = 1
    for name in ("tp", "pp", "cp", "dp"):
        degrees *= sizes.get(name, 1)
    if not faults and ground.gpus % degrees:
        pinned = " x ".join(name for name in ("tp", "pp", "cp", "dp") if name in sizes)
        faults.append(Fault(where="pins (--set)", field=pinned, value=str(degrees), rule=f"must divide the {ground.gpus} GPUs"))
    for name in ("dp", "mbs"):
        if name in sizes and ground.global_batch % sizes[name]:
            add(name, f"must divide the global batch of {ground.global_batch}")
    if "vp" in sizes and "pp" in sizes and sizes["vp"] > 1 and (sizes["pp"] == 1 or not ground.stages(sizes["pp"], sizes["vp"])):
        add("vp", f"pp x vp = {sizes['pp'] * sizes['vp']} parts must each get whole layers of the {shape.layers}")
    if not faults:
        rule = f"no layout uses all {ground.gpus} GPUs, divides heads, layers and experts, and has dp x mbs divide {ground.global_batch}"
        fix = "Choose a batch with more factors, fewer GPUs, or pin less"
        faults.append(Fault(where="estimate", field="layout", value=repr(dict(pins)), rule=rule, fix=fix))
    return ConfigError([Fault(where="estimate", rule="no layout fits the pinned knobs and the GPUs"), *faults])


def divisors(number: int) -> list[int]:
    """All divisors, smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


__all__ = ["Ground", "divisors", "layouts", "no_layout"]
