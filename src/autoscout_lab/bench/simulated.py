"""Searchers that a simulator informs, compared with the same searchers without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault
from autoscout.study.plugin_options import build_options
from autoscout.study.start import find_simulator, understands
from autoscout_lab.bench.replay import Run
from autoscout_lab.bench.score import Scores
from autoscout_lab.bench.table import Table

if TYPE_CHECKING:
    from autoscout_lab.bench.race import Entry

NEAR_OPTIMUM = 0.05
"""How near the optimum the comparison asks for."""


def read_plugin(text: str, where: str) -> tuple[str, dict[str, Any]]:
    """Read `NAME[:OPTION=VALUE...]`; values are read as YAML.

    Raises:
        ConfigError: it does not read so.
    """
    name, *parts = text.strip().split(":")
    options: dict[str, Any] = {}
    for part in parts:
        key, equals, raw = part.partition("=")
        if not equals:
            rule, fix = "options read NAME=VALUE", f"Example: {name}:option=1"
            raise ConfigError(Fault(where=where, value=repr(text), rule=rule, fix=fix))
        options[key.strip().replace("-", "_")] = yaml.safe_load(raw)
    return name, options


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A simulator with options, as people write it: `training`, `training:stack=torchtitan`."""

    label: str
    plugin: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Simulated:
        """Read it, and check that there is such a simulator and that the options fit."""
        name, options = read_plugin(text, "--simulator")
        simulator = cls(label=text.strip(), plugin=name, options=tuple(options.items()))
        simulator.build()
        return simulator

    def build(self) -> Any:
        """A fresh simulator."""
        kind = plugins.get("simulator", self.plugin)
        options = build_options(kind, dict(self.options), where=f"simulator {self.label}")
        return kind() if options is None else kind(options)

    def reads(self, table: Table) -> str:
        """Why it cannot predict a table; empty when it can."""
        return understands(self.build(), table.space, table.task)


def informed(entries: Sequence[Entry], simulator: Simulated) -> tuple[Entry, ...]:
    """Every searcher as it is, and those that can make use of a simulator with it besides.

    Raises:
        ConfigError: none can.
    """
    able = [entry for entry in entries if entry.takes_predictions]
    if not able:
        named = ", ".join(entry.label for entry in entries)
        rule = "none of these searchers can be told what a simulator predicts"
        raise ConfigError(Fault(where="--simulator", value=named, rule=rule, fix="Add hybrid to --searchers"))
    return (*entries, *(replace(entry, label=f"{entry.label}+{simulator.label}", simulator=simulator) for entry in able))


def informants(entries: Sequence[Entry], tables: Iterable[Table]) -> dict[str, str]:
    """Name of a table -> the simulator that informs searchers on it without being named; tables that none understands are left out."""
    if not any(entry.takes_predictions for entry in entries):
        return {}
    simulators = {table.name: find_simulator(table.space, table.task) for table in tables}
    return {table: simulator for table, simulator in simulators.items() if simulator}


def as_informants(simulators: Mapping[str, str], entries: Sequence[Entry]) -> str:
    """One line that says who is informed by what and where."""
    able = ", ".join(entry.label for entry in entries if entry.takes_predictions)
    groups = {name: [table for table, simulator in simulators.items() if simulator == name] for name in dict.fromkeys(simulators.values())}
    where = "; ".join(f"by {name} on {', '.join(tables)}" for name, tables in groups.items())
    return f"{able} informed {where}; --simulator none races without"


def compare(runs: Sequence[Run], scores: Scores, entries: Sequence[Entry], tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """What the simulator saves, one row per pair of searchers and table and one over all tables.

    `evaluations` are the real ones to 5 % of the optimum, `wasted` those of them that failed, `failures` the share of the whole run
    that failed; each without the simulator, then with it.
    """
    pairs = [(entry.label.removesuffix(f"+{entry.simulator.label}"), entry.label) for entry in entries if entry.simulator is not None]
    lots = {name: [score for score in scores.by_table if score.table == name] for name in tables} | {"all tables": list(scores.overall)}
    rows = []
    for pair in pairs:
        for title, lot in lots.items():
            by_name = {score.searcher: score for score in lot}
            mine = [[run for run in runs if run.searcher == name and title in (run.table, "all tables")] for name in pair]
            rows.append(
                {
                    "table": title,
                    "searchers": list(pair),
                    "evaluations": [by_name[name].evaluations_to[NEAR_OPTIMUM] for name in pair],
                    "wasted": [float(np.mean([_wasted(run, tables[run.table]) for run in some])) for some in mine],
                    "failures": [by_name[name].failures for name in pair],
                }
            )
    return rows


def _wasted(run: Run, table: Table) -> int:
    """Failures before the run came within 5 % of the optimum."""
    goal = table.optimum + NEAR_OPTIMUM * abs(table.optimum)
    reached = next((index for index, loss in enumerate(run.losses) if loss is not None and loss <= goal), len(run.losses))
    return sum(loss is None for loss in run.losses[:reached])


def as_comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """The figures of `compare` for people."""
    lines = ["with and without the simulator: real evaluations to 5 % of the optimum, how many of them failed, failures of the whole run"]
    for row in rows:
        (plain, informed), (before, after), (lost, still) = row["searchers"], row["evaluations"], row["wasted"]
        text = (
            f"  {row['table']}: {informed} {after:.1f}, {plain} {before:.1f} (ratio {after / before:.2f}); failed {still:.1f}, {lost:.1f}"
        )
        if None not in row["failures"]:
            text += f"; {100 * row['failures'][1]:.1f} %, {100 * row['failures'][0]:.1f} %"
        lines.append(text)
    return "\n".join(lines)
