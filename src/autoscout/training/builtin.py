"""One process of a run of the built-in model: `python -m autoscout.training.builtin train.json`.

Reads which model and how much work from the file, and the knobs from `$AUTOSCOUT_CONFIG`, as a training script of a user does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from autoscout import training
from autoscout.training.gpt import GPT, Data, ProcessGrid, build, close
from autoscout.training.protocol import DEPTH, Turns

RATE = 1e-3  # of AdamW, its default
STEPS_PER_LINE = 10  # every how many steps a run outside a trial tells its loss


def main(path: str, steps: str = "") -> int:
    """Train for as many steps as the file or the caller says; every step is reported."""
    work, turns = json.loads(Path(path).read_text()), Turns()
    for knobs in turns:
        train(work, knobs, int(steps or work["steps"]), turns)
    close()
    return 0


def train(work: Mapping[str, Any], knobs: dict[str, Any], count: int, turns: Turns) -> None:
    """One configuration, from the same weights and data as every other."""
    shape, device = built_shape(work), work["device"]
    here = start(knobs, device)
    training.stage("building")
    layout = ProcessGrid.make(knobs, device)
    torch.manual_seed(work["seed"])
    with torch.device(here):
        model = GPT(shape, knobs)
    batch = int(work["global_batch"])
    own = slice(layout.rank("dp") * (batch // layout.dp), (layout.rank("dp") + 1) * (batch // layout.dp))
    if layout.pp > 1:
        knobs["micro_batches"] = batch // layout.dp // int(knobs["micro_batch"])
    parameters, step = build(model, knobs, layout, device)
    optimizer = adamw(parameters, str(knobs.get("optimizer", "auto")))
    data = Data(shape, batch, work["seed"], count, here)
    counts = layout.rank("tp") == 0 and layout.rank("pp") == layout.pp - 1
    training.stage("training")
    for number in range(count):
        tokens, targets = data.step(number)
        loss = step(tokens[own], targets[own])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        rows = batch // layout.dp if counts else 0
        training.step(loss=loss, tokens=rows * shape["sequence"], samples=rows)
        say(number, loss if counts and layout.rank("dp") == 0 else None)
        if turns.is_over(here):
            return


def say(number: int, loss: float | None) -> None:
    """Tell a person how it goes, where nobody counts the steps; None on a process that leaves it to another."""
    if loss is not None and number % STEPS_PER_LINE == 0 and not os.environ.get(training.STEPS):
        print(f"step {number}: loss {loss:.4f}", flush=True)


def built_shape(work: Mapping[str, Any]) -> dict[str, int]:
    """The model's shape, with as many layers as this run is to build."""
    return {**work["shape"], "layers": int(os.environ.get(DEPTH) or work["shape"]["layers"])}


def start(knobs: Mapping[str, Any], device: str) -> str:
    """Threads, device and process group; gives the name of this process's device."""
    if "threads" in knobs:
        torch.set_num_threads(int(knobs["threads"]))
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.set_float32_matmul_precision("high" if knobs.get("precision") == "tf32" else "highest")
    if int(os.environ["WORLD_SIZE"]) > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    return f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" else "cpu"


def adamw(parameters: Iterable[torch.nn.Parameter], kind: str) -> torch.optim.Optimizer:
    """AdamW of one implementation. Sharded and plain parameters go into groups of their own, since one kernel cannot take both."""
    by_kind: dict[type, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        by_kind.setdefault(type(parameter.data), []).append(parameter)
    groups = [{"params": listed} for listed in by_kind.values()]
    chosen = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
    return torch.optim.AdamW(groups, lr=RATE, **chosen.get(kind, {}))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
