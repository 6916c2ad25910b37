"""Settings that people write: knobs of a scheduler, at any number it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Knob, Space


def configured(space: Space, texts: Mapping[str, str], where: str, faults: Iterable[Fault] = ()) -> Config:
    """The default configuration with some knobs set; conditions on them follow.

    Numbers may lie between those that a tuner would try, or beyond them: the scheduler itself judges them.

    Args:
        space: The knobs.
        texts: Knob -> value, as text.
        where: Where they were written, for messages.
        faults: What is wrong already.

    Raises:
        ConfigError: unknown knobs and values that cannot be, all at once.
    """
    problems = list(faults)
    values: dict[str, Any] = {}
    free: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in space.knobs:
            rule = f"must read KNOB=VALUE with one of {', '.join(space.knobs)}"
            problems.append(Fault(where=where, value=f"{name}={text}", rule=rule))
            continue
        try:
            values[name] = space.knobs[name].parse(text)
        except Exception as error:  # every bad knob in one message
            near = _nearest(space.knobs[name], text)
            if near is None:
                problems.append(Fault(where=where, value=f"{name}={text}", rule=str(error)))
            else:
                values[name], free[name] = near
    if not problems:
        problems = [Fault(where=where, rule=reason) for reason in space.why_not(Config(values))]
    if problems:
        raise ConfigError(problems)
    return Config({**space.project(space.default(), Config(values)), **free})


def _nearest(knob: Knob, text: str) -> tuple[Any, Any] | None:
    """For a number that a tuner would not try: the value next to it, for the rules of the space, and the number itself."""
    numbers = [value for value in knob.values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    try:
        number = float(text)
    except ValueError:
        return None
    whole = all(isinstance(value, int) for value in numbers)
    if not knob.ordered or not numbers or not math.isfinite(number) or (whole and number != int(number)):
        return None
    return min(numbers, key=lambda value: abs(value - number)), int(number) if whole else number
