"""A measured curve for the terminal, as a picture, and as rows for others' pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from autoscout.common.draw import HEIGHT, WIDTH, chart, picture_file
from autoscout.study.curve import MeasuredPoint


def curve_table(points: Sequence[MeasuredPoint]) -> Table:
    """A line for each configuration and load."""
    table = Table(title="measured")
    for head in ("configuration", "load", "tokens/s/GPU", "95 % interval", "tokens/s/user", "TTFT p95 ms", "rounds"):
        table.add_column(head, justify="left" if head in ("configuration", "load") else "right")
    for point in points:
        up, first = point.per_gpu, point.interval("p95_ttft_ms")
        bounded = up is not None and math.isfinite(up[2])
        table.add_row(
            point.name,
            str(point.load),
            f"{up[0]:.4g}" if up else next((one.status.value for one in point.measurements if not one.ok), "-"),
            f"{up[1]:.4g} to {up[2]:.4g}" if up is not None and bounded else "-",
            f"{point.per_user:.4g}" if point.per_user else "-",
            f"{first[0]:.4g}" if first else "-",
            str(len(point.values("output_throughput"))),
        )
    return table


def curve_picture(points: Sequence[MeasuredPoint]) -> str:
    """Tokens per second and GPU over tokens per second and user, a line for each configuration, as an SVG file."""
    lines = {}
    for name in dict.fromkeys(point.name for point in points):
        line = sorted((point.per_user, point.per_gpu[0]) for point in points if point.name == name and point.per_user and point.per_gpu)
        lines[name] = (np.array([x for x, _ in line]), np.array([y for _, y in line]))
    title = "tokens/s per GPU over tokens/s per user"
    return picture_file(chart("tokens/s per GPU", lines, "tokens/s per user"), width=WIDTH, height=HEIGHT, title=title)


def curve_json(points: Sequence[MeasuredPoint]) -> dict[str, Any]:
    """All rows."""
    return {"fidelity": "measured", "points": [point.to_json() for point in points]}


def best_per_gpu(points: Sequence[MeasuredPoint]) -> tuple[float, float, float] | None:
    """The most tokens per second and GPU of the last configuration, with its interval."""
    last = points[-1].name if points else ""
    return max((point.per_gpu for point in points if point.name == last and point.per_gpu), default=None)


__all__ = ["best_per_gpu", "curve_json", "curve_picture", "curve_table"]
