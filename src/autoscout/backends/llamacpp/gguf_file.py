"""What the header of a GGUF file says, without reading the weights.

A reader of our own, because it is needed before anything is measured, on files of any size and from any source: it takes
milliseconds, needs no packages, and turns every kind of broken file into one clear sentence.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPE_NAMES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k",
    16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 30: "bf16",
    34: "tq1_0", 35: "tq2_0", 39: "mxfp4",
}  # fmt: skip
_FINGERPRINT_BYTES = 1 << 20


class GgufError(Exception):
    """The file is not a GGUF file that can be used; the message says why."""


@dataclass(frozen=True)
class Texts:
    """An array of texts that was skipped."""

    count: int


@dataclass(frozen=True, kw_only=True)
class GgufFacts:
    """What tuning needs to know of a model."""

    name: str
    architecture: str
    layers: int
    context: int  # longest text it was trained for
    head_size: int  # what quantised caches must divide
    window: int  # of sliding-window attention; 0 when every layer sees everything
    experts: int
    vocab: int  # tokens it knows; 0 when the file does not say
    weights: str  # type of most of the weights
    size_gb: float
    parts: int  # files it is split into
    fingerprint: str  # of the content
    mtp_layers: int = 0  # that guess further tokens, for speculative decoding without another model


class GgufFile:
    """The header of one file.

    Args:
        path: The file.

    Raises:
        GgufError: not there, not readable, not GGUF, or broken off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self.size_bytes = file.seek(0, 2)
                if self.size_bytes < 24:
                    raise GgufError("is too short to be a GGUF file")
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    self._read(data)
        except OSError as error:
            raise GgufError(f"cannot be read: {error.strerror or error}") from error
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
            raise GgufError("has a broken header: the file was cut off or damaged") from error

    def _read(self, data: mmap.mmap) -> None:
        magic, self.version, tensors, keys = struct.unpack_from("<4sIQQ", data, 0)
        if magic != b"GGUF":
            raise GgufError(f"is not a GGUF file: it begins with {magic!r}")
        if self.version not in (2, 3):
            raise GgufError(f"has GGUF version {self.version}, which llama.cpp does not read; convert the model again")
        self._data, self._at = data, 24
        self.metadata: Mapping[str, Any] = {self._text(): self._value(self._number("I")) for _ in range(self._bounded(keys))}
        self._types: Counter[str] = Counter()
        for _ in range(self._bounded(tensors)):
            self._text()
            dimensions = self._number("I")
            if dimensions > 8:
                raise GgufError("has a broken header: a tensor with too many dimensions")
            elements = 1
            for _ in range(dimensions):
                elements *= self._number("Q")
            self._types[_TYPE_NAMES.get(self._number("I"), "other")] += elements
            self._number("Q")
        header = data[: min(self._at, _FINGERPRINT_BYTES)] + data[max(0, len(data) - _FINGERPRINT_BYTES) :]
        self._fingerprint = hashlib.sha256(header + str(len(data)).encode()).hexdigest()[:12]
        del self._data

    def _bounded(self, count: int) -> int:
        if count > len(self._data):
            raise GgufError("has a broken header: more entries than bytes")
        return count

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return value

    def _text(self) -> str:
        length = self._bounded(self._number("Q"))
        text = self._data[self._at : self._at + length].decode()
        self._at += length
        if self._at > len(self._data):
            raise GgufError("has a broken header: the file was cut off")
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_SCALARS[kind]) if kind in _SCALARS else self._strange(kind)
        inner, count = self._number("I"), self._bounded(self._number("Q"))
        if inner in _SCALARS:
            values = np.frombuffer(self._data, np.dtype(_SCALARS[inner]).newbyteorder("<"), count, self._at).copy()
            self._at += values.nbytes
            return values
        if inner != _STRING:
            return [self._value(inner) for _ in range(count)]
        for _ in range(count):
            self._at += 8 + self._bounded(*struct.unpack_from("<Q", self._data, self._at))
        return Texts(count)

    def _strange(self, kind: int) -> Any:
        raise GgufError(f"has a broken header: unknown kind of value {kind}")

    def number(self, name: str, otherwise: int = 0) -> int:
        """An architecture's own number; the largest where layers differ."""
        value = self.metadata.get(f"{self.architecture}.{name}", otherwise)
        if isinstance(value, np.ndarray):
            return int(value.max()) if len(value) else otherwise
        return int(value) if isinstance(value, (int, float)) else otherwise

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @cached_property
    def facts(self) -> GgufFacts:
        """What tuning needs to know.

        Raises:
            GgufError: it holds no language model.
        """
        layers = self.number("block_count")
        if not self.architecture or not layers or not self._types:
            raise GgufError("holds no language model: no architecture, layers or weights")
        heads = self.number("attention.head_count", 1) or 1
        size = self.number("embedding_length") // heads
        return GgufFacts(
            name=self.path.stem,
            architecture=self.architecture,
            layers=layers,
            context=self.number("context_length"),
            head_size=_gcd(self.number("attention.key_length", size), self.number("attention.value_length", size)),
            window=self.number("attention.sliding_window"),
            experts=self.number("expert_count"),
            vocab=self._vocab(),
            weights=self._types.most_common(1)[0][0],
            size_gb=round(self.size_bytes / 1024**3, 4),
            parts=int(self.metadata.get("split.count", 0) or 1),
            fingerprint=self._fingerprint,
            mtp_layers=self.number("nextn_predict_layers"),
        )

    def _vocab(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.count if isinstance(tokens, Texts) else 0


def _gcd(one: int, other: int) -> int:
    return int(np.gcd(one, other))
