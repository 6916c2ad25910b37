"""Readable names of configurations: acronyms of the knobs with their values (`tmbspg8_gas4`).

The example means `train_micro_batch_size_per_gpu=8, gradient_accumulation_steps=4`. Within one set of knobs, two
configurations with different values never share a name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from autoscout.core.config import Config, Value
from autoscout.core.secrecy import hide_secrets

LENGTH = 96
"""Longest name; a longer one is cut and closed with a hash, so that it still fits file names and stays unique."""


class Names:
    """Names configurations of one set of knobs.

    The acronym of a knob takes the first letter of each of its words (`gradient_accumulation_steps`: `gas`); a name of
    one short word stays whole (`tp`). A dotted name is known by its last part. Where two knobs would share an acronym both grow,
    first by the letters of their last word, then by their parents: `batch` and `bucket` become `ba` and `bu`.

    Args:
        knobs: All knob names that configurations may hold, in the order in which they appear in names.
    """

    def __init__(self, knobs: Iterable[str]) -> None:
        self.acronyms: dict[str, str] = _acronyms(tuple(dict.fromkeys(knobs)))

    def name(self, config: Mapping[str, Value]) -> str:
        """The name of `config`; knobs this object was not told of are appended under their whole names."""
        named = [knob for knob in self.acronyms if knob in config]
        others = sorted(knob for knob in config if knob not in self.acronyms)
        parts = [_join(self.acronyms[knob], config[knob]) for knob in named]
        parts += [f"{re.sub(r'[^A-Za-z0-9]+', '-', knob)}={_encode(config[knob])}" for knob in others]
        name = "_".join(parts) or "exp"
        return name if len(name) <= LENGTH else f"{name[: LENGTH - 9]}~{Config(config).key[:8]}"

    def changed(self, config: Mapping[str, Value], default: Mapping[str, Value]) -> str:
        """The name of what differs from the default, for configurations with too many knobs for a name."""
        changed = {name: value for name, value in config.items() if name not in default or default[name] != value}
        return self.name(changed) if changed else "default"


def _acronyms(knobs: tuple[str, ...]) -> dict[str, str]:
    candidates = {knob: _candidates(knob) for knob in knobs}
    level = dict.fromkeys(knobs, 0)
    while True:
        taken: dict[str, list[str]] = {}
        for knob in knobs:
            taken.setdefault(candidates[knob][level[knob]], []).append(knob)
        clashing = [knob for group in taken.values() if len(group) > 1 for knob in group]
        growable = [knob for knob in clashing if level[knob] + 1 < len(candidates[knob])]
        if not growable:
            break
        for knob in growable:
            level[knob] += 1
    chosen = {knob: candidates[knob][level[knob]] for knob in knobs}
    for group in taken.values():
        for knob in group if len(group) > 1 else ():  # names that differ only in punctuation or case
            chosen[knob] += hashlib.sha256(knob.encode()).hexdigest()[:4] + "x"
    return chosen


def _candidates(knob: str) -> list[str]:
    """Acronyms of a knob from the shortest to the most telling, each different from the one before."""
    levels = [_words(part) for part in knob.split(".") if _words(part)] or [["x"]]
    leaf = levels[-1]
    acronyms = [leaf[0] if len(leaf) == 1 and len(leaf[0]) <= 3 else "".join(word[0] for word in leaf)]
    acronyms += ["".join(word[0] for word in leaf[:-1]) + leaf[-1][:length] for length in range(2, len(leaf[-1]) + 1)]
    for depth in range(2, len(levels) + 1):
        parents = "".join(word[0] for level in levels[-depth:-1] for word in level)
        acronyms.append(parents + acronyms[0])
        acronyms.append(parents + "".join(leaf))
    acronyms.append("".join(leaf))
    acronyms.append("".join(word for level in levels for word in level))
    return list(dict.fromkeys(acronyms))


def _words(text: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


def _join(acronym: str, value: Value) -> str:
    text = _encode(value)
    plain = text[0].isdigit() or text in ("T", "F", "N")
    return f"{acronym}{text}" if plain and not acronym[-1].isdigit() else f"{acronym}-{text}"


def _encode(value: Value) -> str:
    """A value in letters that suit file names; different values have different codes."""
    if isinstance(value, bool):
        return "T" if value else "F"
    if value is None:
        return "N"
    if isinstance(value, int):
        digits = str(value)
        zeros = len(digits) - len(digits.rstrip("0"))
        return f"{digits[:-zeros]}e{zeros}" if zeros >= 4 else digits
    if isinstance(value, float):
        return repr(value)
    text = hide_secrets(value)  # names of folders are seen by everybody
    if (
        text == value
        and re.fullmatch(r"[A-Za-z][A-Za-z0-9.]*([_-][A-Za-z0-9.]+)*", value)
        and value not in ("T", "F", "N")
        and len(value) <= 32
    ):
        return value.replace("-", "--").replace("_", "-")
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text)[:24]}~{hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()[:6]}"


__all__ = ["LENGTH", "Names"]
