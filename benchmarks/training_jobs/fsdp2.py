"""A plain FSDP2 script: `torchrun --nproc-per-node 2 fsdp2.py`. What AutoScout needs of it is the line `training.step(...)`."""

from __future__ import annotations

import argparse

import torch
from gpt import GPT, LENGTH, ROWS, STEPS, say, share
from torch import distributed
from torch.distributed.fsdp import fully_shard

from autoscout import training


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--micro-batch", type=int, default=2)
    flags.add_argument("--wrap", choices=["layer", "model"], default="layer")
    flags.add_argument("--reshard", choices=["yes", "no"], default="yes", help="free gathered parameters after the forward pass")
    flags.add_argument("--exchange", choices=["each", "last"], default="each", help="gradients of which micro-batches")
    given = flags.parse_args()
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = GPT()
    for layer in model.layers if given.wrap == "layer" else ():
        fully_shard(layer, reshard_after_forward=given.reshard == "yes")
    fully_shard(model, reshard_after_forward=given.reshard == "yes")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        pieces = share(step, rank, world).split(given.micro_batch)
        total = 0.0
        for number, rows in enumerate(pieces):
            model.set_requires_gradient_sync(given.exchange == "each" or number + 1 == len(pieces))
            loss = model(rows) / len(pieces)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        training.step(loss=total, tokens=ROWS // world * LENGTH)
        if rank == 0:
            say(step, total)


if __name__ == "__main__":
    main()
