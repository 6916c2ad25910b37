"""From configurations to schedulers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Grid

Built = TypeVar("Built")


def build(cls: type[Built], config: Config, **derived: Any) -> Built:
    """The scheduler whose fields the configuration sets.

    `derived` holds fields that follow from several knobs, and the names of those knobs with None.

    Raises:
        ConfigError: knobs that the scheduler does not have, all at once.
    """
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    unknown = [name for name in config if name not in names and name not in derived]
    if unknown:
        raise ConfigError(
            [Fault(where=cls.__name__, field=name, rule="there is no such knob", value=repr(config[name])) for name in unknown]
        )
    values = {name: value for name, value in config.items() if name in names}
    return cls(**{**values, **{name: value for name, value in derived.items() if name in names and value is not None}})


def placement_knob(default: str = "consolidated") -> Choice:
    """Whether jobs may be spread over more nodes than needed."""
    return Choice("placement", ["consolidated", "relaxed"], default=default, help="fewest nodes or wait; or spread where needed")


def seconds_knob(name: str, low: float, high: float, points: int, default: float, help: str, when: str | None = None) -> Grid:
    """A span of time on a log scale, in whole seconds."""
    ratio = (high / low) ** (1 / (points - 1))
    values = sorted({float(round(low * ratio**step)) for step in range(points)} | {float(default)})
    return Grid(name, values=values, log=True, default=float(default), unit="s", help=help, when=when, restart=False)
