"""Trains with one DeepSpeed file after the other in the same processes: `-m benchmarks._deepspeed_worker work.json out.jsonl`."""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

WARM_UP, STEPS = 2, 6


def main(work: str, out: str) -> int:
    """Measure every file of the work, in its order; rank 0 writes a line for each."""
    told = json.loads(Path(work).read_text())
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    for entry in told["entries"]:
        seconds = measure(deepspeed, told, entry["file"])
        if distributed.get_rank() == 0:
            with Path(out).open("a") as lines:
                lines.write(json.dumps({"round": entry["round"], "key": entry["key"], "seconds": seconds}) + "\n")
        gc.collect()
    distributed.destroy_process_group()
    return 0


def measure(deepspeed: Any, told: dict[str, Any], file: dict[str, Any]) -> float:
    """Median seconds of a step of the whole batch."""
    from autoscout.training.gpt import GPT, Data

    rank, world, batch = distributed.get_rank(), distributed.get_world_size(), told["global_batch"]
    torch.manual_seed(0)
    model = GPT(told["shape"], {})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=json.loads(json.dumps(file)))
    share, micro = batch // world, int(file["train_micro_batch_size_per_gpu"])
    data, taken = Data(told["shape"], batch, 0, WARM_UP + STEPS, "cpu"), []
    for number in range(WARM_UP + STEPS):
        tokens, targets = (part[rank * share : (rank + 1) * share] for part in data.step(number))
        distributed.barrier()
        began = time.monotonic()
        for x, y in zip(tokens.split(micro), targets.split(micro), strict=True):
            engine.backward(engine(x, y))
            engine.step()
        distributed.barrier()
        taken.append(time.monotonic() - began)
    engine.destroy()
    return statistics.median(taken[WARM_UP:])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
