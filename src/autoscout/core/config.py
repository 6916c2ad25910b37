"""Config: an immutable, hashable, possibly partial assignment of values to knobs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any

Value = bool | int | float | str | None
"""What a knob may hold: JSON scalars only, so that every config survives files, stores and networks unchanged."""


class Config(Mapping[str, Value]):
    """A mapping from knob names to values that never changes.

    Two configs are equal exactly when their canonical JSON is: `True`, `1` and `1.0` are three different values, the
    order of the knobs does not matter. An inactive knob is absent, never `None` by convention.

    >>> Config(tp=2, pp=4) == Config({"pp": 4, "tp": 2})
    True
    >>> Config(tp=1) == Config(tp=True)
    False
    >>> Config(tp=2).extend(pp=4).without("tp")
    Config(pp=4)
    """

    __slots__ = ("_canonical", "_hash", "_values")

    def __init__(self, values: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        merged = {**values, **more} if values else more
        self._values: dict[str, Value] = {name: merged[name] for name in sorted(merged)}
        for name, value in self._values.items():
            if value.__class__ is int or value.__class__ is str:
                continue
            if not isinstance(value, (bool, int, float, str)) and value is not None:
                raise TypeError(f"knob {name!r} must hold a JSON scalar, not {type(value).__name__} {value!r}")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"knob {name!r} must be finite, not {value!r}")
        self._canonical: str | None = None
        self._hash: int | None = None

    @classmethod
    def trusted(cls, values: dict[str, Value]) -> Config:
        """A config from values known to be finite JSON scalars, in the order of their names; takes the dict over.

        For spaces, which make configs by the million from values they have checked once.
        """
        config = object.__new__(cls)
        config._values = values
        config._canonical = None
        config._hash = None
        return config

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Config) and self.canonical == other.canonical)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.canonical)
        return self._hash

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, Value]]]:
        return type(self), (self._values,)

    @property
    def canonical(self) -> str:
        """Sorted compact JSON: the identity of this config in memory, files and stores."""
        if self._canonical is None:
            self._canonical = f"{{{','.join([f'{_name(name)}:{_scalar(value)}' for name, value in self._values.items()])}}}"
        return self._canonical

    @property
    def key(self) -> str:
        """Sixteen hex digits of the canonical form: short enough for folder names, stable across machines."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    def extend(self, values: Mapping[str, Value] | None = None, /, **more: Value) -> Config:
        """This config with some knobs set (again)."""
        return Config({**self._values, **(values or {}), **more})

    def without(self, *names: str) -> Config:
        """This config less the given knobs; names it does not hold are ignored."""
        return Config({name: value for name, value in self._values.items() if name not in names})

    def only(self, names: Any) -> Config:
        """The part of this config that assigns the given knobs."""
        selection = set(names)
        return Config({name: value for name, value in self._values.items() if name in selection})

    def extends(self, partial: Config) -> bool:
        """Whether every assignment of `partial` also stands here."""
        missing = object()
        for name, value in partial.items():
            mine = self._values.get(name, missing)
            if mine is missing or mine != value or type(mine) is not type(value):
                return False
        return True

    def whole(self, name: str) -> int:
        """A knob that holds whole numbers, for type checkers; `TypeError` for any other."""
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise _other_kind(name, value, "a whole number")
        return value

    def number(self, name: str) -> float:
        """A knob that holds numbers, for type checkers; `TypeError` for any other."""
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _other_kind(name, value, "a number")
        return value

    def text(self, name: str) -> str:
        """A knob that holds text, for type checkers; `TypeError` for any other."""
        value = self._values[name]
        if not isinstance(value, str):
            raise _other_kind(name, value, "text")
        return value

    def flag(self, name: str) -> bool:
        """A knob that is on or off, for type checkers; `TypeError` for any other."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise _other_kind(name, value, "true or false")
        return value

    def to_json(self) -> dict[str, Value]:
        """A plain dict for `json.dumps`."""
        return dict(self._values)


def _scalar(value: Value) -> str:
    """As `json.dumps` writes it, which makes an encoder for every call: reports ask a hundred thousand times."""
    if value.__class__ is int:
        return repr(value)
    if value.__class__ is str:
        return encode_basestring_ascii(value)
    return "true" if value is True else "false" if value is False else json.dumps(value)


_name = cache(json.dumps)
"""Names are few."""


def _other_kind(name: str, value: Value, kind: str) -> TypeError:
    return TypeError(f"knob {name!r} holds {value!r}, which is not {kind}")
