"""`autoscout traffic`: read what users ask into a small file, and show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import flags, options
from autoscout.study.campaign import duration_s
from autoscout.traffic.read import read_traffic
from autoscout.traffic.words import picture as drawn
from autoscout.traffic.words import sentence


def traffic(
    source: Annotated[
        str, typer.Argument(help="http://HOST:PORT/metrics, prometheus:http://HOST:9090, a log, a trace, a saved page, or a description.")
    ],
    over: Annotated[str, typer.Option(help="How long a live page is read (5m), or how far a Prometheus server is asked back.")] = "",
    windows: flags.TrafficWindows = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the description, for --traffic here or elsewhere.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture of it as an SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the description.")] = False,
) -> None:
    """Describe what users ask of a server: lengths, rate, bursts, shared prompts, sessions; no contents are read."""
    description = read_traffic(source, duration_s(over) if over else 0.0, windows or 0)
    if output is not None:
        description.write(output)
    if picture is not None:
        picture.write_text(drawn(description), encoding="utf-8")
    if as_json:
        options.emit(description.to_json())
        return
    options.console.print(description.source, style="bold", markup=False, highlight=False)
    for window in description.windows:
        more = " (held out)" if window.held_out else ""
        options.console.print(f"  {sentence(window)}{more}", markup=False, highlight=False, soft_wrap=True)


__all__ = ["traffic"]
