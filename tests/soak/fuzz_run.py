"""Runs mutated inputs through a reader, within bounds of time and memory.

    python tests/soak/fuzz_run.py FIRST READER=COUNT...

runs COUNT inputs through each READER, beginning with number FIRST, and prints what it found as a line of JSON for each. The same number
is always the same input, so that a run can be repeated from any point.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz_mutate import mutate
from fuzz_readers import MOST_MESSAGE, READERS, Reader

from autoscout.core.errors import AutoScoutError

MOST_S = 5.0  # processor seconds for one input
MOST_BYTES = 2 * 2**30  # memory for one input, on top of what the program takes by itself


class TooSlow(BaseException):
    """Not an Exception: nobody may catch it on the way."""


def input_of(reader: Reader, number: int) -> bytes:
    """The mutated input of that number, the same everywhere."""
    rng = random.Random(f"{reader.name} {number}")
    return mutate(rng, rng.choice(reader.seeds()), reader.form)


def try_one(reader: Reader, data: bytes, folder: Path) -> str:
    """What is wrong with how the reader takes this input; empty when nothing is."""
    path = folder / f"input{reader.suffix}"
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        reader.read(path)
    except AutoScoutError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if len(str(error)) > MOST_MESSAGE:
            return f"a message of {len(str(error))} characters"
        if not error.faults or not error.faults[0].rule:
            return "an error without a rule"
    except TooSlow as error:
        return f"slow: {_place(error)}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:100]!r} {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "autoscout" in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-3:]))


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """At most `limit` bytes of addresses more than now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_slow(_signal: int, _frame: Any) -> None:
    raise TooSlow


def fuzz(name: str, first: int, count: int, most: int = 20) -> dict[str, Any]:
    """Run inputs `first` to `first + count` through a reader; findings of one kind are kept once."""
    reader = READERS[name]
    findings: dict[str, dict[str, Any]] = {}
    ran = 0
    signal.signal(signal.SIGPROF, _too_slow)
    with tempfile.TemporaryDirectory() as folder:
        for seed in reader.seeds():
            wrong = try_one(reader, seed, Path(folder))
            if wrong:
                findings.setdefault(f"seed: {wrong}", {"number": -1, "kind": wrong, "input": repr(seed[:300])})
        with bounded_memory(MOST_BYTES):
            for number in range(first, first + count):
                data = input_of(reader, number)
                wrong = try_one(reader, data, Path(folder))
                ran += 1
                key = wrong.rpartition(" ")[2] if wrong and "<" in wrong else wrong[:60]
                if wrong and key not in findings:
                    findings[key] = {"number": number, "kind": wrong, "input": repr(data[:400])}
                    if len(findings) >= most:
                        break
    return {"reader": name, "ran": ran, "findings": list(findings.values())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("counts", nargs="+", metavar="READER=COUNT", help=f"READER: {', '.join(READERS)}")
    given = parser.parse_args()
    for each in given.counts:
        which, _, number = each.partition("=")
        print(json.dumps(fuzz(which, given.first, int(number))), flush=True)
