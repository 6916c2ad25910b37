"""Charts as SVG: axes, the elements that every chart is made of, one palette, and a chart of lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoscout.common.markup import Markup, tag
from autoscout.common.text import show
from autoscout.core.config import Value

PALETTE = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#aa3377",
    "#ccbb44",
    "#66ccee",
    "#332288",
    "#cc6677",
    "#117733",
    "#999933",
    "#88ccee",
    "#bbbbbb",
)
"""Colours of lines and bars in order of use: Paul Tol's bright and muted schemes, which colour-blind people can tell apart."""

_MAX_STOPS = 12  # more different numbers than this make a continuous axis
WIDTH, HEIGHT = 720, 260
"""Size of a chart of lines, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 10, 30, 40  # margins of a chart of lines

Line = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Values across and values up."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps numbers to places between `start` and `end`, on a linear or a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, margin: float = 0.06) -> Scale:
        """An axis that holds all values, with a margin; logarithmic when they span more than a factor of 20."""
        low, high = min(values), max(values)
        log = low > 0 and high / low > 20.0
        if log:
            air = (high / low) ** margin
            return cls(low=low / air, high=high * air, start=start, end=end, log=True)
        air = (high - low) * margin if high > low else abs(high) * 0.05 or 1.0
        return cls(low=low - air, high=high + air, start=start, end=end)

    def place(self, value: float) -> float:
        if self.log:
            part = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers on the axis."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if self.high / self.low < 500.0 else (1,)
            marks = [step * 10.0**decade for decade in decades for step in steps]
        else:
            raw = (self.high - self.low) / count
            size = 10.0 ** math.floor(math.log10(raw))
            step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
            marks = [step * i for i in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [mark for mark in marks if self.low <= mark <= self.high]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One vertical axis of a parallel-coordinates plot.

    Attributes:
        name: The knob, or the objective's metric.
        marks: Labels and places along the axis.
        scale: For continuous axes.
        places: For axes of stops: the place of each value.
        absent: Where configurations go that have no value here.
        gaps: Whether there are any.
        unit: Of the values.
    """

    name: str
    marks: tuple[tuple[str, float], ...]
    scale: Scale | None = None
    places: dict[str, float] = field(default_factory=dict)
    absent: float = 0.0
    gaps: bool = False
    unit: str = ""

    @classmethod
    def of(cls, name: str, values: Sequence[Value], start: float, end: float, absent: float, *, gaps: bool = False, unit: str = "") -> Axis:
        """An axis for the values that occur: a stop for each when they are few or words, else a scale."""
        numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        different = sorted(set(numbers))
        if len(numbers) == len(values) and len(different) > _MAX_STOPS:
            scale = Scale.over(different, start, end, margin=0.0)
            marks = [(f"{mark:g}", scale.place(mark)) for mark in scale.ticks()]
            return cls(name=name, marks=tuple(marks), scale=scale, absent=absent, gaps=gaps, unit=unit)
        if len(numbers) == len(values):
            ordered = sorted({repr(value): value for value in values}.items(), key=lambda item: float(item[1] or 0))
        else:
            ordered = sorted({repr(value): value for value in values}.items(), key=lambda item: show(item[1]))
        count = len(ordered)
        places = {key: start + (end - start) * (i / (count - 1) if count > 1 else 0.5) for i, (key, _) in enumerate(ordered)}
        every = math.ceil(count / _MAX_STOPS)
        marks = [(show(value), places[key]) for i, (key, value) in enumerate(ordered) if i % every == 0]
        return cls(name=name, marks=tuple(marks), places=places, absent=absent, gaps=gaps, unit=unit)

    def place(self, value: Value) -> float:
        if self.scale is not None and isinstance(value, (int, float)):
            return self.scale.place(float(value))
        return self.places.get(repr(value), self.absent)


def label(text: object, x: float, y: float, **attributes: object) -> Markup:
    """Text at a place."""
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **attributes)


def text_width(text: str, size: float = 12.0) -> float:
    """About the width of a text in pixels, rather too much than too little."""
    return 0.62 * size * len(text)


def middle(text: str, x: float, low: float, high: float) -> float:
    """The place nearest to `x` for the middle of a text that shall stay between `low` and `high`."""
    half = text_width(text) / 2
    return min(max(x, low + half), max(high - half, low + half))


def line(x1: float, y1: float, x2: float, y2: float, kind: str | None = None, **attributes: object) -> Markup:
    """A straight line; `kind` is its CSS class."""
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind, **attributes)


def box(x: float, y: float, width: float, height: float, **attributes: object) -> Markup:
    """A rectangle."""
    return tag("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", **attributes)


def picture(*children: object, width: float, height: float, title: str, **attributes: object) -> Markup:
    """An SVG element that fills the width it is given; `title` is read aloud and shown on hovering."""
    return tag("svg", tag("title", title), *children, viewBox=f"0 0 {width:g} {height:g}", role="img", **attributes)


def picture_file(*children: object, width: float, height: float, title: str) -> str:
    """An SVG file of a fixed size on white."""
    inside = picture(box(0, 0, width, height, fill="white"), *children, width=width, height=height, title=title, font_family="sans-serif")
    return inside.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" ', 1) + "\n"


def chart(title: str, lines: Mapping[str, Line], across: str, *, log: bool = False, colours: Mapping[str, str] | None = None) -> Markup:
    """Named lines over a common axis, values up from zero; as a group of `WIDTH` by `HEIGHT` that a picture holds.

    Args:
        title: Above the chart.
        lines: Name -> line; values up that are not finite are left out.
        across: What the axis across counts.
        log: Whether that axis is logarithmic; it begins at 1 then, or above.
        colours: Name -> colour; the palette in order when None. Named lines get no legend then, the page has one.
    """
    finite = {name: (x[np.isfinite(y)], y[np.isfinite(y)]) for name, (x, y) in lines.items()}
    every_x, every_y = (np.concatenate([np.zeros(0), *(one[side] for one in finite.values())]) for side in (0, 1))
    low, high = (float(every_x.min()), float(every_x.max())) if len(every_x) else (0.0, 1.0)
    low = max(low, 1.0) if log else low
    x_scale = Scale(low=low, high=max(high, low * 1.001 + 1e-9), start=_LEFT, end=WIDTH - _RIGHT, log=log)
    y_scale = Scale(low=0.0, high=max(float(every_y.max(initial=0.0)), 1e-9), start=HEIGHT - _BOTTOM, end=_TOP)
    parts = [label(title, _LEFT, 18, font_size=14)]
    for tick in y_scale.ticks():
        y = y_scale.place(tick)
        parts.append(line(_LEFT, y, WIDTH - _RIGHT, y, stroke="#ddd"))
        parts.append(label(f"{tick:,.10g}", _LEFT - 6, y + 4, font_size=11, text_anchor="end"))
    for tick in x_scale.ticks():
        parts.append(label(f"{tick:,.10g}", x_scale.place(tick), HEIGHT - _BOTTOM + 16, font_size=11, text_anchor="middle"))
    parts.append(label(across, WIDTH / 2, HEIGHT - 6, font_size=12, text_anchor="middle"))
    for number, (name, (xs, ys)) in enumerate(finite.items()):
        colour = colours[name] if colours else PALETTE[number % len(PALETTE)]
        pairs = zip(np.maximum(xs, low).tolist(), ys.tolist(), strict=True)
        points = " ".join(f"{x_scale.place(x):.1f},{y_scale.place(y):.1f}" for x, y in pairs)
        parts.append(tag("polyline", tag("title", name), fill="none", stroke=colour, stroke_width=1.5, points=points))
        if not colours:
            parts.append(label(name, WIDTH - 14, _TOP + 14 * number, font_size=12, text_anchor="end", style=f"fill:{colour}"))
    return tag("g", *parts)


def thin(count: int, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Indices of the points to draw, in order: all, or an even choice of `most` together with those to `keep`.

    More than a screen has room for hide each other and slow a browser down.
    """
    if count <= most:
        return list(range(count))
    step = count / most
    return sorted({int(step * index) for index in range(most)} | set(keep))
