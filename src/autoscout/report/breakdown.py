"""Where the time of a step goes, as a picture that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Mapping

from autoscout.common.draw import PALETTE, box, label, picture_file
from autoscout.common.markup import tag

WIDTH, BAR, ROW = 720, 36, 20


def breakdown_svg(parts: Mapping[str, float], title: str = "") -> str:
    """One bar split by share, with a legend in seconds and percent; parts below a thousandth are left out."""
    total = sum(parts.values())
    parts_s = sorted(((name, value) for name, value in parts.items() if value > 0.001 * total), key=lambda pair: -pair[1])
    items = [label(f"{title}: {total:.4g} s per step, simulated", 0, 15)]
    start = 0.0
    for number, (name, value) in enumerate(parts_s):
        colour, width = PALETTE[number % len(PALETTE)], WIDTH * value / total
        top = 2 * ROW + BAR + ROW * number
        items += [box(start, ROW + 4, width, BAR, fill=colour), box(0, top, 12, 12, fill=colour), label(name, 20, top + 11)]
        items += [label(f"{value:.4f} s", 300, top + 11), label(f"{value / total:.1%}", 400, top + 11)]
        start += width
    height = 3 * ROW + BAR + ROW * len(parts_s)
    return picture_file(tag("g", *items, font_size=13), width=WIDTH, height=height, title=title)


__all__ = ["breakdown_svg"]
