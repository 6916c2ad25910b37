"""The causal graph as a picture (SVG) and as a file for Graphviz (dot)."""

from __future__ import annotations

from autosched.tune.causal.graph import Graph
from autoscout.common.draw import PALETTE, box, label, line, picture_file

_WIDTH, _ROW, _TOP = 860, 110, 60  # pixels: the picture, from layer to layer, above the first


def dot(graph: Graph) -> str:
    """Three layers from top to bottom; thick edges showed in most resamples."""
    lines = ["digraph causes {", "  rankdir=TB;", f'  label="{graph.method}";', "  node [shape=box];"]
    for names in (graph.knobs, graph.metrics, (graph.objective,)):
        lines.append("  { rank=same; " + " ".join(f'"{name}";' for name in names) + " }")
    lines += [f'  "{one}" -> "{other}" [penwidth={0.5 + 2.5 * share:.2f}];' for (one, other), share in sorted(graph.edges.items())]
    return "\n".join([*lines, "}", ""])


def svg(graph: Graph, title: str = "What acts on what") -> str:
    """The same as a picture; settings without any effect are grey."""
    layers = [graph.knobs, graph.metrics, (graph.objective,)]
    positions: dict[str, tuple[float, float]] = {}
    for row, names in enumerate(layers):
        for number, name in enumerate(names):
            positions[name] = (_WIDTH * (number + 0.5) / max(1, len(names)), _TOP + row * _ROW)
    active = {one for one, _ in graph.edges}
    parts = [label(title, 12, 20, font_size=14), label(graph.method, 12, 38, font_size=11, fill="#666")]
    for (one, other), share in sorted(graph.edges.items()):
        (x1, y1), (x2, y2) = positions[one], positions[other]
        parts.append(line(x1, y1 + 12, x2, y2 - 12, stroke=PALETTE[0], stroke_width=f"{0.5 + 2.0 * share:.2f}", stroke_opacity=0.6))
    for name, (x, y) in positions.items():
        used = name in active or name == graph.objective
        wide = 8.0 * len(name) + 12
        parts.append(box(x - wide / 2, y - 12, wide, 24, fill="white", stroke="#333" if used else "#bbb"))
        parts.append(label(name, x, y + 4, font_size=12, text_anchor="middle", fill="#111" if used else "#999"))
    return picture_file(*parts, width=_WIDTH, height=_TOP + 2 * _ROW + 40, title=title)
