"""How far configurations stand from each limit on windows of the traffic that the study did not judge on: predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoscout.analysis.labels import show_limit
from autoscout.common.text import enumeration, plural, show_number
from autoscout.core.task import Limit


@dataclass(frozen=True, kw_only=True)
class UnseenLimit:
    """One limit of one configuration in one window.

    Attributes:
        name: What the configuration is called.
        window: Name of the window.
        limit: In words.
        value: Predicted value of the metric; None where nothing can be answered, at whatever rate.
        bound: Value of the limit.
        holds: Whether it is predicted to hold.
        rate: Requests a second at which it is looked at; None for the study's own load.
        capacity: The most requests a second in that window, in a study of the capacity.
    """

    name: str
    window: str
    limit: str
    value: float | None
    bound: float
    holds: bool
    rate: float | None = None
    capacity: float | None = None

    @classmethod
    def of(cls, limit: Limit, value: float | None, **about: Any) -> UnseenLimit:
        """Of a predicted value."""
        holds = value is not None and limit.allows(value)
        return cls(limit=show_limit(limit), value=value, bound=limit.value, holds=holds, **about)

    @property
    def share(self) -> float | None:
        """Value over bound."""
        return self.value / self.bound if self.value is not None and self.bound > 0 else None

    @property
    def urgency(self) -> tuple[bool, float]:
        """The larger, the nearer the limit or the farther beyond."""
        if self.value is None or self.capacity == 0:
            return not self.holds, math.inf
        if self.capacity and self.rate and not self.holds:
            return True, self.rate / self.capacity
        return not self.holds, self.share or 0.0

    @property
    def text(self) -> str:
        """Limit, how much of it is used, and the window; in a window that cannot hold the rate, what it holds."""
        if self.capacity and not self.holds:  # a queue grows there: the value says how long was looked, not how far the limit is
            return f"{self.limit} in {self.window}, where {show_number(self.capacity)} requests/s are held"
        used = "no rate keeps it" if self.share is None else f"{self.share:.0%} of it"
        return f"{self.limit}: {used} in {self.window}"


@dataclass(frozen=True, kw_only=True)
class UnseenWindows:
    """All limits in all windows that were looked at.

    Attributes:
        rows: By configuration and window.
        held_out: Windows that the study did not judge on; at most a few typical ones of them are in the rows.
        error: Standard deviation of the error to expect of a prediction, as a share.
        unknown: Why nothing is predicted; empty where it is.
    """

    rows: tuple[UnseenLimit, ...] = ()
    held_out: int
    error: float = 0.0
    unknown: str = ""

    @property
    def sentence(self) -> str:
        """The whole in one line: the limit of each configuration that is nearest, or farthest beyond."""
        head = f"{plural(self.held_out, 'window')} not judged on"
        if self.unknown:
            return f"{head}: cannot tell how far the limits are, {self.unknown}"
        parts = []
        for name in dict.fromkeys(row.name for row in self.rows):
            mine = [row for row in self.rows if row.name == name]
            worst = max(mine, key=lambda row: row.urgency)
            broken = list(dict.fromkeys(row.window for row in mine if not row.holds))
            windows = len({row.window for row in mine})
            state = f"breaks a limit in {len(broken)} of {windows}" if broken else f"keeps all limits in {windows}"
            at = f" at {show_number(worst.rate)} requests/s" if worst.rate is not None else ""
            parts.append(f"{name} {state}{at} ({worst.text})")
        return f"{head} (simulated, error {self.error:.0%}): {enumeration(parts)}"

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "share": row.share} for row in self.rows]
        base = {"fidelity": "simulated", "held_out": self.held_out, "sentence": self.sentence}
        return {**base, "unknown": self.unknown} if self.unknown else {**base, "error": self.error, "rows": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnseenWindows:
        """What `to_json` gave."""
        rows = [UnseenLimit(**{name: value for name, value in row.items() if name != "share"}) for row in data.get("rows", ())]
        return cls(
            rows=tuple(rows), held_out=int(data["held_out"]), error=float(data.get("error", 0)), unknown=str(data.get("unknown", ""))
        )


__all__ = ["UnseenLimit", "UnseenWindows"]
