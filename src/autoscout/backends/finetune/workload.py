"""The workload of the `finetune` backend: which model, which method, which examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from autoscout.common.fields import read_fields
from autoscout.common.text import suggestion
from autoscout.core.errors import Fault
from autoscout.training.workload import WHERE, TrainingWorkload

RANDOM: dict[str, dict[str, int]] = {
    "random-micro": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256},
    "random": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 4096},
    "random-300m": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "vocab_size": 32000,
    },
    "random-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "vocab_size": 128256},
}
"""Llama models with random weights, which need no download; `random-micro` is for tests."""
LENGTH = {"random-micro": 48, "random": 256}  # longest example; 1,024 for all others
ROWS = 8  # `per_device_train_batch_size` of the Trainer


class FinetuneWorkload(TrainingWorkload):
    """What is fine-tuned.

    Attributes:
        model: A folder with a Hugging Face model, or the name of a random one. A folder without weights gets random ones.
        method: Of all parameters, or of low-rank adapters.
        examples: A file of JSON lines with `text` or `input_ids`; made-up examples of different lengths when empty.
        length: Longest example, in tokens; longer ones are cut.
        global_batch: Examples of one optimizer step, the same for every configuration.
        rank: Of the adapters.
        targets: Modules that get adapters, or `all-linear`.
        free_lora: Offer rank and targets as knobs; otherwise they are the user's choice and stay.
    """

    model: str = ""
    method: Literal["lora", "full"] = "lora"
    examples: str = ""
    length: int = Field(0, ge=0)
    global_batch: int = Field(0, ge=0)
    rank: int = Field(8, ge=1)
    targets: list[str] | str = "all-linear"
    free_lora: bool = False


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[FinetuneWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(FinetuneWorkload, data, WHERE)
    workload = read or FinetuneWorkload()
    name = workload.model or ("random-300m" if hardware["device"] == "cuda" else "random")
    processes = int(hardware["processes"])
    filled = workload.model_copy(
        update={
            "model": name if name in RANDOM else str(Path(name).expanduser().absolute()),
            "examples": str(Path(workload.examples).expanduser().absolute()) if workload.examples else "",
            "length": workload.length or LENGTH.get(name, 1024),
            "global_batch": workload.global_batch or (4 * ROWS if hardware["device"] == "cuda" else ROWS) * processes,
        }
    )
    faults += [*_model(filled.model), *_examples(filled.examples)]
    if filled.global_batch % processes:
        rule = f"every one of the {processes} processes must get the same share of a batch"
        fix = f"Take a multiple of {processes}"
        faults.append(Fault(where=WHERE, field="global_batch", value=str(filled.global_batch), rule=rule, fix=fix))
    return filled, faults


def _model(name: str) -> list[Fault]:
    if name in RANDOM:
        return []
    path = Path(name) / "config.json"
    try:
        data = json.loads(path.read_text())
        if isinstance(data, dict) and "model_type" in data:
            return []
        rule = "its config.json must be that of a Hugging Face model, with a model_type"
    except (OSError, ValueError) as error:
        rule = f"must be a folder with a Hugging Face model: its config.json cannot be read ({error})"
    return [Fault(where=WHERE, field="model", value=repr(name), rule=rule, fix=suggestion(Path(name).name, RANDOM))]


def _examples(path: str) -> list[Fault]:
    if not path:
        return []
    try:
        with Path(path).open(encoding="utf-8") as file:
            first = json.loads(file.readline())
        if isinstance(first, dict) and ("text" in first or "input_ids" in first):
            return []
        rule = "every line must be a JSON object with `text` or `input_ids`"
    except (OSError, ValueError) as error:
        rule = f"must be a file of JSON lines: {error}"
    return [Fault(where=WHERE, field="examples", value=repr(path), rule=rule)]
