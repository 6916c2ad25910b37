"""The traffic description: a small JSON of what a service is asked, without any contents.

It has one or several windows of time. A study judges on those that are chosen; the others show how the answer does on traffic that it
was not chosen on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from autoscout.common import document
from autoscout.common.fields import Block, Refused, read_fields, refuse_if
from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic.lengths import MOST_TOKENS, Even, TokenLengths
from autoscout.traffic.sessions import SessionShape

FORMAT: Literal["autoscout traffic 1"] = "autoscout traffic 1"
MOST_PAIRS = 400  # of one window: with them a drawn load comes within a few per cent of the requests themselves
MOST_WINDOWS = 48
LEAST_SHAPE = 0.02  # of a gamma distribution of gaps: below it all requests arrive in a handful of moments
WHERE = "traffic"


Pair = Annotated[tuple[int, int], Field(strict=False)]


class TrafficWindow(Block):
    """What was asked in one span of time. What is null is not known.

    Attributes:
        name: Such as a time of day.
        requests: How many were seen.
        seconds: How long the span is.
        pairs: TokenLengths of prompt and answer of a sample of the requests, so that it is known which go together.
        inputs: TokenLengths of prompts, where answers are known apart from them only.
        outputs: TokenLengths of answers, likewise.
        gap_variation: Standard deviation of the gaps between requests over their mean: 1 for Poisson arrivals, more for bursts.
        prefix_share: Share of all prompt tokens that the server has seen before at the beginning of a prompt.
        turns: Requests of one session on average.
        think_s: Median pause between an answer and the next request of its session.
        branches: Requests of one session that are sent together on average: agents that work at the same time.
        held_out: Not judged on.
    """

    name: str = Field(max_length=80)
    requests: FiniteFloat = Field(gt=0)
    seconds: FiniteFloat | None = Field(None, gt=0)
    pairs: tuple[Pair, ...] = Field((), strict=False, max_length=5000)
    inputs: TokenLengths | None = None
    outputs: TokenLengths | None = None
    gap_variation: FiniteFloat | None = Field(None, ge=0)
    prefix_share: FiniteFloat | None = Field(None, ge=0, lt=1)
    turns: FiniteFloat | None = Field(None, ge=1)
    think_s: FiniteFloat | None = Field(None, ge=0)
    branches: FiniteFloat | None = Field(None, ge=1)
    held_out: bool = False

    @model_validator(mode="after")
    def _has_lengths(self) -> Self:
        if not self.pairs and (self.inputs is None or self.outputs is None):
            raise Refused("has no lengths: give pairs, or inputs and outputs")
        if any(not (0 < one <= MOST_TOKENS) for pair in self.pairs for one in pair):
            raise Refused(f"pairs hold numbers of tokens, from 1 to {MOST_TOKENS:,}")
        return self

    @property
    def rate(self) -> float | None:
        """Requests a second."""
        return self.requests / self.seconds if self.seconds else None

    @property
    def mean_input(self) -> float:
        """Tokens of a prompt on average."""
        return float(np.mean([one for one, _ in self.pairs])) if self.pairs or self.inputs is None else self.inputs.mean

    @property
    def mean_output(self) -> float:
        """Tokens of an answer on average."""
        return float(np.mean([other for _, other in self.pairs])) if self.pairs or self.outputs is None else self.outputs.mean

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        if self.pairs:
            return max(one + other for one, other in self.pairs)
        assert self.inputs is not None
        assert self.outputs is not None
        return self.inputs.longest + self.outputs.longest

    @property
    def gap_shape(self) -> float | None:
        """Shape of the gamma distribution that has this variation of gaps; 1 is Poisson."""
        if self.gap_variation is None:
            return None
        return min(100.0, max(LEAST_SHAPE, 1.0 / max(self.gap_variation, 1e-6) ** 2))

    @property
    def session(self) -> SessionShape:
        """How its sessions ask; a single request where that is not known."""
        branches = max(1, round(self.branches or 1.0))
        return SessionShape(max(1, round((self.turns or 1.0) / branches)), branches, self.think_s or 0.0)

    def draw(self, even: Even) -> tuple[int, int]:
        """Tokens of the next prompt and of its answer."""
        first, second = even.draw()
        if self.pairs:
            return self.pairs[int(first * len(self.pairs))]
        assert self.inputs is not None
        assert self.outputs is not None
        return self.inputs.at(first), self.outputs.at(second)


class Traffic(Block):
    """The traffic of a service.

    Attributes:
        format: Of this description.
        source: Where it comes from, in words; no address with a password.
        windows: At least one of them is judged on.
    """

    format: Literal["autoscout traffic 1"] = FORMAT
    source: str = Field("", max_length=300)
    windows: tuple[TrafficWindow, ...] = Field(min_length=1, max_length=MOST_WINDOWS, strict=False)

    @model_validator(mode="after")
    def _judges(self) -> Self:
        if all(window.held_out for window in self.windows):
            raise Refused("every window is held out: none is left to judge on")
        names = [window.name for window in self.windows]
        if len(set(names)) < len(names):
            raise Refused("two windows have the same name")
        return self

    @property
    def judged(self) -> tuple[TrafficWindow, ...]:
        """The windows that a study judges on."""
        return tuple(window for window in self.windows if not window.held_out)

    @property
    def unseen(self) -> tuple[TrafficWindow, ...]:
        """The windows that a study does not judge on."""
        return tuple(window for window in self.windows if window.held_out)

    @property
    def mean_lengths(self) -> tuple[int, int]:
        """Tokens of a prompt and of an answer, on average over the requests that are judged on."""
        weights = [window.requests for window in self.judged]
        inputs = float(np.average([window.mean_input for window in self.judged], weights=weights))
        outputs = float(np.average([window.mean_output for window in self.judged], weights=weights))
        return max(1, round(inputs)), max(1, round(outputs))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer, of all windows that are judged on."""
        return max(window.longest for window in self.judged)

    def of_window(self, name: str) -> Traffic:
        """With this window as the only one."""
        window = next(one for one in self.windows if one.name == name)
        return Traffic(source=self.source, windows=(window.model_copy(update={"held_out": False}),))

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is not known is left out."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        return {"format": FORMAT, **data, "windows": [_short(window) for window in data["windows"]]}

    def to_load(self) -> dict[str, Any]:
        """Fields of a workload: the description, and the mean lengths for those who read no more."""
        inputs, outputs = self.mean_lengths
        return {"input_tokens": inputs, "output_tokens": outputs, "traffic": self.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = WHERE) -> Traffic:
        """Read a description.

        Raises:
            ConfigError: with all that is wrong with it.
        """
        fields, faults = read_fields(cls, data, where)
        refuse_if(faults)
        assert fields is not None
        return fields

    def write(self, path: Path) -> None:
        """Write the file that `read` reads."""
        path.write_text(json.dumps(self.to_json(), separators=(",", ":")) + "\n", encoding="utf-8")


def described(path: Path) -> Traffic:
    """The description in a file.

    Raises:
        ConfigError: it is none.
    """
    try:
        data = json.loads(document.read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"is not valid JSON: {error}")) from error
    return Traffic.from_json(data if isinstance(data, Mapping) else {"windows": data}, str(path))


def _short(window: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value for name, value in window.items()}


__all__ = ["FORMAT", "WHERE", "Traffic", "TrafficWindow", "described"]
