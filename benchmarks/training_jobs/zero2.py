"""A DeepSpeed script with a file of settings: `torchrun --nproc-per-node 2 zero2.py --deepspeed_config zero2.json`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from gpt import GPT, LENGTH, ROWS, STEPS, say, share
from torch import distributed

import deepspeed
from autoscout import training


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--deepspeed_config", type=Path, required=True)
    settings = json.loads(flags.parse_args().deepspeed_config.read_text())
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = GPT()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for step in range(STEPS):
        pieces = share(step, rank, world).split(engine.train_micro_batch_size_per_gpu())
        total = 0.0
        for rows in pieces:
            loss = engine(rows)
            engine.backward(loss)
            engine.step()
            total += loss.item() / len(pieces)
        training.step(loss=total, tokens=ROWS // world * LENGTH)
        if rank == 0:
            say(step, total)


if __name__ == "__main__":
    main()
