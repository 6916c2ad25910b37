"""Where the time of a step goes, as a picture that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

COLOURS = (
    "#4477aa",
    "#66ccee",
    "#228833",
    "#ccbb44",
    "#ee6677",
    "#aa3377",
    "#bbbbbb",
    "#332288",
    "#88ccee",
    "#117733",
    "#999933",
    "#cc6677",
)
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
WIDTH, BAR, ROW = 720, 36, 20


def breakdown_svg(parts: Mapping[str, float], title: str = "") -> str:
    """One bar split by share, with a legend in seconds and percent; parts below a thousandth are left out."""
    total = sum(parts.values())
    shown = sorted(((name, value) for name, value in parts.items() if value > 0.001 * total), key=lambda pair: -pair[1])
    height = 2 * ROW + BAR + ROW * len(shown) + ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="15">{escape(title)}: {total:.4g} s per step, simulated</text>',
    ]
    left = 0.0
    for number, (name, value) in enumerate(shown):
        colour, width = COLOURS[number % len(COLOURS)], WIDTH * value / total
        lines.append(f'<rect x="{left:.1f}" y="{ROW + 4}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
        top = 2 * ROW + BAR + ROW * number
        lines.append(f'<rect x="0" y="{top}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="20" y="{top + 11}">{escape(name)}</text>')
        lines.append(f'<text x="300" y="{top + 11}">{value:.4f} s</text><text x="400" y="{top + 11}">{value / total:.1%}</text>')
        left += width
    return "\n".join([*lines, "</svg>"]) + "\n"


__all__ = ["PART_NAMES", "breakdown_svg"]
