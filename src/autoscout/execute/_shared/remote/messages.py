"""What the two ends of a channel say: one line a message, so that a banner of the far shell between them does no harm.

Both ends say `beat` now and then. An end that hears nothing takes the other for gone: pipes through ssh or srun stay open for
hours when a machine is cut off.
"""

from __future__ import annotations

import base64
import binascii
import pickle
from typing import Any

BEAT_S = 2.0
"""How often each end says that it is there."""

HELLO, BEAT, RUN, STOP, DONE, LOST = "hello", "beat", "run", "stop", "done", "lost"

_MARK = b"\x1eautoscout "
_NOISE_BYTES = 4000  # of what is no message, for the report of a failure


def encode(kind: str, body: object = None) -> bytes:
    """One message."""
    return _MARK + kind.encode() + b" " + base64.b64encode(pickle.dumps(body)) + b"\n"


class Reader:
    """Takes bytes as they come and gives messages."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._noise = b""

    def feed(self, data: bytes) -> list[tuple[str, Any]]:
        """The messages that are complete now."""
        messages: list[tuple[str, Any]] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            message = self._message(b"".join([*self._parts, line]))
            self._parts.clear()
            if message is not None:
                messages.append(message)
        self._parts.append(rest)
        return messages

    @property
    def noise(self) -> str:
        """The end of what was said besides messages."""
        return self._noise.decode(errors="replace").strip()

    def _message(self, line: bytes) -> tuple[str, Any] | None:
        before, mark, rest = line.partition(_MARK)
        if before.strip() or not mark:
            self._noise = (self._noise + before + b"\n")[-_NOISE_BYTES:]
        if not mark:
            return None
        kind, _, body = rest.partition(b" ")
        try:
            return kind.decode(), pickle.loads(base64.b64decode(body, validate=True))
        except (binascii.Error, pickle.UnpicklingError, EOFError):  # cut off or mixed with other output
            self._noise = (self._noise + line[:200] + b"\n")[-_NOISE_BYTES:]
            return None
