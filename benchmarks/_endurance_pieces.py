"""Pieces of `benchmarks.endurance` that were done: kept in a file, and shown as a page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autoscout.common.files import write_file


@dataclass(frozen=True, kw_only=True)
class Endured:
    """What came of a piece of a case.

    Attributes:
        count: How often it was to be done.
        seed: Of the random moments and inputs.
        done: How often it was done.
        figures: What was counted.
        faults: What should not have happened; none is what is hoped for.
        fixed: What went wrong when the same piece was run before.
        cpu_s: Processor seconds, of all processes.
        skipped: Why it could not be done here.
    """

    count: int = 0
    seed: int = 0
    done: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    skipped: str = ""


@dataclass(frozen=True)
class Case:
    """One thing to break.

    Attributes:
        title: What is done.
        whole: How often the whole case does it.
        piece: How often a piece of it does it.
        work: Does it in a folder, that often.
    """

    title: str
    whole: int
    piece: int
    work: Callable[[Path, int, random.Random], Endured]


class Pieces:
    """All pieces that were done so far, in a file where one is named."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        stored = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self._of: dict[str, list[Endured]] = {name: [Endured(**each) for each in stored.get(name, [])] for name in stored}

    def of(self, name: str) -> list[Endured]:
        """The pieces of a case."""
        return list(self._of.get(name, ()))

    def done(self, name: str) -> int:
        """How often it was done, in all pieces together."""
        return sum(piece.done for piece in self.of(name))

    def add(self, name: str, piece: Endured) -> None:
        """Keep a piece, in the place of one with its seed."""
        others = [each for each in self.of(name) if each.seed != piece.seed]
        self._of[name] = sorted([*others, piece], key=lambda each: each.seed)
        print(json.dumps({name: asdict(piece)}), flush=True)
        if self._path is not None:
            write_file(self._path, json.dumps({each: [asdict(piece) for piece in pieces] for each, pieces in self._of.items()}, indent=1))


def total(pieces: Sequence[Endured]) -> dict[str, Any]:
    """Figures of all pieces: numbers add up, of words those of the last piece."""
    figures: dict[str, Any] = {}
    for piece in pieces:
        for name, value in piece.figures.items():
            figures[name] = figures.get(name, 0) + value if isinstance(value, int) else value
    return figures


def page(cases: Mapping[str, Case], pieces: Pieces, machine: str) -> str:
    """The page of what was endured."""
    lines = [
        "# What AutoScout survives",
        "",
        "Each case breaks one thing, often, in real studies on real programs, and counts what was lost, measured twice or left running.",
        "Written by `python -m benchmarks.endurance --keep FILE --write`; `make soak` runs the whole counts. Where fewer were done, the",
        "column *done* says how many. What went wrong and was fixed is counted as such when the same pieces, with the same seeds, were",
        "run again without it. " + machine,
        "",
        "| case | whole | done | what was counted | should not have happened | found, fixed and run again | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, case in cases.items():
        of = pieces.of(name)
        if not of:
            continue
        skipped = "; ".join(dict.fromkeys(piece.skipped for piece in of if piece.skipped))
        counted = "; ".join(f"{what} {value}" for what, value in total(of).items()) or skipped or "only what went wrong"
        faults, fixed = _listed([each for piece in of for each in piece.faults]), _listed([each for piece in of for each in piece.fixed])
        cells = [case.title, f"{case.whole:,}", f"{pieces.done(name):,}", counted, faults if not skipped else "not done", fixed]
        lines.append(f"| {' | '.join(cells)} | {sum(piece.cpu_s for piece in of):,.0f} |")
    return "\n".join([*lines, ""])


def _listed(faults: Sequence[str]) -> str:
    plain = [" ".join(fault.replace("|", "/").split())[:160] for fault in faults]
    more = f"; and {len(plain) - 3} more" if len(plain) > 3 else ""
    return "; ".join(plain[:3]) + more if plain else "nothing"


__all__ = ["Case", "Endured", "Pieces", "page"]
