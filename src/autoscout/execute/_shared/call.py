"""A Python call in a process of its own: packed here, unpacked and run there.

Run as a script by the supervisor; `multiprocessing.spawn` brings the caller's import path and its main module over, so that
functions of a user's script can be called.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoscout.core.errors import LaunchError
    from autoscout.core.launch import Completed

REIMPORTING = "AUTOSCOUT_REIMPORTING_MAIN"
"""Set while the new process imports the caller's script, which must not start trials of its own while that happens."""

CALL, RESULT = "call.pickle", "result.pickle"


def refuse_while_reimporting() -> None:
    """Raise `LaunchError` in a process that is only importing the caller's script to find a function in it."""
    if REIMPORTING in os.environ:
        raise _fault(
            where="script",
            rule="calls run in a new process, which imports your script again and must not start trials while doing so",
            fix="Put the code that starts the study below `if __name__ == '__main__':`",
        )


def pack_call(call: Callable[[], Any], name: str) -> bytes:
    """The call and what it needs to find its code again.

    Raises:
        LaunchError: it does not pickle.
    """
    preparation = spawn.get_preparation_data("autoscout-call")
    preparation.pop("authkey", None)  # a secret of this process; not needed there, and the file stays on disk
    try:
        return pickle.dumps((preparation, pickle.dumps(call)))
    except Exception as error:  # whatever a user's own reduce methods raise
        raise _fault(
            where=f"launch {name}".strip(),
            field="call",
            value=repr(call)[:200],
            rule=f"a call that leaves this process must pickle: {error}",
            fix="Define the function at the top level of a module, or use the inline executor",
        ) from error


def call_command(folder: Path, packed: bytes) -> list[str]:
    """The command that runs a packed call in `folder`."""
    (folder / CALL).write_bytes(packed)
    return [sys.executable, "-P", __file__, str(folder)]


@dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """The result of a call: its value, still packed, or the traceback of its failure."""

    packed: bytes | None = None
    error: str = ""
    started: bool = True  # False when its code was not found


def call_outcome(folder: Path) -> CallOutcome:
    """What the new process left in `folder`."""
    try:
        packed, error, started = pickle.loads((folder / RESULT).read_bytes())
    except FileNotFoundError:
        return CallOutcome(error="the call ended its process before it returned")
    return CallOutcome(packed=packed, error=error, started=started)


def unpacked(completed: Completed) -> Completed:
    """Unpack the value; only the caller's process is sure to know its class."""
    if completed.value is None:
        return completed
    try:
        return replace(completed, value=pickle.loads(completed.value))
    except Exception as problem:  # whatever unpickling a user's class raises
        return replace(completed, value=None, error=f"what the call returned cannot be read back: {problem!r}")


def main(folder: Path) -> int:
    """Run the call in the new process and leave its result."""
    preparation, packed = pickle.loads((folder / CALL).read_bytes())
    value: Any = None
    error = ""
    started = False
    try:
        os.environ[REIMPORTING] = "1"
        spawn.prepare(preparation)
        call = pickle.loads(packed)
        del os.environ[REIMPORTING]
        started = True
        value = call()
    except BaseException:
        error = traceback.format_exc()
        sys.stderr.write(error)
    try:
        result = pickle.dumps((None if value is None else pickle.dumps(value), error, started))
    except Exception as problem:  # whatever a user's own reduce methods raise
        result = pickle.dumps((None, f"the call returned {type(value).__name__}, which does not pickle: {problem}", started))
    partial = folder / f"{RESULT}.partial"
    partial.write_bytes(result)
    partial.rename(folder / RESULT)
    return 1 if error else 0


def _fault(**parts: str) -> LaunchError:
    from autoscout.core.errors import Fault, LaunchError  # here: as a script this file must not need AutoScout on its path

    return LaunchError(Fault(**parts))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
