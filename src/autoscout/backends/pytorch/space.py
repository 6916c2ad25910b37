"""The knobs of a training step in PyTorch, with PyTorch's own defaults, and what PyTorch refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.backends.pytorch.workload import PyTorchWorkload
from autoscout.space import Choice, Constraint, Flag, Grid, Space
from autoscout.space.knobs import Knob
from autoscout.training.hardware import outside_knobs

BUCKETS_MB = [1, 5, 10, 25, 50, 100, 250]
CHUNKS = [1, 2, 4, 8, 16]


def build_space(workload: PyTorchWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    shape, processes = {**workload.shape, "layers": workload.least_layers}, int(hardware["processes"])
    on_gpu = hardware["device"] == "cuda"
    several = processes > 1
    knobs = [
        *(_layout(shape, processes) if several else ()),
        *_batch(workload, processes),
        *_compute(workload, hardware, several=several),
        *outside_knobs(hardware),
    ]
    facts = {"processes": processes, "global_batch": workload.global_batch, "heads": shape["heads"], "layers": shape["layers"]}
    return Space(knobs, _constraints(workload, several=several, on_gpu=on_gpu), facts=facts)


def _layout(shape: Mapping[str, int], processes: int) -> Iterable[Knob]:
    sizes = _divisors(processes)
    yield Choice("dp", sizes, default=processes, help="data parallel: processes, or groups of them, that share a batch")
    yield Choice(
        "tp", [size for size in sizes if shape["heads"] % size == 0], default=1, help="tensor parallel: processes that share every layer"
    )
    yield Choice(
        "pp", [size for size in sizes if size <= shape["layers"]], default=1, help="pipeline parallel: stages of consecutive layers"
    )
    yield Choice("data_parallel", ["ddp", "fsdp2"], when="dp > 1", help="whole replicas, or parameters sharded over the processes")
    ddp, fsdp = "data_parallel == 'ddp'", "data_parallel == 'fsdp2'"
    yield Grid("bucket_mb", values=BUCKETS_MB, default=25, log=True, when=ddp, unit="MB", help="gradients exchanged at once")
    yield Flag("gradient_as_bucket_view", when=ddp, help="gradients live in the buckets, not next to them")
    yield Flag("static_graph", when=ddp, help="the same operations every step, so that order is learnt once")
    yield Choice("wrap", ["block", "root"], when=fsdp, help="shard every layer by itself, or the model as one")
    yield Flag("reshard_after_forward", default=True, when=fsdp, help="free the gathered parameters between forward and backward")
    yield Choice("schedule", ["1f1b", "gpipe", "interleaved"], when="pp > 1", help="order of micro-batches in the pipeline")


def _batch(workload: PyTorchWorkload, processes: int) -> Iterable[Knob]:
    batch = workload.global_batch
    sizes = _divisors(batch)
    help = "sequences computed at once by a process; the rest of its share is accumulated"
    yield Grid("micro_batch", values=sizes, default=batch // processes, log=True, help=help)
    if processes > 1:
        when = "dp > 1 and pp == 1 and dp * micro_batch < global_batch"
        yield Flag("defer_sync", when=when, help="exchange gradients once per step, not with every micro-batch (no_sync)")


def _compute(workload: PyTorchWorkload, hardware: Mapping[str, Any], *, several: bool) -> Iterable[Knob]:
    on_gpu = hardware["device"] == "cuda"
    precisions = ["fp32", *(["tf32"] if on_gpu else []), *(["bf16"] if hardware["native_bf16"] else [])]
    if len(precisions) > 1:
        yield Choice("precision", precisions, help="of matrix products; bf16 by autocast, or by FSDP2's policy; weights stay in fp32")
    yield Choice("recompute", ["none", "half", "full"], help="layers whose activations are computed again in the backward pass")
    kernels = ["auto", "flash", "efficient", "cudnn", "math"] if on_gpu else ["auto", "flash", "math"]
    yield Choice("attention", kernels, help="kernel of scaled_dot_product_attention; auto is PyTorch's own choice")
    yield Choice("optimizer", ["foreach", "fused", "loop"] if on_gpu else ["loop", "foreach", "fused"], help="implementation of AdamW")
    yield Grid(
        "loss_chunks",
        values=CHUNKS,
        default=1,
        log=True,
        when="pp == 1" if several else None,
        help="pieces in which logits and loss are computed",
    )
    if workload.compile:
        modes = ["off", "default", *(["reduce-overhead", "max-autotune-no-cudagraphs"] if on_gpu else [])]
        yield Choice("compile", modes, help="mode of torch.compile")
        yield Choice("compile_scope", ["model", "block"], when="compile != 'off'", help="compile the whole model, or every layer by itself")


def _constraints(workload: PyTorchWorkload, *, several: bool, on_gpu: bool) -> list[Constraint]:
    """What PyTorch refuses."""
    rules = []
    if several:
        pieces = "global_batch // (dp * micro_batch)"
        rules += [
            Constraint("dp * tp * pp == processes", why="every process has one place"),
            Constraint("global_batch % (dp * micro_batch) == 0", why="all micro-batches have the same size"),
            Constraint("data_parallel != 'ddp' or (tp == 1 and pp == 1)", why="DDP takes no sharded parameters and no pipeline stages"),
            Constraint(f"schedule != '1f1b' or {pieces} >= pp", why="1F1B needs a micro-batch for every stage"),
            Constraint(f"schedule != 'interleaved' or {pieces} % pp == 0", why="interleaving needs whole rounds of micro-batches"),
            Constraint("schedule != 'interleaved' or layers >= 2 * pp", why="every process holds two stages"),
        ]
        if workload.compile:
            why = "FSDP2, tensor and pipeline parallelism work between the layers"
            rules.append(Constraint("compile_scope != 'model' or (tp == 1 and pp == 1 and (dp == 1 or data_parallel == 'ddp'))", why=why))
    if on_gpu and workload.compile:
        whole = "dp * micro_batch" if several else "micro_batch"
        why = "its graphs write gradients in place, and would overwrite what is accumulated"
        rules.append(Constraint(f"compile != 'reduce-overhead' or {whole} == global_batch", why=why))
    if on_gpu:
        rules.append(Constraint("attention not in ('flash', 'cudnn') or precision == 'bf16'", why="these kernels take half precision only"))
    return rules


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
