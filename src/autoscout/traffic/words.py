"""A traffic description in words and as a picture."""

from __future__ import annotations

import numpy as np

from autoscout.common.draw import PALETTE, Scale, box, label, line, picture_file
from autoscout.common.markup import Markup
from autoscout.common.text import plural
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.lengths import Even

DRAWS = 2000  # of a window, for its quantiles
WIDTH, ROW, TOP, LEFT, GAP = 720, 46, 40, 180, 30
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def quantiles(window: TrafficWindow) -> tuple[list[float], list[float]]:
    """The quantiles of the lengths of prompts and of answers."""
    even = Even(np.random.default_rng(0))
    drawn = np.array([window.draw(even) for _ in range(DRAWS)], dtype=float)
    first, second = (np.quantile(drawn[:, column], QUANTILES).tolist() for column in (0, 1))
    return first, second


def sentence(window: TrafficWindow) -> str:
    """A window in words.

    >>> sentence(TrafficWindow(name="night", requests=120.0, seconds=60.0, pairs=((100, 20), (300, 40)), prefix_share=0.25))
    'night: prompts of 100 to 300 tokens (mean 200), answers of 20 to 40 (mean 30), 2 requests/s, 25 % of prompt tokens seen before'
    """
    inputs, outputs = quantiles(window)
    parts = [
        f"prompts of {inputs[0]:.0f} to {inputs[-1]:.0f} tokens (mean {window.mean_input:.0f})",
        f"answers of {outputs[0]:.0f} to {outputs[-1]:.0f} (mean {window.mean_output:.0f})",
    ]
    if window.rate is not None:
        parts.append(f"{window.rate:.3g} requests/s")
    if window.gap_variation is not None and not 0.8 <= window.gap_variation <= 1.25:
        kind = "bursts" if window.gap_variation > 1 else "even arrivals"
        parts.append(f"{kind} (gaps vary by {window.gap_variation:.1f} of their mean)")
    if window.prefix_share:
        parts.append(f"{window.prefix_share:.0%} of prompt tokens seen before".replace("%", " %"))
    if window.turns and window.turns > 1:
        pause = f", {window.think_s:.0f} s between them" if window.think_s is not None else ""
        together = f", {window.branches:.1f} of them together" if window.branches and window.branches > 1.05 else ""
        parts.append(f"sessions of {window.turns:.1f} requests{pause}{together}")
    return f"{window.name}: {', '.join(parts)}"


def summary(traffic: Traffic) -> str:
    """The whole in one sentence, for the description of a load."""
    inputs, outputs = traffic.mean_lengths
    count = len(traffic.judged)
    windows = "" if count == 1 else f", {plural(count, 'window')} each measured on its own"
    return f"lengths of {traffic.source or 'a traffic description'} (prompts of {inputs}, answers of {outputs} tokens on average){windows}"


def picture(traffic: Traffic) -> str:
    """Prompts and answers of every window as an SVG: the middle half as a bar, 5 % to 95 % as a line."""
    rows = [(window, quantiles(window)) for window in traffic.windows]
    half = (WIDTH - LEFT - GAP) / 2
    height = TOP + ROW * len(rows) + 30
    parts: list[Markup] = []
    for column, title in enumerate(("tokens of a prompt", "tokens of an answer")):
        begin = LEFT + column * (half + GAP)
        scale = Scale.over([max(1.0, value) for row in rows for value in row[1][column]], begin, begin + half - 10)
        parts.append(label(title, begin, 20, font_size=13))
        for mark in scale.ticks(4):
            at = scale.place(mark)
            parts += [line(at, TOP - 10, at, height - 30, stroke="#ddd")]
            parts += [label(f"{mark:g}", at, height - 12, font_size=11, text_anchor="middle")]
        for number, row in enumerate(rows):
            low, quarter, middle, three, high = (scale.place(max(1.0, value)) for value in row[1][column])
            y = TOP + ROW * number + ROW / 2
            colour = "#bbbbbb" if row[0].held_out else PALETTE[number % len(PALETTE)]
            parts.append(line(low, y, high, y, stroke=colour, stroke_width=2))
            parts.append(box(quarter, y - 8, max(1.0, three - quarter), 16, fill=colour))
            parts.append(line(middle, y - 8, middle, y + 8, stroke="#ffffff", stroke_width=2))
    for number, (window, _) in enumerate(rows):
        more = " (held out)" if window.held_out else ""
        parts.append(label(f"{window.name}{more}", 4, TOP + ROW * number + ROW / 2 + 4, font_size=11))
    return picture_file(*parts, width=WIDTH, height=height, title=f"traffic: {traffic.source}")


__all__ = ["picture", "quantiles", "sentence", "summary"]
