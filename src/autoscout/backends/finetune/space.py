"""The knobs of fine-tuning, with the defaults of Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.backends.finetune.workload import ROWS, FinetuneWorkload
from autoscout.space import Choice, Constraint, Flag, Grid, Space
from autoscout.space.knobs import Knob
from autoscout.training.hardware import thread_counts

RANKS = [4, 8, 16, 32, 64]


def build_space(workload: FinetuneWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    knobs = [*_batch(workload, hardware), *_compute(workload, hardware), *(_adapters(workload) if workload.free_lora else ())]
    names = {knob.name for knob in knobs}
    rules = [Constraint("not torch_compile or batching != 'pack'", why="packed rows differ in shape from step to step")]
    return Space(knobs, rules if "torch_compile" in names else [], facts={"processes": int(hardware["processes"])})


def _batch(workload: FinetuneWorkload, hardware: Mapping[str, Any]) -> Iterable[Knob]:
    share = workload.global_batch // int(hardware["processes"])
    sizes = [size for size in range(1, share + 1) if share % size == 0]
    usual = max(size for size in sizes if size <= ROWS)
    yield Grid(
        "micro_batch",
        values=sizes,
        default=usual,
        log=True,
        help="rows computed at once by a process; the rest of its share is accumulated",
    )
    help = "examples padded to the longest next to them, the same sorted by length, or packed into full rows"
    yield Choice("batching", ["pad", "sort", "pack"], help=help)
    if int(hardware["processes"]) > 1:
        yield Flag("defer_sync", default=True, help="exchange gradients once per step, not with every micro-batch")


def _compute(workload: FinetuneWorkload, hardware: Mapping[str, Any]) -> Iterable[Knob]:
    on_gpu = hardware["device"] == "cuda"
    precisions = ["fp32", *(["tf32"] if on_gpu else [])]
    if hardware["native_bf16"]:
        precisions += ["bf16", *(["bf16-base"] if workload.method == "lora" else [])]
    if len(precisions) > 1:
        yield Choice("precision", precisions, help="of products; bf16 by autocast, bf16-base stores the frozen weights in it too")
    yield Flag("gradient_checkpointing", help="compute activations again in the backward pass")
    yield Choice("attention", ["sdpa", "eager"], help="attn_implementation of the model")
    yield Choice("optimizer", ["fused", "foreach", "loop"], help="implementation of AdamW")
    if on_gpu:
        yield Flag("torch_compile", help="compile the model")
    else:
        counts, usual = thread_counts(hardware)
        if len(counts) > 1:
            yield Grid("threads", values=counts, default=usual, log=True, help="threads of every process (OMP_NUM_THREADS)")


def _adapters(workload: FinetuneWorkload) -> Iterable[Knob]:
    if workload.method != "lora":
        return
    yield Grid("lora_rank", values=sorted({*RANKS, workload.rank}), default=workload.rank, log=True, help="rank of the adapters")
    usual = workload.targets if isinstance(workload.targets, str) else ",".join(workload.targets)
    choices = list(dict.fromkeys([usual, "all-linear", "q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj"]))
    yield Choice("lora_targets", choices, help="modules that get adapters")
