"""DeepSpeed's configuration file as a template: which knob goes where, and what one configuration makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.common.templates import fill

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

OUR_OWN = {"autoscout": {"recompute": "$recompute", "threads": "$threads"}}
"""Knobs that are not DeepSpeed's; the grid must still tell configurations apart by them."""

STAGES = (
    ("zero_stage", "offload_optimizer", "offload_param"),
    ("micro_batch", "recompute"),
    ("precision",),
    ("overlap_comm", "reduce_bucket_size"),
)
"""What DeepSpeed's own tuning settles first, then next: memory, batch, precision, communication."""


def ds_config(config: Mapping[str, Any], *, global_batch: int, processes: int, nvme_path: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """The file for one configuration.

    Args:
        config: The knobs.
        global_batch: Sequences of one optimizer step.
        processes: That share it.
        nvme_path: Folder for what is offloaded to disk; empty for none.
        base: The user's own file; what the knobs say counts more.
    """
    micro = int(config["micro_batch"])
    precision = config.get("precision", "fp32")
    nvme = "nvme" in (config.get("offload_optimizer"), config.get("offload_param"))
    offloads = any(config.get(name, "none") != "none" for name in ("offload_optimizer", "offload_param"))
    values: dict[str, Any] = {
        **{name: value for name, value in config.items() if value != "none"},
        "global_batch": global_batch,
        "accumulation": global_batch // processes // micro,
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        # DeepSpeed's own CPU optimizer goes with offloading; otherwise PyTorch's needs no compiler.
        **({} if config.get("offload_optimizer", "none") != "none" else {"torch_adam": config.get("optimizer", "torch") == "torch"}),
        **({"nvme_path": nvme_path} if nvme else {}),
        **({"pin_memory": True} if offloads else {}),
    }
    template = {name: part for name, part in TEMPLATE.items() if name != "optimizer" or "optimizer" not in base}
    filled = fill(template, values)
    zero = filled["zero_optimization"]
    for name in ("offload_optimizer", "offload_param"):
        if "device" not in zero.get(name, {}):
            zero.pop(name, None)
        elif zero[name]["device"] != "nvme":
            zero[name].pop("nvme_path", None)
    return _over(base, filled)


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` over `base`, section by section."""
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        merged[name] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
