"""Several studies next to each other: what sets them apart, what each hands over, and what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from autoscout.common.text import show, show_gain, show_number
from autoscout.report.metrics import TOLD

LEFT_OUT = ("requests", "warmup", "repeats")
"""Fields of a load that follow from the others."""


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One study.

    Attributes:
        study: Its name.
        load: The fields of its workload in which the studies differ.
        answer: Knobs that some study changes, with the value that this one hands over; None for one that means nothing there.
        metrics: Of what it hands over: the goal, and how many guesses were right.
        gain: How many times better than what it is compared with, with its interval; none where nothing was shown to be better.
    """

    study: str
    load: Mapping[str, Any]
    answer: Mapping[str, Any]
    metrics: Mapping[str, float]
    gain: Mapping[str, float] | None


def across(documents: Sequence[Mapping[str, Any]]) -> tuple[StudyRow, ...]:
    """The rows of studies by their `report.json`, in the order of what sets them apart."""
    loads = [{name: value for name, value in one["task"]["workload"].items() if isinstance(value, (int, float, str))} for one in documents]
    names = [name for name in dict.fromkeys(name for load in loads for name in load) if name not in LEFT_OUT]
    apart = [name for name in names if len({load.get(name) for load in loads}) > 1]
    changed = dict.fromkeys(change["knob"] for one in documents if one["answer"] for change in one["changes"] if _is_gain(one))
    rows = []
    for one, load in zip(documents, loads, strict=True):
        best = one["best"] if _is_gain(one) else one["default"]
        metrics = (best or {}).get("metrics", {})
        goal = one["task"]["objective"]["metric"]
        rows.append(
            StudyRow(
                study=one["study"],
                load={name: load.get(name) for name in apart},
                answer={knob: (one["answer"] or {}).get(knob) for knob in changed},
                metrics={name: metrics[name] for name in (goal, *TOLD) if name in metrics},
                gain={name: one["gain"][name] for name in ("ratio", "low", "high")} if _is_gain(one) and one["gain"].get("ratio") else None,
            )
        )
    return tuple(sorted(rows, key=_order))


def _is_gain(document: Mapping[str, Any]) -> bool:
    """Whether the study hands over something else than what it is compared with."""
    return bool(document["answer"]) and document["default"] is not None and document["answer"] != document["default"]["config"]


def _order(row: StudyRow) -> tuple[Any, ...]:
    """Numbers by size, words by the alphabet."""
    keys: list[Any] = []
    for value in row.load.values():
        keys += [(0, value, "")] if isinstance(value, (int, float)) else [(1, 0.0, str(value or ""))]
    return (*keys, row.study)


def across_table(rows: Sequence[StudyRow]) -> Table:
    """For a terminal: a column for each study."""
    table = Table(title="What wins where", title_justify="left")
    first, metrics = rows[0], list(dict.fromkeys(name for row in rows for name in row.metrics))
    heads = list(first.load) or ["study"]
    table.add_column(heads[0], overflow="fold")
    for row in rows:
        table.add_column(_cell(next(iter(row.load.values()), row.study)), overflow="fold", justify="right")
    for name in heads[1:]:
        table.add_row(name, *(_cell(row.load[name]) for row in rows))
    for name in first.answer:
        table.add_row(name, *(_cell(row.answer[name]) for row in rows))
    for name in metrics:
        table.add_row(name, *(_cell(row.metrics.get(name)) for row in rows))
    table.add_row("gain", *(show_gain(row.gain["ratio"], row.gain["low"], row.gain["high"]) if row.gain else "none" for row in rows))
    return table


def _cell(value: Any) -> str:
    return "-" if value is None else show_number(value) if isinstance(value, float) else show(value)


def to_json(rows: Sequence[StudyRow]) -> dict[str, Any]:
    """For programs."""
    return {"studies": [asdict(row) for row in rows]}


__all__ = ["StudyRow", "across", "across_table", "to_json"]
