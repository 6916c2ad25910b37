"""One switch between compiled and interpreted kernels.

With Numba installed (extra `sched`) kernels are compiled once per machine and kept on disk; without it the same functions run as
plain Python, some hundred times slower and with the same results. Policies reach the event loop as first-class functions
with one fixed signature, because only then can a compiled loop be kept on disk while policies come and go. Policies from outside
this package are compiled in every process, since nobody would notice when the helpers they call have changed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

numba: Any = importlib.import_module("numba") if importlib.util.find_spec("numba") else None  # the extra may be missing

COMPILED: bool = numba is not None and not numba.config.DISABLE_JIT

RANK: Any = None
WAKE: Any = None
LOOP: Any = None

if COMPILED:
    types: Any = numba.types
    _TIME = types.float64
    _VECTOR = types.float64[::1]
    _INDEX = types.int64[::1]
    _TABLE = types.float64[:, ::1]
    RANK = types.void(_TIME, _INDEX, types.int64, _TABLE, _VECTOR, _VECTOR, _VECTOR, _VECTOR, _VECTOR, _VECTOR)
    WAKE = types.float64(_TIME, _INDEX, types.int64, _TABLE, _VECTOR, _VECTOR, _VECTOR)
    LOOP = (
        types.FunctionType(RANK),
        types.FunctionType(WAKE),
        _TABLE,  # jobs
        _TABLE,  # nodes
        _TABLE,  # params, one row per configuration in force
        _VECTOR,  # when each row takes over
        _VECTOR,  # memory of the policy
        _TABLE,  # options of the loop, one row per configuration in force
    )


_HERE = Path(__file__).parent
_INSIDE = __name__.rsplit(".", 1)[0]


def _forget_stale() -> None:
    """Drop kernels kept on disk when any source here changed: Numba looks only at the file a kernel stands in, not at what it calls."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.py")))).hexdigest()
    kept = _HERE / "__pycache__"
    stamp = kept / "kernels.stamp"
    try:
        if not stamp.exists() or stamp.read_text() != digest:
            for path in [*kept.glob("*.nbi"), *kept.glob("*.nbc")]:
                path.unlink(missing_ok=True)
            kept.mkdir(exist_ok=True)
            stamp.write_text(digest)
    except OSError:  # installed read-only: its sources cannot change either
        return


if COMPILED:
    _forget_stale()


def _compile(function: Function, signature: Any = None) -> Function:
    if not COMPILED:
        return function
    options = {"cache": function.__module__.startswith(_INSIDE), "error_model": "numpy", "nogil": True}
    compiled: Function = numba.njit(**options)(function) if signature is None else numba.njit(signature, **options)(function)
    return compiled


def jit(function: Function) -> Function:
    """Compile a helper for use inside kernels; its types follow from its callers."""
    return _compile(function)


def loop(function: Function) -> Function:
    """Compile an event loop that takes its policy as functions."""
    return _compile(function, LOOP)


def rank(function: Function) -> Function:
    """Mark the function of a policy that orders jobs; see `ranked.py` for its contract."""
    return _compile(function, RANK)


def wake(function: Function) -> Function:
    """Mark the function of a policy that says when its order next changes by itself."""
    return _compile(function, WAKE)
