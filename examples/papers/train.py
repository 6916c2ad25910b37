"""Trains a small network in numpy as a DeepSpeed configuration says, and reports its steps: one line of JSON each."""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

WIDTH, STEPS = 64, 60

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed_config", type=Path, required=True)
settings = json.loads(parser.parse_args().deepspeed_config.read_text())
micro_batch, batch = settings["train_micro_batch_size_per_gpu"], settings["train_batch_size"]
bucket = settings.get("zero_optimization", {}).get("reduce_bucket_size", 500_000)

draw = np.random.default_rng(0)
weights = [draw.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)) for _ in range(2)]
log = Path(os.environ["AUTOSCOUT_STEPS"]) / f"rank{os.environ.get('RANK', '0')}.jsonl"
with log.open("a") as lines:
    for _ in range(STEPS):
        total = [np.zeros_like(weight) for weight in weights]
        loss = 0.0
        for _ in range(batch // micro_batch):  # accumulation
            inputs = draw.normal(size=(micro_batch, WIDTH))
            hidden = np.tanh(inputs @ weights[0])
            error = hidden @ weights[1] - np.sin(inputs)
            loss += float((error**2).sum()) / batch
            back = error @ weights[1].T * (1 - hidden**2)
            for sums, gradient in zip(total, (inputs.T @ back, hidden.T @ error), strict=True):
                flat, added = sums.reshape(-1), gradient.reshape(-1)
                for start in range(0, flat.size, bucket):  # reduced bucket by bucket
                    flat[start : start + bucket] += added[start : start + bucket]
        for weight, gradient in zip(weights, total, strict=True):
            weight -= 0.01 * gradient / batch
        lines.write(json.dumps({"at_s": time.monotonic(), "loss": loss, "tokens": batch}) + "\n")
        lines.flush()
