"""`autoscout mcp`: the verbs as tools of an agent."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from autoscout.agent.words import bounded
from autoscout.core.errors import Fault, PluginError
from autoscout.study.folder import DEFAULT


def mcp(
    folder: Annotated[Path, typer.Option(help="Where studies are read and started.")] = DEFAULT,
    allow_run: Annotated[
        bool, typer.Option("--allow-run", help="Offer tools that start and stop trials too; without it, nothing of yours is run.")
    ] = False,
    most: Annotated[str, typer.Option(help="The longest budget that a call may ask for.")] = "4h",
) -> None:
    """Offer the verbs as tools to a coding agent, over standard input and output (Model Context Protocol)."""
    if importlib.util.find_spec("mcp") is None:
        fix = "pip install 'autoscout[mcp]'"
        raise PluginError(Fault(where="mcp", rule="needs a package that is not installed: mcp", fix=fix))
    most_s = bounded(most, float("inf"), "--most")
    from autoscout.agent.program import Program
    from autoscout.agent.studies import Studies
    from autoscout.agent.tools import make_server

    program = Program()
    studies = Studies(folder, program)
    try:
        make_server(studies, program, may_run=allow_run, most_s=most_s).run("stdio")
    finally:
        program.close()
        studies.close()
