"""What one configuration means for Hugging Face's own classes, for scripts that use the Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.backends.finetune.workload import Workload

OPTIMIZERS = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "loop": "adamw_torch"}


def trainer_arguments(config: Mapping[str, Any], workload: Workload, processes: int) -> dict[str, Any]:
    """Fields of `TrainingArguments`, and of TRL's `SFTConfig` where examples are packed."""
    micro = int(config["micro_batch"])
    found: dict[str, Any] = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": max(1, workload.global_batch // processes // micro),
        "gradient_checkpointing": bool(config["gradient_checkpointing"]),
        "bf16": str(config.get("precision", "")).startswith("bf16"),
        "optim": OPTIMIZERS[str(config["optimizer"])],
        "torch_compile": bool(config.get("torch_compile", False)),
    }
    if config.get("precision") == "tf32":
        found["tf32"] = True
    if config["batching"] == "sort":
        found["train_sampling_strategy"] = "group_by_length"
    if config["batching"] == "pack":
        found |= {"packing": True, "max_length": workload.length}
    return found


def lora_arguments(config: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Fields of peft's `LoraConfig`."""
    rank = int(config.get("lora_rank", workload.rank))
    targets = config.get("lora_targets", workload.targets)
    listed = targets if isinstance(targets, list) or targets == "all-linear" else str(targets).split(",")
    return {"r": rank, "lora_alpha": 2 * rank, "target_modules": listed, "task_type": "CAUSAL_LM"}
