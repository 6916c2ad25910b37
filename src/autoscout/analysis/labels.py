"""Words and numbers as people read them: names of trials, durations, values, differences between configurations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from autoscout.common.text import ABSENT, show, show_duration, show_number
from autoscout.core.config import Config, Value
from autoscout.core.task import Limit
from autoscout.core.trial import Measurement, Status


class KnobNote(Protocol):
    """What a report tells about a knob; every knob of `autoscout.space` has it."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def warning(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One knob that two configurations set differently; a side that does not hold the knob is `absent`."""

    knob: str
    default: Value
    best: Value
    default_absent: bool = False
    best_absent: bool = False
    unit: str = ""
    help: str = ""
    warning: str = ""  # what the change gives up

    @property
    def before(self) -> str:
        return ABSENT if self.default_absent else show(self.default)

    @property
    def after(self) -> str:
        return ABSENT if self.best_absent else show(self.best)

    def to_json(self) -> dict[str, Any]:
        return {
            "knob": self.knob,
            "default": None if self.default_absent else self.default,
            "best": None if self.best_absent else self.best,
            "default_active": not self.default_absent,
            "best_active": not self.best_absent,
            "unit": self.unit,
            "help": self.help,
            "warning": self.warning,
        }


def differences(default: Config, other: Config, knobs: Iterable[KnobNote] = ()) -> tuple[Difference, ...]:
    """The knobs on which two configurations differ, in the order the space declares them, then by name."""
    notes: Mapping[str, KnobNote] = {knob.name: knob for knob in knobs}
    names = [*notes, *sorted((set(default) | set(other)) - set(notes))]
    changes = []
    for name in names:
        before, after = name in default, name in other
        if not before and not after:
            continue
        if before and after and repr(default[name]) == repr(other[name]):  # `True`, `1` and `1.0` are three values
            continue
        note = notes.get(name)
        changes.append(
            Difference(
                knob=name,
                default=default.get(name),
                best=other.get(name),
                default_absent=not before,
                best_absent=not after,
                unit=note.unit if note else "",
                help=note.help if note else "",
                warning=note.warning if note else "",
            )
        )
    return tuple(changes)


def away(default: Config, other: Config) -> float:
    """How far the values are from the default's, in doublings; a change that is no factor, such as to another word, counts as one.

    >>> away(Config({"batch": 8, "kind": "a"}), Config({"batch": 32, "kind": "b"}))
    3.0
    """
    return sum(_doublings(one.default, one.best) for one in differences(default, other))


def _doublings(before: Value | None, after: Value | None) -> float:
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0]
    return abs(math.log2(numbers[1] / numbers[0])) if len(numbers) == 2 else 1.0


NAME_CHARS = 200
"""Of the changed knobs that a name lists; the rest is counted."""


def show_limit(limit: Limit) -> str:
    """A limit; for a guard the one that the user or the backend wrote, with the bound that it became."""
    return f"{limit.guard} ({show_number(limit.value)})" if limit.guard else str(limit)


def namer(default: Config, knobs: Iterable[KnobNote] = (), titles: Mapping[Config, str] = MappingProxyType({})) -> Callable[[Config], str]:
    """What calls the configurations of one study by the knobs they change: `parallel=8, flash_attention=on`.

    Args:
        default: What the changes are counted from; its own name is `default`.
        knobs: The space's knobs, in the order in which they shall appear in names.
        titles: Names of some.
    """
    declared = tuple(knobs)
    names: dict[Config, str] = dict(titles)
    order = [knob.name for knob in declared]
    before = {name: repr(value) for name, value in default.items()}
    members = frozenset(order)
    words: dict[tuple[str, type, Value], str] = {}  # knob and value -> how a name lists them; empty where they are as before

    def word(name: str, value: Value) -> str:
        place = name, value.__class__, value
        text = words.get(place)
        if text is None:
            text = words[place] = "" if repr(value) == before.get(name) else shorten(f"{name}={show(value)}", NAME_CHARS)
        return text

    def name_of(config: Config) -> str:
        name = names.get(config)
        if name is None:
            name = names[config] = _changes(before, config, order, members, word)
        return name

    return name_of


def _changes(
    before: Mapping[str, str], config: Config, order: Sequence[str], known: frozenset[str], word: Callable[[str, Value], str]
) -> str:
    """What differs, as `differences` finds it, from the default, whose values are given as `repr` shows them."""
    after = config.to_json()
    names = order if known.issuperset(after) else [*order, *sorted(after.keys() - known)]
    set_to = [text for name in names if name in after and (text := word(name, after[name]))]
    if not set_to:  # a knob that is not used any more follows from the others, so it is named only where nothing else is
        set_to = [f"without {name}" for name in [*order, *sorted(before.keys() - known)] if name in before and name not in after]
    length = 0
    for count, text in enumerate(set_to):
        length += len(text) + 2
        if length > NAME_CHARS and count:
            return f"{', '.join(set_to[:count])} and {len(set_to) - count} more"
    return ", ".join(set_to) or "default"


def shorten(text: str, limit: int) -> str:
    """A name cut in its middle, because long names begin alike and often end alike too."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:] if tail else ''}"


def short_worker(worker: str) -> str:
    """Host and process of a worker, without what tells it from its namesakes."""
    return ":".join(worker.split(":")[:2]) or "worker"


def one_line(text: str, limit: int = 120) -> str:
    """The first line of a text that says something, without control characters, cut to `limit` characters."""
    if not text:
        return ""
    line = next((line for line in text.splitlines() if line.strip()), "")
    clean = " ".join("".join(char if char.isprintable() else " " for char in line).split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


SPENT_WORDS = {"start_s": "starting", "warm_up_s": "warming up", "measure_s": "measuring"}
"""What a trial spends its seconds on."""

PART_NAMES = {
    "gemm_s": "matrix products",
    "attention_s": "attention",
    "elementwise_s": "element-wise",
    "recompute_s": "recomputation",
    "host_s": "waiting for the host",
    "tensor_parallel_s": "tensor-parallel traffic",
    "context_parallel_s": "context-parallel traffic",
    "expert_parallel_s": "expert-parallel traffic",
    "sharding_s": "ZeRO-3 gathers",
    "pipeline_s": "pipeline sends",
    "bubble_s": "pipeline bubble",
    "data_parallel_s": "gradient reduction",
    "optimizer_s": "optimizer",
}
"""Parts of a step's predicted time."""


def show_spent(answer: Measurement) -> str:
    """What a trial spent its seconds on: `starting 82 s, measuring 41 s`; empty where nobody says."""
    return ", ".join(f"{SPENT_WORDS[name]} {show_duration(seconds)}" for name, seconds in answer.spent.items())


def show_metric(answer: Measurement, metric: str) -> str:
    """A metric of a trial; of one that was stopped early the best that it could have reached."""
    if answer.status is Status.BOUNDED:
        return f"at best {show_number(answer.bounds[metric])}" if metric in answer.bounds else ABSENT
    return show_number(answer.metrics.get(metric))
