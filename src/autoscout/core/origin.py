"""Origin: who proposed a configuration, in which part of a study, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """The part of a study that a trial belongs to."""

    SEARCH = "search"
    SIMPLIFY = "simplify"
    FINAL = "final"


class By(StrEnum):
    """Who proposes besides searchers, which sign with their own names."""

    DEFAULT = "default"  # measured first
    BASELINE = "baseline"  # what the user runs today, measured next
    PROFILING = "profiling"  # drawn at random and measured before the search, for simulators to learn from
    GIVEN = "given"  # a known-good configuration of the user or the backend
    CHECK = "check"  # measured to see how far a simulator is right
    TOP = "top"  # among the best of a simulator that is no longer believed
    INCUMBENT = "incumbent"  # what simpler configurations are compared with
    SIMPLER = "simpler"  # the incumbent with some knobs back at the default
    ASKED = "asked"  # somebody asked for it while the study ran
    PROFILE = "profile"  # a single configuration that a user asked for


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a proposal comes from; stored with its trial, so that a run can be explained and replayed.

    Attributes:
        by: One of `By`, or the name of a searcher.
        phase: The part of the study.
        round: Of the final or of simplifying, from 1; the two count on together, so that no two rounds share a number.
        contenders: Keys of all configurations that met in this final or heat, sorted.
        notes: The proposer's own, as JSON: a searcher routes credit by them. Nobody else reads a meaning into them.
    """

    by: str = ""
    phase: Phase = Phase.SEARCH
    round: int = 0
    contenders: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"by": str(self.by)} if self.by else {}
        if self.phase is not Phase.SEARCH:
            data |= {"phase": self.phase.value, "round": self.round, "field": list(self.contenders)}
        return {**data, **({"notes": dict(self.notes)} if self.notes else {})}

    @property
    def flat(self) -> dict[str, Any]:
        """Proposer and notes in one mapping."""
        return {"by": str(self.by), **self.notes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Origin:
        """Reads what `to_json` wrote, and trials of earlier versions, whose notes stood next to the rest."""
        rest = dict(data)
        inner = rest.pop("notes") if isinstance(rest.get("notes"), Mapping) else {}
        by = rest.pop("by") if isinstance(rest.get("by"), str) else ""
        phase = rest.get("phase")
        if phase not in (Phase.FINAL, Phase.SIMPLIFY):
            return cls(by=by, notes={**rest, **inner})
        number, contenders = rest.pop("round", 0), rest.pop("field", ())
        del rest["phase"]
        is_list = isinstance(contenders, (list, tuple))
        return cls(
            by=by,
            phase=Phase(phase),
            round=number if isinstance(number, int) else 0,
            contenders=tuple(map(str, contenders)) if is_list else (),
            notes={**rest, **inner},
        )
