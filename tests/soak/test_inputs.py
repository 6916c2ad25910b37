"""Broken input of every kind, by the hundred thousand: the project's own errors, bounded in length, time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fuzz_readers import READERS

INPUTS = int(os.environ.get("FUZZ_INPUTS", "1000000"))  # of a soak run, over all readers
FIRST = int(os.environ.get("FUZZ_FIRST", "1000"))  # number of the first input of each reader: another one gives other inputs
CHUNK = 4000  # inputs of one process: memory that leaks shows, and a crash loses little
QUICK = 60  # inputs of each reader in the ordinary suite


def fuzz(name: str, first: int, count: int) -> dict[str, Any]:
    program = [sys.executable, str(Path(__file__).parent / "fuzz_run.py"), str(first), f"{name}={count}"]
    done = subprocess.run(program, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, f"{name} from {first}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(done: list[dict[str, Any]]) -> None:
    wrong = [
        f"{part['reader']} {finding['number']}: {finding['kind']}\n    {finding['input']}" for part in done for finding in part["findings"]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("group", range(6))
def test_some_inputs_of_every_kind(group: int) -> None:
    names = list(READERS)[group::6]
    program = "import json, sys; sys.path.insert(0, sys.argv[1]); from fuzz_run import fuzz\n"
    program += f"print(json.dumps([fuzz(name, 0, {QUICK}) for name in sys.argv[2:]]))"
    done = subprocess.run([sys.executable, "-c", program, str(Path(__file__).parent), *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    check(json.loads(done.stdout))


@pytest.mark.soak
def test_inputs_by_the_hundred_thousand(capsys: pytest.CaptureFixture[str]) -> None:
    shares = sum(reader.share for reader in READERS.values())
    jobs = []
    for name, reader in READERS.items():
        count = -(-INPUTS * reader.share // shares)
        jobs += [(name, FIRST + start, min(CHUNK, count - start)) for start in range(0, count, CHUNK)]
    with ThreadPoolExecutor(max_workers=int(os.environ.get("JOBS", "0")) or os.cpu_count()) as pool:
        done = list(pool.map(lambda job: fuzz(*job), jobs))
    with capsys.disabled():
        print(f"\n{sum(part['ran'] for part in done):,} mutated inputs through {len(READERS)} readers")
    check(done)
