"""Where a study begins: the user's own launch, or the layout that somebody with experience would begin with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from autoscout.backends.megatron.mixed import kinds_of
from autoscout.backends.megatron.workload import MegatronWorkload
from autoscout.catalog.models import ModelShape
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault
from autoscout.space import Space
from autoscout.training.hardware import BYTES_PER_GB, local_processes

WEIGHT_BYTES = 2 + 4  # of a parameter in mixed precision: its weight, and its gradient in fp32
OPTIMIZER_BYTES = 12  # of a parameter: master weight and two moments, which replicas share
NORM_BYTES = 10  # kept per token and unit of width around a layer's two norms, in half precision (arXiv:2205.05198, without dropout)
KEPT_BYTES = 2  # of them, where whole layers are computed again
LOGIT_BYTES = 12  # of a token and word: logits, their gradient and the loss
LONG = 8192  # tokens of a sequence that a GPU holds well; context parallelism is for longer ones
MOST_MICRO = 4  # sequences at once to begin with: beyond, matrices are large enough
ROOMS = (0.8, 0.92)  # shares of a GPU's memory that all this may take: with room for fragments and kernels, else tightly
AMPLE = 0.55  # the same for a layout with more than one sequence at once
FIXED_BYTES = 5 * 2**30  # of CUDA, NCCL and PyTorch in every process

BY_ITSELF: dict[str, Value] = {
    "overlap_p2p_comm": True,
    "bias_activation_fusion": True,
    "bias_dropout_fusion": True,
    "gradient_accumulation_fusion": True,
}
"""What Megatron-LM turns on by itself, unlike the classes of megatron-core that the tables are made of."""

SHARDED: dict[str, Value] = {"distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
ROUTED: dict[str, Value] = {"moe_dispatcher": "alltoall", "moe_grouped_gemm": True, "moe_permute_fusion": True}
"""What every recipe of NVIDIA's turns on."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How processes share a model."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    recompute: str = "none"
    counts_ends: bool = False  # embedding and loss count as layers, so that stages are even


def defaults(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> dict[str, Value]:
    """The first configuration: the user's launch where the arguments are one, else that of a recipe with the user's flags in it."""
    own = workload.own
    processes = int(hardware["processes"])
    if own.describes_a_model:
        values: dict[str, Value] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "precision": "fp32", **BY_ITSELF, **own.knobs}
        values.setdefault("expert_tp", values["tp"])
    else:
        values = {**_recipe(workload, hardware), **own.knobs}
    shared = _whole(values["tp"]) * _whole(values["pp"]) * _whole(values.get("cp", 1))
    return {**values, "dp": max(1, processes // shared)}


def start_faults(workload: MegatronWorkload, hardware: Mapping[str, Any], space: Space) -> Iterator[Fault]:
    """Where the user's own flags are no configuration of the space, so that the first trial would be another."""
    own, default, processes = workload.own.knobs, space.default(), int(hardware["processes"])
    asked = {**defaults(workload, hardware), **own} if workload.own.describes_a_model else dict(own)
    absent = [name for name, value in own.items() if name not in space.knobs and value not in (1, False, "none")]
    changed = [name for name, value in asked.items() if name in default and default[name] != value]
    parts = prod(_whole(own.get(name, 1)) for name in ("tp", "pp", "cp"))
    if processes % parts:
        rule = f"tensor, pipeline and context parallelism need a multiple of {parts} GPUs, and there are {processes}"
    elif absent:
        rule = f"there is no {', '.join(absent)} on this machine with this model"
    elif changed:
        broken = space.check(Config({**default, **{name: value for name, value in asked.items() if name in default}}))
        rule = (
            " ".join(dict.fromkeys(sentence for sentence in broken if not sentence.startswith("Knob")))
            or f"{', '.join(changed)} cannot be so"
        )
    else:
        return
    fix = "Correct the flags, or the GPUs and nodes that they are for (--hardware gpus=16xH100)"
    yield Fault(where="workload", field="arguments", rule=f"cannot be the first trial: {rule.rstrip('.')}", fix=fix)


def _recipe(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> dict[str, Value]:
    """Half precision on GPUs, as few parts of the model as fit, experts whole, and what such a layout is never without."""
    if hardware["device"] != "cuda":
        fused = bool(workload.checkout)
        switches = {name: True if name == "overlap_p2p_comm" else fused for name in BY_ITSELF}
        return {"tp": 1, "pp": 1, "expert_tp": 1, "precision": "fp32", **switches}
    layout = fitting(workload, hardware)
    fused = bool(workload.checkout)
    return {
        **{name: True if name == "overlap_p2p_comm" else fused for name in BY_ITSELF},
        **SHARDED,
        **(ROUTED if workload.transformer_engine else {"moe_dispatcher": "alltoall"}),
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "expert_tp": 1,
        "sequence_parallel": True,
        "precision": "bf16",
        "micro_batch": layout.micro_batch,
        "recompute": layout.recompute,
        "account_for_embedding_in_pipeline_split": layout.counts_ends,
        "account_for_loss_in_pipeline_split": layout.counts_ends,
    }


def fitting(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> Layout:
    """The layout with the fewest parts that holds the model: tensor parallelism within a node before stages, recomputation last."""
    processes, room = int(hardware["processes"]), float(hardware.get("memory_gb") or 0.0) * BYTES_PER_GB
    if not room:
        return Layout()
    routed = bool(workload.architecture.experts)

    def order(one: Layout) -> tuple[float, ...]:
        parts = one.tp * one.cp * one.pp
        return one.recompute != "none", parts, one.counts_ends, one.tp if routed else one.pp, one.cp, -one.ep, -one.micro_batch

    layouts = sorted(_layouts(workload, hardware), key=order)
    needs = {one: needed_bytes(workload, one, processes) for one in layouts}
    fits = (one for share in ROOMS for one in layouts if needs[one] <= (share if one.micro_batch == 1 else AMPLE) * room - FIXED_BYTES)
    return next(fits, min(layouts, key=lambda one: needs[one], default=Layout()))


def needed_bytes(workload: MegatronWorkload, layout: Layout, processes: int) -> float:
    """What a GPU of the fullest stage holds, the first or the last, with the distributed optimizer and sequence parallelism."""
    shape, tokens = workload.architecture, layout.micro_batch * int(workload.shape["sequence"]) / layout.cp
    experts = shape.moe_layers * shape.experts * shape.expert_params
    replicas = processes // (layout.tp * layout.pp)
    state = (shape.parameters - experts) / (layout.tp * layout.pp) * (WEIGHT_BYTES + OPTIMIZER_BYTES / replicas)
    state += experts / (layout.ep * layout.pp) * (WEIGHT_BYTES + OPTIMIZER_BYTES * layout.ep * layout.pp / processes)
    heads = (2 * (shape.heads + 2 * shape.kv_heads) + 2 * shape.heads) * shape.head_size
    share = shape.moe_layers / shape.layers
    wide = (1 - share) * shape.ffn + share * (shape.active_experts * shape.expert_ffn + shape.shared_ffn)
    of_layer = (NORM_BYTES + 2 * share * shape.active_experts) * shape.hidden + heads + (4 + 2 * shape.gated) * wide
    of_kept = of_layer if layout.recompute == "none" else KEPT_BYTES * shape.hidden + of_layer / shape.layers
    first, last = shape.layers * of_kept, shape.layers / layout.pp * of_kept + shape.vocab * LOGIT_BYTES
    return float(state + tokens / layout.tp * max(first, last))


def _layouts(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> Iterator[Layout]:
    """All that the model can be cut into, with what the user's flags fix."""
    shape, processes, own = workload.architecture, int(hardware["processes"]), workload.own.knobs
    layers, batch, sequence = workload.least_layers, workload.global_batch, int(workload.shape["sequence"])
    within, kinds = local_processes(hardware), kinds_of(hardware)

    def sizes(name: str, most: int) -> list[int]:
        if name in own:
            return [_whole(own[name])]
        return [size for size in range(1, most + 1) if name == "micro_batch" or processes % size == 0]

    for tp in sizes("tp", within):
        for pp in sizes("pp", min(processes // tp or 1, layers)):
            if layers % pp and (layers + 2) % pp and kinds is None:
                continue
            for cp in sizes("cp", min(within // tp, sequence // LONG) or 1) if workload.transformer_engine else [1]:
                replicas, rest = divmod(processes, tp * pp * cp)
                if kinds is not None and (pp == 1 or kinds.groups[0][1] % (tp * cp * replicas)):
                    continue
                if rest or batch % replicas or not _is_cut(shape, tp, sequence, cp):
                    continue
                micro = sizes("micro_batch", MOST_MICRO if pp == 1 else 1)
                for ep, size, again in product(
                    [ep for ep in sizes("ep", within if shape.experts else 1) if not shape.experts % ep and not processes % (ep * pp)],
                    [size for size in micro if not batch // replicas % size],
                    [str(own["recompute"])] if "recompute" in own else ["none", "full"],
                ):
                    ends = layers % pp != 0 and kinds is None
                    yield Layout(tp=tp, pp=pp, cp=cp, ep=ep, micro_batch=size, recompute=again, counts_ends=ends)


def _is_cut(shape: ModelShape, tp: int, sequence: int, cp: int) -> bool:
    """Whether heads, feed-forward parts and sequences can be shared like this."""
    groups = shape.kv_heads % tp == 0 or tp % shape.kv_heads == 0
    return shape.heads % tp == 0 and shape.ffn % tp == 0 and groups and sequence % tp == 0 and (cp == 1 or sequence % (2 * cp * tp) == 0)


def _whole(value: Value) -> int:
    return value if isinstance(value, int) and value > 0 else 1


__all__ = ["BY_ITSELF", "Layout", "defaults", "fitting", "needed_bytes", "start_faults"]
