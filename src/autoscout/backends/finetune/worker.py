"""One process of a fine-tuning run: `python -m autoscout.backends.finetune.worker train.json [STEPS] [FOLDER FOR THE RESULT]`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from autoscout import training
from autoscout.backends.finetune.batching import Row, micro_batches, rows, targets
from autoscout.training.builtin import adamw, say, start
from autoscout.training.gpt import close
from autoscout.training.protocol import Turns

IGNORED = -100  # a label without a loss, PyTorch's default
RATE = 2e-4


def main(path: str, steps: str = "", keep: str = "") -> int:
    """Train for as many steps as the file or the caller says, and save the result where a folder is given."""
    work, turns = json.loads(Path(path).read_text()), Turns()
    for knobs in turns:
        train(work, knobs, int(steps or work["steps"]), turns, keep)
    close()
    return 0


def train(work: Mapping[str, Any], knobs: Mapping[str, Any], count: int, turns: Turns, keep: str) -> None:
    """One configuration, from the same weights and examples as every other."""
    device = work["device"]
    here = start(knobs, device)
    training.stage("building")
    torch.manual_seed(work["seed"])
    with torch.device(here):  # random weights are made where they are used
        model = build(work, knobs).to(here)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model.train()
    wrapped: Any = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    if knobs.get("torch_compile"):
        wrapped.compile()
    optimizer = adamw([parameter for parameter in model.parameters() if parameter.requires_grad], str(knobs["optimizer"]))
    for group in optimizer.param_groups:
        group["lr"] = RATE
    examples = load_examples(work)
    share = int(work["global_batch"]) // world
    training.stage("training")
    for number in range(count):
        whole = [examples[(number * share * world + at) % len(examples)] for at in range(share * world)]
        loss = step(wrapped, whole, whole[rank * share : (rank + 1) * share], work, knobs, here, world)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        training.step(loss=loss, tokens=targets(whole[rank * share : (rank + 1) * share]), samples=share)
        say(number, loss if rank == 0 else None)
        if turns.is_over(here):
            return
    if keep and rank == 0:
        model.save_pretrained(keep)


def build(work: Mapping[str, Any], knobs: Mapping[str, Any]) -> Any:
    """The model, with adapters where they are wanted."""
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

    attention = str(knobs["attention"])
    half = knobs.get("precision") == "bf16-base"
    if work["random"]:
        config = LlamaConfig(**work["random"], max_position_embeddings=int(work["length"]))
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    elif any(Path(work["model"]).glob("*.safetensors")) or any(Path(work["model"]).glob("*.bin")):
        model = AutoModelForCausalLM.from_pretrained(
            work["model"], attn_implementation=attention, local_files_only=True, dtype=torch.float32
        )
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(work["model"]), attn_implementation=attention)
    model.config.use_cache = False
    if half:
        model = model.to(torch.bfloat16)
    if work["lora"]:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(work["seed"])
        model = get_peft_model(model, LoraConfig(**work["lora"]), autocast_adapter_dtype=True)
    if knobs["gradient_checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def load_examples(work: Mapping[str, Any]) -> list[list[int]]:
    """Token numbers of every example, in an order that is the same for all configurations."""
    length, draw = int(work["length"]), random.Random(work["seed"])
    if not work["examples"]:
        words = int((work["random"] or {}).get("vocab_size", 256))
        sizes = [min(length, max(4, int(draw.lognormvariate(0, 0.7) * length / 4))) for _ in range(int(work["global_batch"]) * 8)]
        return [[min(words - 1, int(draw.paretovariate(0.7))) for _ in range(size)] for size in sizes]
    lines = [json.loads(line) for line in Path(work["examples"]).read_text().splitlines() if line.strip()]
    if any("input_ids" not in line for line in lines):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(work["model"], local_files_only=True)
        lines = [line if "input_ids" in line else {"input_ids": tokenizer(line["text"])["input_ids"]} for line in lines]
    examples = [list(line["input_ids"])[:length] for line in lines]
    return [example for example in examples if len(example) > 1]


def step(
    model: Any,
    whole: Sequence[list[int]],
    own: Sequence[list[int]],
    work: Mapping[str, Any],
    knobs: Mapping[str, Any],
    here: str,
    world: int,
) -> float:
    """Forward and backward of one step; gives this process's mean loss per predicted token."""
    # Every predicted token of the whole step weighs the same, however examples are batched; DDP takes the mean over processes.
    scale, predicted = world / targets(whole), targets(own)
    autocast = str(knobs.get("precision", "")).startswith("bf16")
    batches = micro_batches(rows(own, str(knobs["batching"]), int(work["length"])), int(knobs["micro_batch"]))
    total = torch.zeros((), device=here)
    for number, batch in enumerate(batches):
        ids, labels, extra = rectangle(batch, here, packed=knobs["batching"] == "pack")
        last = number == len(batches) - 1
        wait = model.no_sync() if world > 1 and knobs.get("defer_sync") and not last else contextlib.nullcontext()
        with wait:
            with torch.autocast(here.split(":")[0], dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
                logits = model(input_ids=ids, **extra).logits
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum")
            (loss * scale).backward()
        total += loss.detach()
    return float(total) / predicted


def rectangle(batch: Sequence[Row], here: str, *, packed: bool) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Token numbers, what is to be predicted at each place, and the mask (and positions) that keep examples apart."""
    width = max(sum(map(len, row)) for row in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), IGNORED)
    positions = torch.zeros(len(batch), width, dtype=torch.long)
    owner = torch.full((len(batch), width), -1)
    for number, row in enumerate(batch):
        at = 0
        for which, example in enumerate(row):
            span = slice(at, at + len(example))
            ids[number, span] = torch.tensor(example)
            labels[number, at : at + len(example) - 1] = torch.tensor(example[1:])
            positions[number, span] = torch.arange(len(example))
            owner[number, span] = which
            at += len(example)
    if not packed:
        return ids.to(here), labels.to(here), {"attention_mask": (owner >= 0).long().to(here)}
    same = (owner[:, :, None] == owner[:, None, :]) & torch.ones(width, width, dtype=torch.bool).tril()
    return ids.to(here), labels.to(here), {"attention_mask": same[:, None].to(here), "position_ids": positions.to(here)}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
