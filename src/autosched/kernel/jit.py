"""One switch between compiled and interpreted kernels.

With Numba installed (extra `sched`) kernels are compiled once per machine and kept on disk; without it the same functions run as
plain Python, some hundred times slower and with the same results. Policies reach the event loop as first-class functions
with one fixed signature, because only then can a compiled loop be kept on disk while policies come and go. Policies from outside
this package are compiled in every process, since nothing would notice when the helpers they call have changed.

Compiled kernels are kept in `$XDG_CACHE_HOME/autoscout/kernels` (or below `NUMBA_CACHE_DIR`), in a folder named after the digest of
all kernel sources: Numba itself looks only at the file that defines a kernel, not at what it calls. The folder may be deleted at
any time.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from autosched.kernel.records import CLUSTER, JOB, NODE, OPTIONS, Allocations, PolicyView

Function = TypeVar("Function", bound=Callable[..., Any])

numba: Any = importlib.import_module("numba") if importlib.util.find_spec("numba") else None  # the extra may be missing

COMPILED: bool = numba is not None and not numba.config.DISABLE_JIT

_PACKAGES = Path(__file__).resolve().parents[2]
_KEPT = ("autosched.kernel", "autoscout_lab.reference")
"""Packages whose kernels are kept; the laboratory's lies next to this one, and is read here only as text."""
_RANK: Any = None
_WAKE: Any = None
_LOOP: Any = None
_folder: str = ""

if COMPILED:
    _TYPES: Any = numba.types
    _VECTOR = _TYPES.float64[::1]
    _VIEW = _TYPES.NamedTuple(
        [
            _TYPES.float64,
            _TYPES.int64[::1],
            _TYPES.Array(numba.from_dtype(JOB), 1, "C", aligned=False),
            numba.from_dtype(CLUSTER),
            *(_VECTOR,) * 6,
        ],
        PolicyView,
    )
    _INDEX = _TYPES.int64[::1]
    _ROWS = _TYPES.int64[:, ::1]
    _ALLOCATIONS = _TYPES.NamedTuple([_ROWS, _INDEX, _VECTOR, _INDEX, _INDEX, _TYPES.float64[:, ::1], _ROWS, _VECTOR], Allocations)
    _RANK = _TYPES.void(_VIEW)
    _WAKE = _TYPES.float64(_VIEW)
    _LOOP = (
        _TYPES.FunctionType(_RANK),
        _TYPES.FunctionType(_WAKE),
        _TYPES.Array(numba.from_dtype(JOB), 1, "C", aligned=False),
        _TYPES.Array(numba.from_dtype(NODE), 1, "C", aligned=False),
        _TYPES.Array(numba.from_dtype(CLUSTER), 1, "C", aligned=False),
        _INDEX,  # jobs in the system
        _ALLOCATIONS,
        _VECTOR,  # services of the latest ends
        _VECTOR,  # params
        _VECTOR,  # memory of the policy
        _TYPES.Array(numba.from_dtype(OPTIONS), 1, "C", aligned=False),
    )
    _sources = sorted(path for package in _KEPT for path in (_PACKAGES / package.replace(".", "/")).glob("*.py"))
    _digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
    _base = Path(
        numba.config.CACHE_DIR or Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "autoscout" / "kernels"
    )
    try:
        (_base / _digest).mkdir(parents=True, exist_ok=True)
        _folder = str(_base / _digest)
    except OSError:  # nowhere to write: Numba finds a place or compiles every time
        _folder = numba.config.CACHE_DIR


def _compile(function: Function, signature: Any = None, **options: Any) -> Function:
    if not COMPILED:
        return function
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _folder  # read while a function is decorated
    try:
        keep = function.__module__.rpartition(".")[0] in _KEPT
        decorate = numba.njit(*([] if signature is None else [signature]), cache=keep, error_model="numpy", nogil=True, **options)
        compiled: Function = decorate(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def jit(function: Function) -> Function:
    """Compile a function; its types follow from its callers."""
    return _compile(function, no_cfunc_wrapper=True)


def loop(function: Function) -> Function:
    """Compile an event loop that takes its policy as functions."""
    return _compile(function, _LOOP, no_cfunc_wrapper=True)


def rank(function: Function) -> Function:
    """Mark the function of a policy that orders jobs; see `ranked.py` for its contract."""
    return _compile(function, _RANK)


def wake(function: Function) -> Function:
    """Mark the function of a policy that says when its order next changes by itself."""
    return _compile(function, _WAKE)
