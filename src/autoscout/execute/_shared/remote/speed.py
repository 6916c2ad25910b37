"""How fast a machine is: a short, fixed piece of work."""

from __future__ import annotations

import hashlib
import time

ROUNDS = 3
_BLOCK = bytes(1 << 20)
_BLOCKS = 16


def probe_s() -> float:
    """Seconds for the work on one core: hashing and copying, some hundredths of a second; the least disturbed of a few rounds."""
    return min(_round_s() for _ in range(ROUNDS))


def _round_s() -> float:
    started_s = time.perf_counter()
    digest = hashlib.sha256()
    for _ in range(_BLOCKS):
        digest.update(bytearray(_BLOCK))
    return time.perf_counter() - started_s
