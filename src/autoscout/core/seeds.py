"""One seed, many named streams: the only place that makes random numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random generator named by `names` under `seed`.

    The same seed and names give the same numbers in every process and on every machine; different names give
    independent streams. A searcher draws round r from `stream(seed, "search", r)`, so that replaying the stored
    trials brings back the same proposals.
    """
    return np.random.default_rng(number(seed, *names))


def number(seed: int, *names: str | int) -> int:
    """A 64-bit seed for somebody else's generator (an engine, a load generator), named like a stream."""
    text = "/".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
