"""The table of verbs. A verb's module is imported when the verb is called, not to list it in `--help`.

Other packages add theirs in the entry-point group `autoscout.verbs`, pointing at a `Verb` in a module that imports nothing slow.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import typer
import typer.core
import typer.main


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the program and where it is implemented."""

    name: str
    home: str  # "package.module:attribute"; the attribute is a function, or a Typer app that has verbs of its own
    help: str  # first line of its docstring or of the app's help; a test keeps them equal

    def load(self) -> Any:
        """The command, with its arguments and flags; imports its module."""
        module, attribute = self.home.split(":")
        target = getattr(importlib.import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            function, target = target, typer.Typer(add_completion=False)
            target.command(self.name)(function)
        command = typer.main.get_command(target)
        command.name = self.name
        return _plain(command)


VERBS = (
    Verb(
        name="tune",
        home="autoscout.cli.tune:tune",
        help="Find a better configuration by measuring. Run it again to resume: nothing is measured twice.",
    ),
    Verb(name="resume", home="autoscout.cli.resume:resume", help="Continue where a study was stopped or killed; more budget may be given."),
    Verb(
        name="report",
        home="autoscout.cli.report:report",
        help="Write report.html, summary.csv and best/ again from the stored trials, and show the result.",
    ),
    Verb(
        name="compare",
        home="autoscout.cli.compare:compare",
        help="What wins where: the answers of several studies next to each other, by what sets their loads apart.",
    ),
    Verb(
        name="track",
        home="autoscout.cli.track:track",
        help="Show a study in MLflow, Weights & Biases, Trackio, TensorBoard or an Optuna study.db; again: only what is new.",
    ),
    Verb(
        name="dashboard",
        home="autoscout.cli.dashboard:dashboard",
        help="Show studies in a browser while they run: results, plots, trials and logs; with a token, steer them.",
    ),
    Verb(
        name="explain",
        home="autoscout.cli.explain:explain",
        help="Who proposed what, the steps by which the best was found, and the tree of what was tried.",
    ),
    Verb(
        name="profile",
        home="autoscout.cli.profile:profile",
        help="Measure one configuration for real and print its metrics; nothing is stored.",
    ),
    Verb(
        name="check",
        home="autoscout.cli.check:check",
        help="Measure a configuration or version in turn with another, and say with an interval whether it is as good. Exit code 1: worse.",
    ),
    Verb(
        name="curve",
        home="autoscout.cli.curve:curve",
        help="Measure tokens/s per GPU against tokens/s per user over loads; of a result folder, the default and the best.",
    ),
    Verb(name="render", home="autoscout.cli.render:render", help="Show the command, variables and files of one configuration."),
    Verb(
        name="estimate",
        home="autoscout.cli.estimate:estimate",
        help="Predict the best configurations of a system and where their time and memory go. Nothing is run.",
    ),
    Verb(
        name="traffic",
        home="autoscout.cli.traffic:traffic",
        help="Describe what users ask of a server: lengths, rate, bursts, shared prompts, sessions; no contents are read.",
    ),
    Verb(
        name="drift",
        home="autoscout.cli.drift:drift",
        help="Say in one line whether a new study would pay on today's traffic, by prediction. It changes nothing.",
    ),
    Verb(
        name="calibrate",
        home="autoscout.cli.calibrate:calibrate",
        help="Fit the simulators to measured tables, and say how wrong they are on workloads that the fit has not seen.",
    ),
    Verb(
        name="doctor",
        home="autoscout.cli.doctor:doctor",
        help="Say which plug-ins load and why others do not, and what this machine offers.",
    ),
    Verb(name="space", home="autoscout.cli.space:app", help="Show, count or check a space of configurations."),
    Verb(
        name="mcp",
        home="autoscout.agent.verb:mcp",
        help="Offer the verbs as tools to a coding agent, over standard input and output (Model Context Protocol).",
    ),
)


def _plain(command: Any) -> Any:
    """The command and all below it with plain help: tables cut the names of flags, and lists of verbs their sentences."""
    command.rich_markup_mode = None
    command.short_help = (command.help or "").partition("\n\n")[0]
    for below in getattr(command, "commands", {}).values():
        _plain(below)
    return command


@cache
def verbs() -> tuple[Verb, ...]:
    """All verbs: those of this package, then those of others by name."""
    return (*VERBS, *(point.load() for point in sorted(entry_points(group="autoscout.verbs"), key=lambda point: point.name)))


class _Listed(typer.core.TyperCommand):
    """A verb that is listed but not loaded."""

    def __init__(self, verb: Verb) -> None:
        super().__init__(verb.name, help=verb.help, short_help=verb.help)
        self.verb = verb


class Verbs(typer.core.TyperGroup):
    """A group whose commands come from the table."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {verb.name: _Listed(verb) for verb in verbs()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that was called, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.verb.load() if isinstance(command, _Listed) else command, rest

    def load_all(self) -> Verbs:
        """Itself with every verb loaded, for whoever walks the whole program (the reference, tests)."""
        self.commands = {verb.name: verb.load() for verb in verbs()}
        return self


__all__ = ["VERBS", "Verb", "Verbs", "verbs"]
