"""The knobs of DeepSpeed, with its own defaults, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.backends.deepspeed.workload import DeepSpeedWorkload
from autoscout.space import Choice, Constraint, Flag, Grid, Space
from autoscout.space.knobs import Knob
from autoscout.training.hardware import thread_counts

BUCKETS = [500_000, 5_000_000, 50_000_000, 500_000_000]  # elements; the last is DeepSpeed's default
THRESHOLDS = [10_000, 100_000, 1_000_000]
LIVE = [100_000_000, 1_000_000_000, 10_000_000_000]


def build_space(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    knobs = [*_zero(), *_offload(workload, hardware), *_batch(workload, hardware), *_compute(workload, hardware)]
    facts = {"processes": int(hardware["processes"]), "global_batch": workload.global_batch}
    names = {knob.name for knob in knobs}
    rules = [Constraint("global_batch % (processes * micro_batch) == 0", why="all micro-batches have the same size")]
    if "offload_optimizer" in names:
        rules.append(Constraint("offload_optimizer != 'nvme' or zero_stage == 3", why="only ZeRO 3 offloads to disk"))
        rules.append(
            Constraint("offload_param in ('none', offload_optimizer) or offload_optimizer == 'cpu'", why="parameters follow the optimizer")
        )
    return Space(knobs, rules, facts=facts)


def _zero() -> Iterable[Knob]:
    yield Choice("zero_stage", [0, 1, 2, 3], help="what is sharded over processes: nothing, optimizer, gradients too, parameters too")
    some, early, three = "zero_stage >= 1", "zero_stage in (1, 2)", "zero_stage == 3"
    yield Flag("overlap_comm", when=some, help="exchange gradients while others are computed")
    yield Flag("contiguous_gradients", default=True, when=some, help="copy gradients into one buffer as they come")
    yield Grid(
        "reduce_bucket_size", values=BUCKETS, default=BUCKETS[-1], log=True, when=some, help="gradients reduced at once, in elements"
    )
    yield Grid(
        "allgather_bucket_size", values=BUCKETS, default=BUCKETS[-1], log=True, when=early, help="parameters gathered at once, in elements"
    )
    yield Flag("reduce_scatter", default=True, when=early, help="every process receives its own gradients only")
    yield Flag("round_robin_gradients", when=early, help="share copying of gradients to the CPU among processes")
    yield Grid(
        "prefetch_bucket_size", values=BUCKETS[:3], default=BUCKETS[2], log=True, when=three, help="parameters fetched ahead, in elements"
    )
    help = "parameters up to this size stay on every process"
    yield Grid("param_persistence_threshold", values=THRESHOLDS, default=THRESHOLDS[1], log=True, when=three, help=help)
    yield Grid(
        "max_live_parameters", values=LIVE, default=LIVE[1], log=True, when=three, help="parameters that one process may hold gathered"
    )


def _offload(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Iterable[Knob]:
    """Only where there is a device to take the load off."""
    if hardware["device"] != "cuda":
        return
    devices = ["none", "cpu", *(["nvme"] if workload.nvme_path else [])]
    yield Choice("offload_optimizer", devices, when="zero_stage >= 1", help="where the optimizer's states live and are updated")
    yield Choice("offload_param", devices, when="zero_stage == 3", help="where parameters wait until they are needed")


def _batch(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Iterable[Knob]:
    share = workload.global_batch // int(hardware["processes"])
    sizes = [size for size in range(1, share + 1) if share % size == 0]
    help = "sequences computed at once by a process; the rest of its share is accumulated"
    yield Grid("micro_batch", values=sizes, default=share, log=True, help=help)


def _compute(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Iterable[Knob]:
    on_gpu = hardware["device"] == "cuda"
    precisions = ["fp32", *(["bf16"] if hardware["native_bf16"] else []), *(["fp16"] if on_gpu else [])]
    if len(precisions) > 1:
        yield Choice("precision", precisions, help="of weights and products; the optimizer keeps fp32")
    if on_gpu and not workload.has_optimizer:
        yield Choice(
            "optimizer", ["deepspeed", "torch"], help="whose AdamW: DeepSpeed's fused kernel, which is compiled once, or PyTorch's"
        )
    if not workload.command:
        yield Choice("recompute", ["none", "half", "full"], help="layers whose activations are computed again in the backward pass")
    if not on_gpu:
        counts, usual = thread_counts(hardware)
        if len(counts) > 1:
            yield Grid("threads", values=counts, default=usual, log=True, help="threads of every process (OMP_NUM_THREADS)")
