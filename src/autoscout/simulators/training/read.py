"""Reads a `TrainingJob` from a task and its configs, or from the rows of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import MOST_RATE, PRECISIONS, Cluster
from autoscout.catalog.models import ModelShape
from autoscout.catalog.training_knobs import KIND, KNOBS, SHARE
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Task
from autoscout.simulators._shared.task import first_given, number, read_cluster, read_model
from autoscout.simulators.training.arithmetic import floor, larger, smaller, where
from autoscout.simulators.training.job import LINEAR_BYTES, ParallelLayout, TrainingJob, hardware_fields, model_fields

_FIELD_OF = {name: field for field, names in KNOBS.items() for name in names}

SHARDED = {"ddp": 0.0, "fsdp": 3.0, "fsdp2": 3.0}
"""Kind of data parallelism -> the stage of sharding that it stands for."""

MODULES = {
    "again_norms": ("layernorm",),
    "again_activations": ("moe_act", "mlp_act"),
    "again_heads": ("mla_up_proj",),
    "again_dense": ("mlp",),
}
"""Layout field -> names in Megatron's recompute_modules; `core_attn` is what `selective` means without a list, `moe` is left out."""

_BASE_BYTES = {"nf4": 0.53, "fp4": 0.53, "gptq": 0.53, "awq": 0.53, "int4": 0.53, "int8": 1.0, "fp8": 1.0}
"""Bytes per weight of quantised models that adapters are trained on: four bits and a scale for every 64 weights."""

ADAPTERS = 0.005
"""Share of a model's weights in LoRA adapters: 2 r / h of a square matrix, so 0.4 % of rank 16 at 8,192 columns."""

_TRANSFORMER_ENGINE = {"attention_backend": {"fused": "cudnn"}}
"""Knob -> words that mean something else there than elsewhere: Transformer Engine's fused attention is cuDNN's, linear in memory."""

_SELECTIVE = ("selective", "selective_per_op", "sp+selective_recompute")


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """What a task says about a training run besides the knobs."""

    shape: ModelShape
    cluster: Cluster
    sequence: float
    global_batch: float
    precision: str = "bf16"
    stack: str = ""
    fixed: Mapping[str, Any]  # knobs that the task pins


def read_task(task: Task) -> TrainingTask:
    """Read model, cluster, sequence length and batch; all faults at once."""
    load, machine = dict(task.workload), dict(task.hardware)
    facts = {**task.software, **machine, **load}
    faults: list[Fault] = []

    def attempt(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except ConfigError as error:
            faults.extend(error.faults)
            return None

    shape = attempt(lambda: read_model(load.get("model")))
    machines = attempt(lambda: read_cluster({**load, **machine}))
    sequence = first_given(facts, "sequence", "seq_len", "seq", "sequence_length", "seq_length", "max_seq_len")
    batch = first_given(facts, "global_batch", "global_batch_size", "gbs", "train_batch_size")
    for field, value in (("sequence", sequence), ("global_batch", batch)):
        if value is None or not 0 < number(value) <= MOST_RATE:
            faults.append(Fault(where="task", field=f"workload.{field}", value=repr(value), rule="must be a positive number"))
    precision = str(facts.get("precision") or "bf16")
    if precision.lower() not in PRECISIONS:
        rule = f"unknown precision; there are: {', '.join(PRECISIONS)}"
        faults.append(Fault(where="task", field="workload.precision", value=repr(precision), rule=rule))
    if faults:
        raise ConfigError(faults)
    mixed = [f"{kind}{end}" for kind in machines.knobs for end in ("", SHARE)]
    fixed = {name: facts[name] for name in (*_FIELD_OF, *mixed) if name in facts}
    return TrainingTask(
        shape=shape,
        cluster=machines,
        sequence=number(sequence),
        global_batch=number(batch),
        precision=precision,
        stack=str(facts.get("stack") or task.system),
        fixed=fixed,
    )


def read_layout(rows: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any], gpus: float, zero: float = 1.0) -> ParallelLayout:
    """Columns of a layout from configs; a knob that neither config nor task names takes the engine's usual value."""
    knobs = set().union(*rows)
    names = {field: used for field, aliases in KNOBS.items() if (used := [name for name in aliases if name in knobs])}
    pinned = {_FIELD_OF[name]: value for name, value in fixed.items() if name in _FIELD_OF}
    columns: dict[str, Sequence[Any]] = {field: [value] * len(rows) for field, value in pinned.items() if field not in names}
    for field, used in names.items():
        default = pinned.get(field)
        if len(used) == 1:
            columns[field] = [row.get(used[0], default) for row in rows]
        else:
            columns[field] = [next((row[name] for name in used if row.get(name) is not None), default) for row in rows]
        if words := _TRANSFORMER_ENGINE.get(used[0]):
            columns[field] = [words.get(str(value), value) for value in columns[field]]
    if any(row.get(KIND) in SHARDED for row in rows):
        columns["zero"] = [SHARDED.get(str(row.get(KIND)), 0.0) for row in rows]
    return _layout(columns, gpus, zero)


def _layout(columns: Mapping[str, Sequence[Any]], gpus: float, zero: float) -> ParallelLayout:
    def column(field: str, default: float) -> Any:
        """A column of numbers, none negative, or one number: numbers broadcast, and cost nothing."""
        values = columns.get(field)
        if values is None:
            return default
        if len(values) == 1:
            return default if values[0] in (None, "") else larger(0.0, number(values[0]))
        if set(map(type, values)) <= {int, float, bool}:
            return larger(0.0, np.array(values, dtype=np.float64))
        return larger(0.0, np.array([default if value in (None, "") else number(value) for value in values]))

    def share(field: str, default: float) -> Any:
        return smaller(1.0, column(field, default))

    def degree(field: str) -> Any:
        return larger(1.0, column(field, 1.0)) if field in columns else 1.0

    tp, pp, cp = degree("tp"), degree("pp"), degree("cp")
    dp = degree("dp") if "dp" in columns else larger(1.0, floor(gpus / (tp * pp * cp)))
    selective: Any = 0.0
    full = smaller(1.0, column("recompute", 0.0))
    if not set(map(type, columns.get("recompute", ()))) <= {bool, int, float}:
        chosen = [float(str(value).lower() in _SELECTIVE) for value in columns["recompute"]]
        selective = np.array(chosen) if len(chosen) > 1 else chosen[0]
        full = where(selective > 0, 0.0, full)
    if "recompute_share" in columns:
        full = full * share("recompute_share", 1.0)
    attention, fused = _kernels(columns.get("attention"))
    linear_bytes = _linear_bytes(columns.get("precision"))
    half = column("half_gradients", 0.0)
    sms = column("tp_comm_sms", 0.0)
    return ParallelLayout(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=degree("ep"),
        expert_tp=degree("expert_tp"),
        virtual_stages=degree("virtual_stages"),
        listed_stages=share("listed_stages", 0.0),
        micro_batch=degree("micro_batch"),
        number_bytes=where(linear_bytes > 2.0, 4.0, 2.0),
        linear_bytes=linear_bytes,
        sequence_parallel=where(tp > 1, column("sequence_parallel", 0.0), 0.0),
        recompute=full,
        selective=selective,
        **_modules(columns.get("recompute_modules")),
        zero=column("zero", zero),
        zero_group=column("zero_group", 0.0),
        attention=attention,
        norm_fused=larger(fused, share("norm_fused", 0.0)),
        act_fused=share("act_fused", 0.0),
        compiled=share("compiled", 0.0),
        tp_overlap=where(sms > 0, 1.0, share("tp_overlap", 0.0)),
        tp_comm_sms=sms,
        dp_overlap=share("dp_overlap", 1.0),
        gather_overlap=share("gather_overlap", 0.0),
        bucket_mb=column("bucket_mb", 0.0),
        bucket_count=column("bucket_count", 0.0),
        gradient_bytes=where(half > 0, 2.0, larger(1.0, column("gradient_bytes", 4.0))),
        sum_bytes=column("sum_bytes", 0.0),
        base_bytes=_base_bytes(columns.get("base_bytes")),
        narrow_inputs=share("narrow_inputs", 0.0),
        loss_parallel=share("loss_parallel", 0.0),
        loss_fused=share("loss_fused", 0.0),
        vocab_multiple=larger(1.0, column("vocab_multiple", 128.0)),
        trained_share=_trained_share(columns.get("trained_share")),
        stages_inner=share("stages_inner", 0.0),
    )


def _modules(values: Sequence[Any] | None) -> dict[str, Any]:
    """1 for each part that a list of names says is computed again."""
    if values is None:
        return {}
    words = [set(re.findall(r"[a-z_]+", str(value or "").lower())) for value in values]
    parts = {field: [float(bool(word & set(names))) for word in words] for field, names in MODULES.items()}
    return {field: np.array(column) if len(column) > 1 else column[0] for field, column in parts.items()}


def _linear_bytes(values: Sequence[Any] | None) -> Any:
    """Bytes of a number in the products of linear layers, from the name of a precision; an unknown one counts as bf16."""
    sizes = {value: LINEAR_BYTES[PRECISIONS.get(str(value).lower(), "bf16")] for value in set(values or ("bf16",))}
    return np.array([sizes[value] for value in values]) if values and len(values) > 1 else next(iter(sizes.values()))


def _trained_share(values: Sequence[Any] | None) -> Any:
    """Share of the weights that are trained, from a number or from the name of a method; unknown names train all."""
    if values is None:
        return 1.0

    def one(value: Any) -> float:
        if isinstance(value, str) and not value.replace(".", "").isdecimal():
            return ADAPTERS if any(name in value.lower() for name in ("lora", "adapter", "dora")) else 1.0
        return 1.0 if value is None else min(1.0, max(0.0, number(value)))

    return one(values[0]) if len(values) == 1 else np.array([one(value) for value in values])


def _base_bytes(values: Sequence[Any] | None) -> Any:
    """Bytes of a weight that is not trained, from a number or from the name of its format."""
    if values is None:
        return 2.0

    def one(value: Any) -> float:
        named = next((size for name, size in _BASE_BYTES.items() if name in str(value).lower()), None)
        return named if named is not None else (number(value) if isinstance(value, (int, float)) and value else 2.0)

    return one(values[0]) if len(values) == 1 else np.array([one(value) for value in values])


def _kernels(values: Sequence[Any] | None) -> tuple[Any, Any]:
    """(share of plain score passes, norms fused) from names such as `flash_attention2 + RMS kernel`, `fused`, `torch`."""
    if values is None:
        return 0.0, 0.0
    if len(values) == 1:
        return _kernel(values[0])
    by_name = {value: _kernel(value) for value in set(values)}
    pairs = np.array([by_name[value] for value in values])
    return pairs[:, 0], pairs[:, 1]


def _kernel(value: Any) -> tuple[float, float]:
    word = str(value).lower()
    if isinstance(value, float):
        return value, 0.0
    if value in (True, None, "") or "flash" in word or word in ("te", "auto", "sdpa", "efficient", "cudnn", "1"):
        old = "v1" in word or "attention1" in word  # the first flash kernels reach about half of the later ones' rate
        return (0.08 if old else 0.0), float("rms" in word)
    return (0.55 if "fused" in word and "unfused" not in word else 1.0), float("rms" in word)


def training_job(reading: TrainingTask, layout: ParallelLayout, kind: int = 0) -> TrainingJob:
    """The job on the cluster's GPUs number `kind`."""
    return TrainingJob(
        **model_fields(reading.shape),
        sequence=reading.sequence,
        global_batch=reading.global_batch,
        layout=layout,
        **hardware_fields(reading.cluster.groups[kind][0], reading.cluster, layout.linear_bytes),
    )


def stacked(jobs: Sequence[TrainingJob]) -> TrainingJob:
    """Many one-row jobs as one job of arrays."""
    plain = {
        item.name: np.array([float(np.asarray(getattr(job, item.name)).ravel()[0]) for job in jobs])
        for item in fields(TrainingJob)
        if item.name != "layout"
    }
    layout = {
        item.name: np.array([float(np.asarray(getattr(job.layout, item.name)).ravel()[0]) for job in jobs])
        for item in fields(ParallelLayout)
    }
    return TrainingJob(**plain, layout=ParallelLayout(**layout))


def rows_of(job: TrainingJob, chosen: NDArray[Any]) -> TrainingJob:
    """Some rows of a job of arrays."""

    def cut(value: Any) -> Any:
        return value[chosen] if isinstance(value, np.ndarray) and value.ndim else value

    plain = {item.name: cut(getattr(job, item.name)) for item in fields(TrainingJob) if item.name != "layout"}
    return TrainingJob(
        **plain, layout=ParallelLayout(**{item.name: cut(getattr(job.layout, item.name)) for item in fields(ParallelLayout)})
    )


__all__ = ["TrainingTask", "read_layout", "read_task", "rows_of", "stacked", "training_job"]
