"""DeepSpeed's configuration file as a template: which knob goes where, and what one configuration makes of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autoscout.common.templates import fill, flatten, unflatten

FILE = "ds_config.json"
RATE = 1e-3  # of AdamW, PyTorch's default

TEMPLATE: dict[str, Any] = {
    "train_batch_size": "$global_batch",
    "train_micro_batch_size_per_gpu": "$micro_batch",
    "gradient_accumulation_steps": "$accumulation",
    "bf16": {"enabled": "$bf16"},
    "fp16": {"enabled": "$fp16"},
    "zero_optimization": {
        "stage": "$zero_stage",
        "overlap_comm": "$overlap_comm",
        "contiguous_gradients": "$contiguous_gradients",
        "reduce_scatter": "$reduce_scatter",
        "round_robin_gradients": "$round_robin_gradients",
        "reduce_bucket_size": "$reduce_bucket_size",
        "allgather_bucket_size": "$allgather_bucket_size",
        "stage3_prefetch_bucket_size": "$prefetch_bucket_size",
        "stage3_param_persistence_threshold": "$param_persistence_threshold",
        "stage3_max_live_parameters": "$max_live_parameters",
        "offload_optimizer": {"device": "$offload_optimizer", "pin_memory": "$pin_memory", "nvme_path": "$nvme_path"},
        "offload_param": {"device": "$offload_param", "pin_memory": "$pin_memory", "nvme_path": "$nvme_path"},
    },
    "optimizer": {"type": "AdamW", "params": {"lr": RATE, "torch_adam": "$torch_adam"}},
}
"""`$name` is a knob or a value that follows from knobs; an entry whose knob is inactive is left out."""

BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
OFFLOADS = ("offload_optimizer", "offload_param")
DERIVED = ("global_batch", "accumulation", "bf16", "fp16", "pin_memory", "nvme_path", "torch_adam")
PATHS = {path: hole[1:] for path, hole in flatten(TEMPLATE).items() if str(hole).startswith("$") and hole[1:] not in DERIVED}
"""The knob behind each setting of the file."""

OUR_OWN = {"autoscout": {"recompute": "$recompute", "threads": "$threads"}}
"""Knobs that are not DeepSpeed's; the grid must still tell configurations apart by them."""

STAGES = (
    ("precision",),
    ("zero_stage", "offload_optimizer", "offload_param"),
    ("micro_batch", "recompute"),
    ("overlap_comm", "reduce_bucket_size"),
)
"""What is settled first, then next. Precision comes first: it halves the memory that decides the ZeRO stage and the batch."""


def ds_config(
    config: Mapping[str, Any],
    knobs: Collection[str],
    *,
    global_batch: int,
    processes: int,
    nvme_path: str,
    base: Mapping[str, Any],
    own_optimizer: bool,
) -> dict[str, Any]:
    """The file for one configuration.

    Args:
        config: The active knobs.
        knobs: All knobs there are. What belongs to one of them is taken from the configuration alone: where it is off or inactive, the
            user's file loses it too.
        global_batch: Sequences of one optimizer step.
        processes: That share it.
        nvme_path: Folder for what is offloaded to disk; empty for none.
        base: The user's own file.
        own_optimizer: Whether the script brings its optimizer itself, so that the file names none.
    """
    precision = config.get("precision", "")
    offloaded = [config.get(name, "none") for name in OFFLOADS]
    values: dict[str, Any] = {
        **{name: value for name, value in config.items() if value is not None and not (name in OFFLOADS and value == "none")},
        "global_batch": global_batch,
        "accumulation": accumulation(config, global_batch, processes),
        **({"bf16": precision == "bf16", "fp16": precision == "fp16"} if precision else {}),
        # DeepSpeed's own CPU optimizer goes with offloading; otherwise PyTorch's needs no compiler.
        **({} if offloaded[0] != "none" else {"torch_adam": config.get("optimizer", "torch") == "torch"}),
        **({"nvme_path": nvme_path} if "nvme" in offloaded and nvme_path else {}),
        **({"pin_memory": True} if set(offloaded) != {"none"} else {}),
    }
    filled = fill(_template(base, knobs, own_optimizer=own_optimizer), values)
    zero, own = filled.get("zero_optimization", {}), base.get("zero_optimization") or {}
    for name in OFFLOADS:
        if "pin_memory" in (own.get(name) or {}):
            zero.get(name, {}).pop("pin_memory", None)
        if "device" not in zero.get(name, {}):
            zero.pop(name, None)
        elif zero[name]["device"] != "nvme":
            zero[name].pop("nvme_path", None)
    return _over(_without(base, config, knobs), filled)


def accumulation(config: Mapping[str, Any], global_batch: int, processes: int) -> int:
    """Micro-batches of one optimizer step of a process."""
    return global_batch // processes // int(config["micro_batch"])


def _template(base: Mapping[str, Any], knobs: Collection[str], *, own_optimizer: bool) -> dict[str, Any]:
    """The template, with the user's further knobs; what the file leaves to the Trainer stays with it."""
    further = unflatten({name: f"${{{name}}}" for name in knobs if "." in name})
    names = {name for name in BATCHES if _is_trainers(name, base.get(name))}
    if own_optimizer or "optimizer" in base:
        names.add("optimizer")
    return _over({name: part for name, part in TEMPLATE.items() if name not in names}, further)


def _without(base: Mapping[str, Any], config: Mapping[str, Any], knobs: Collection[str]) -> dict[str, Any]:
    """The user's file without what knobs decide."""
    leaves = flatten(base).items()
    left = {path: value for path, value in leaves if _is_trainers(path, value) or (PATHS.get(path) not in knobs and path not in knobs)}
    for name in OFFLOADS:
        if name in knobs and config.get(name, "none") == "none":
            left = {path: value for path, value in left.items() if not path.startswith(f"zero_optimization.{name}")}
    return unflatten(left)


def _is_trainers(path: str, value: Any) -> bool:
    """Whether a size of the batch is left to the Trainer, which takes it from its flags."""
    return path in BATCHES and value == "auto"


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` over `base`, section by section."""
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        merged[name] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
