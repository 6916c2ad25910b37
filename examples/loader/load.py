"""Reads training samples in random order from an SQLite file, as a data loader does; prints samples per second of CPU time.

Needs the standard library alone. Made for `campaign.yaml` in this folder: every argument is a knob there.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import sqlite3
import time
from pathlib import Path

SAMPLES, FEATURES, BATCH, PASSES = 8_192, 64, 256, 4


def write(path: Path, packing: str, page_size: int) -> None:
    """A file with all samples."""
    rng = random.Random(0)
    base = sqlite3.connect(path)
    base.execute(f"PRAGMA page_size={page_size}")
    base.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, features BLOB)")
    rows = ([round(rng.random(), 4) for _ in range(FEATURES)] for _ in range(SAMPLES))
    packed = (json.dumps(row) if packing == "json" else array.array("f", row).tobytes() for row in rows)
    base.executemany("INSERT INTO samples VALUES (?, ?)", enumerate(packed))
    base.commit()
    base.close()


def unpack(data: str | bytes) -> array.array[float]:
    """The features of a sample."""
    return array.array("f", json.loads(data) if isinstance(data, str) else data)


def main() -> None:
    """Several passes over all samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--packing", choices=["json", "float32"], required=True)
    parser.add_argument("--rows-per-query", type=int, required=True)
    parser.add_argument("--page-size", type=int, required=True)
    parser.add_argument("--cache-kb", type=int, required=True)
    parser.add_argument("--order", choices=["random", "sorted"], required=True)
    args = parser.parse_args()
    path = Path(f"samples-{os.getpid()}.db")
    write(path, args.packing, args.page_size)
    numbers = list(range(SAMPLES))
    random.Random(1).shuffle(numbers)
    begun_s = time.process_time()
    base = sqlite3.connect(path)
    base.execute(f"PRAGMA cache_size=-{args.cache_kb}")
    total = 0.0
    for start in [*range(0, SAMPLES, BATCH)] * PASSES:
        batch = numbers[start : start + BATCH]
        if args.order == "sorted":  # inside a batch, which changes nothing for training
            batch.sort()
        for first in range(0, BATCH, args.rows_per_query):
            part = batch[first : first + args.rows_per_query]
            marks = ",".join("?" * len(part))
            for (data,) in base.execute(f"SELECT features FROM samples WHERE id IN ({marks})", part):
                total += unpack(data)[0]
    spent_s = time.process_time() - begun_s
    path.unlink()
    print(f"checksum {total:.3f}")
    print(f"samples_per_cpu_s {PASSES * SAMPLES / spent_s:.1f}")


if __name__ == "__main__":
    main()
