"""The knobs of DeepSpeed: where the user's file has them, else at DeepSpeed's own defaults; and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.backends.deepspeed.user_file import AUTO, UserFile
from autoscout.backends.deepspeed.workload import DeepSpeedWorkload
from autoscout.core.config import Value
from autoscout.space import Choice, Constraint, Flag, Grid, Space
from autoscout.space.knobs import Knob
from autoscout.training.hardware import BYTES_PER_GB, thread_counts

BUCKETS = [500_000, 5_000_000, 50_000_000, 500_000_000]  # elements; the last is DeepSpeed's default
THRESHOLDS = [10_000, 100_000, 1_000_000]
LIVE = [100_000_000, 1_000_000_000, 10_000_000_000]

STATE_BYTES = {"weights": 2, "gradients": 4, "optimizer": 12}
"""Of a parameter in mixed precision; from stage 1, 2 and 3 on processes share the last, the last two, and all."""
LAYER_BYTES = (
    34  # activations of a layer in half precision, per token and unit of width, without the scores of attention (arXiv:2205.05198)
)
LOGIT_BYTES = 12  # of a token and word: logits, their gradient and the loss, in fp32
ROOM = 0.4  # share of a GPU's memory that the first trial may be predicted to take; the rest is for buckets, kernels and fragments
MOST_MICRO = 8  # sequences at once to begin with: beyond, matrices are large enough


def build_space(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    file, exact = workload.file, workload.exact
    start = begin(workload, hardware)
    knobs = [
        *_zero(start),
        *_offload(workload, hardware, file),
        *_batch(workload, hardware, start, file),
        *_compute(workload, hardware, start, file),
        *(_further(name, values) for name, values in file.scope.items() if name in file.more),
    ]
    knobs = [_placed(knob, file, free=knob.name in exact) for knob in knobs]
    facts = {"processes": int(hardware["processes"]), "global_batch": workload.global_batch}
    names = {knob.name for knob in knobs}
    rules = [Constraint("global_batch % (processes * micro_batch) == 0", why="all micro-batches have the same size")]
    if "offload_optimizer" in names:
        rules.append(Constraint("offload_optimizer != 'nvme' or zero_stage == 3", why="only ZeRO 3 offloads to disk"))
        rules.append(
            Constraint("offload_param in ('none', offload_optimizer) or offload_optimizer == 'cpu'", why="parameters follow the optimizer")
        )
    return Space(knobs, rules, facts=facts)


@dataclass(frozen=True)
class Start:
    """Where a study begins without a file of the user's that says so."""

    zero_stage: int = 0
    precision: str = "fp32"
    micro_batch: int = 1


def begin(workload: DeepSpeedWorkload, hardware: Mapping[str, Any]) -> Start:
    """The first configuration: what the file says, else what holds the built-in model on GPUs, else DeepSpeed's own defaults."""
    file, processes = workload.file, int(hardware["processes"])
    share = max(1, workload.global_batch // processes)
    stage = file.values.get("zero_stage")
    precision = str(file.values.get("precision", "fp32"))
    if workload.command or hardware["device"] != "cuda":
        return Start(int(stage) if isinstance(stage, int) else 0, precision, workload.micro_batch or share)
    precision = precision if "precision" in file.values else "bf16" if hardware["native_bf16"] else "fp16"
    stages = [int(stage)] if isinstance(stage, int) else [0, 1, 2, 3]
    sizes = [workload.micro_batch] if workload.micro_batch else [size for size in range(min(share, MOST_MICRO), 0, -1) if share % size == 0]
    room = ROOM * float(hardware.get("memory_gb") or 0.0) * BYTES_PER_GB
    if not room:
        return Start(stages[0], precision, sizes[0])
    fitting = (
        Start(stage, precision, size) for stage in stages for size in sizes if memory_bytes(workload, processes, stage, size) <= room
    )
    return next(fitting, Start(stages[-1], precision, sizes[-1]))


def memory_bytes(workload: DeepSpeedWorkload, processes: int, stage: int, micro_batch: int) -> float:
    """What a GPU holds of the built-in model in half precision: weights, gradients, optimizer state, activations of a micro-batch."""
    shape = workload.shape
    width, tokens = int(shape["width"]), micro_batch * int(shape["sequence"])
    parameters = int(shape["layers"]) * 12 * width**2 + int(shape["vocabulary"]) * width
    shared = {"optimizer": stage >= 1, "gradients": stage >= 2, "weights": stage >= 3}
    state = sum(size / (processes if shared[part] else 1) for part, size in STATE_BYTES.items())
    return parameters * state + tokens * (int(shape["layers"]) * width * LAYER_BYTES + int(shape["vocabulary"]) * LOGIT_BYTES)


def _zero(start: Start) -> Iterable[Knob]:
    help = "what is sharded over processes: nothing, optimizer, gradients too, parameters too"
    yield Choice("zero_stage", [0, 1, 2, 3], default=start.zero_stage, help=help)
    some, early, three = "zero_stage >= 1", "zero_stage in (1, 2)", "zero_stage == 3"
    by_itself = start.zero_stage == 3  # DeepSpeed turns it on for stage 3
    yield Flag("overlap_comm", default=by_itself, when=some, help="exchange gradients while others are computed")
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


def _offload(workload: DeepSpeedWorkload, hardware: Mapping[str, Any], file: UserFile) -> Iterable[Knob]:
    """Only where there is a device to take the load off, and an optimizer of DeepSpeed's: it refuses to offload another."""
    if hardware["device"] != "cuda":
        return
    devices = ["none", "cpu", *(["nvme"] if workload.nvme_path else [])]
    if not workload.command or "optimizer" in file.base or file.values.get("offload_optimizer", "none") != "none":
        yield Choice("offload_optimizer", devices, when="zero_stage >= 1", help="where the optimizer's states live and are updated")
        yield Choice("offload_param", devices, when="zero_stage == 3", help="where parameters wait until they are needed")


def _batch(workload: DeepSpeedWorkload, hardware: Mapping[str, Any], start: Start, file: UserFile) -> Iterable[Knob]:
    share = max(1, workload.global_batch // int(hardware["processes"]))
    least = file.number("min_train_micro_batch_size_per_gpu")
    most = file.number("max_train_micro_batch_size_per_gpu") or share
    sizes = [size for size in range(1, share + 1) if share % size == 0 and (least <= size <= most or size == start.micro_batch)]
    help = "sequences computed at once by a process; the rest of its share is accumulated"
    yield Grid("micro_batch", values=sizes, default=start.micro_batch, log=True, help=help)


def _compute(workload: DeepSpeedWorkload, hardware: Mapping[str, Any], start: Start, file: UserFile) -> Iterable[Knob]:
    on_gpu = hardware["device"] == "cuda"
    precisions = ["fp32", *(["bf16"] if hardware["native_bf16"] else []), *(["fp16"] if on_gpu else [])]
    if start.precision not in (*precisions, AUTO):
        precisions.append(start.precision)
    if len(precisions) > 1 and start.precision != AUTO:  # that is for the Trainer to say, which refuses to be contradicted
        yield Choice("precision", precisions, default=start.precision, help="of weights and products; the optimizer keeps fp32")
    if on_gpu and not workload.command and "optimizer" not in file.base:
        yield Choice(
            "optimizer", ["deepspeed", "torch"], help="whose AdamW: DeepSpeed's fused kernel, which is compiled once, or PyTorch's"
        )
    if not workload.command:
        yield Choice("recompute", ["none", "half", "full"], help="layers whose activations are computed again in the backward pass")
    if not on_gpu:
        counts, usual = thread_counts(hardware)
        if len(counts) > 1:
            yield Grid("threads", values=counts, default=usual, log=True, help="threads of every process (OMP_NUM_THREADS)")


def _placed(knob: Knob, file: UserFile, *, free: bool) -> Knob:
    """The knob with the values that the file lists, and where the file has it.

    Args:
        knob: As DeepSpeed has it.
        file: The user's.
        free: Whether a tuning space names it, which then means what it says, whatever the stage.
    """
    if knob.name in file.more or knob.name not in {**file.values, **file.scope}:
        return knob
    default = file.values.get(knob.name, knob.default)
    listed = file.scope.get(knob.name)
    values: list[Value] = list(listed) if listed else [*knob.values, *([] if default in knob else [default])]
    if default not in values:
        default = values[0]
    common: dict[str, Any] = {"default": default, "when": None if free else knob.when, "help": knob.help, "warning": knob.warning}
    if knob.ordered and all(_is_number(value) for value in values):
        return Grid(knob.name, values=values, log=knob.log, **common)  # type: ignore[arg-type]
    if isinstance(knob, Flag) and not listed and isinstance(default, bool):
        return Flag(knob.name, **common)
    return Choice(knob.name, values, **common)


def _further(name: str, values: Sequence[Value]) -> Knob:
    """A setting of the user's file that is no knob here."""
    help = "of your own file"
    if all(_is_number(value) for value in values):
        return Grid(name, values=values, default=values[0], help=help)  # type: ignore[arg-type]
    return Choice(name, values, help=help)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
