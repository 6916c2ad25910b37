"""One process of a run of the built-in model under DeepSpeed: `python -m autoscout.backends.deepspeed.worker train.json ds_config.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from autoscout import training
from autoscout.training.builtin import built_shape, say
from autoscout.training.gpt import GPT, Data, close


def main(path: str, ds_config: str, steps: str = "") -> int:
    """Train for as many steps as the file or the caller says; every step is reported."""
    work, knobs = json.loads(Path(path).read_text()), training.config()
    settings = json.loads(Path(ds_config).read_text())
    shape, device = built_shape(work), work["device"]
    if device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    if "threads" in knobs:
        torch.set_num_threads(int(knobs["threads"]))
    deepspeed.init_distributed("nccl" if device == "cuda" else "gloo", auto_mpi_discovery=False)
    training.stage("building")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here = f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(here)
    torch.manual_seed(work["seed"])
    model = GPT(shape, knobs)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    batch, micro = int(work["global_batch"]), int(settings["train_micro_batch_size_per_gpu"])
    share = batch // world
    count = int(steps or work["steps"])
    data = Data(shape, batch, work["seed"], count, here)
    training.stage("training")
    for number in range(count):
        tokens, targets = (part[rank * share : (rank + 1) * share] for part in data.step(number))
        total, pieces = 0.0, share // micro
        for x, y in zip(tokens.split(micro), targets.split(micro), strict=True):
            loss = engine(x, y)
            engine.backward(loss)
            engine.step()
            total += float(loss.detach()) / pieces
        if device == "cuda":
            torch.cuda.synchronize()
        training.step(loss=total, tokens=share * shape["sequence"], samples=share)
        say(number, total if rank == 0 else None)
    close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
