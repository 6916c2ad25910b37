"""One training run as the program that measures sees it, through the steps that all its processes report. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscout.training.nodes import Followers, Line, Place
from autoscout.training.runner import CLOCK, LocalRun, free_port

TURN_POLL_S = 0.02
FOLLOW_POLL_S = 0.02


@dataclass
class ProcessReports:
    """What one process has reported so far."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    stage: str = "starting"
    turn: int = 0  # which configuration, where it measures several
    turned_s: float = 0.0  # when it began with that


@dataclass(frozen=True, kw_only=True)
class RunFailure:
    """How a process of a run failed.

    Attributes:
        rank: Of the process; 0 for a launcher.
        code: Its exit code.
        log: The end of what it said.
    """

    rank: int
    code: int
    log: str


class TrainingRun:
    """A run as its first machine sees it: its own processes, and those of the other machines where there are any."""

    def __init__(self, trial: Mapping[str, Any], folder: Path, place: Place | None = None, others: Followers | None = None) -> None:
        self.began_s = CLOCK.span_s()
        self._reports: dict[str, ProcessReports] = {}
        self._turn = 0
        self._world = int(trial["ranks"])  # 0: a launcher knows how many
        self._others = others
        self.compiled_s = 0.0  # in which something was compiled
        self.most_gib = 0.0  # memory that a process which makes no steps of its own has held
        port = free_port(everywhere=others is not None)
        if others is not None:
            others.start(trial, port)
        self.here = LocalRun(trial, folder, port, place, others.interface if others is not None else "")

    def log(self) -> str:
        """The end of what the first process said."""
        return self.here.log(0)

    def waits_for(self) -> str:
        """What it said last, and what it compiles: for a run that is stopped before its end."""
        return self.here.waits_for()

    def look(self) -> None:
        """Read what was reported since the last time."""
        for name, report in self.here.reports():
            self._take(name, report)
        for name, report in self._others.reports() if self._others is not None else ():
            self._take(name, report)

    def _take(self, name: str, report: dict[str, Any]) -> None:
        if "max_gib" in report:
            self.most_gib = max(self.most_gib, float(report["max_gib"]))
            return
        reports = self._reports.setdefault(name, ProcessReports())
        if "turn" in report:
            reports.turn, reports.turned_s, reports.stage, reports.steps = int(report["turn"]), report["at_s"], "building", []
        elif "stage" in report:
            reports.stage = str(report["stage"])
        else:
            reports.stage = "training"
            reports.steps.append(report)

    @property
    def stage(self) -> str:
        """The earliest stage that any process is in."""
        order = ("starting", "building", "training")
        stages = [reports.stage for reports in self._reports.values()]
        return min(stages, key=lambda stage: order.index(stage) if stage in order else len(order), default="starting")

    def steps(self) -> list[list[dict[str, Any]]]:
        """The steps that all processes have finished: for each the reports, one per process."""
        if len(self._reports) < self._world:
            return []  # one of them has not said anything yet
        return [list(reports) for reports in zip(*(reports.steps for reports in self._reports.values()), strict=False)]

    def next_turn(self, limit_s: float) -> bool:
        """Have all processes continue with the next configuration; False when they have ended, or do not get there in time."""
        self._turn += 1
        self.here.call(self._turn)
        if self._others is not None:
            self._others.tell(turn=self._turn)
        deadline_s = CLOCK.span_s() + limit_s
        while CLOCK.span_s() < deadline_s:
            over = self.has_ended()
            self.look()
            if all(reports.turn == self._turn for reports in self._reports.values()):
                self.began_s = max(reports.turned_s for reports in self._reports.values())
                return True
            if over or self.failure() is not None:
                return False
            CLOCK.sleep(TURN_POLL_S)
        return False

    def has_ended(self) -> bool:
        return self.here.has_ended() and (self._others is None or self._others.have_ended)

    def failure(self) -> RunFailure | None:
        """The process that failed; of several the one that was killed."""
        failures = [RunFailure(rank=rank, code=code, log=log) for rank, code, log in (self._others.failed.values() if self._others else ())]
        if (broken := self.here.broken()) is not None:
            number, code = broken
            failures.insert(0, RunFailure(rank=self.here.first + number, code=code, log=self.here.log(number)))
        return min(failures, key=lambda failure: failure.code > 0, default=None)

    def worlds(self) -> tuple[int, int]:
        """How many processes have made steps, and how many there are as they say themselves; 0 where they do not."""
        training = [reports for reports in self._reports.values() if reports.steps]
        return len(training), max((int(reports.steps[-1].get("world", 0)) for reports in training), default=0)

    def end(self) -> None:
        """End all processes, here and on the other machines."""
        if self._others is not None:
            self._others.tell(end=True)
        self.here.end()


def durations(steps: Sequence[Sequence[Mapping[str, Any]]], began_s: float) -> list[float]:
    """Seconds of each step, the slowest process counting; the first from `began_s` on."""
    ends = [max(report["at_s"] for report in reports) for reports in steps]
    return [end - start for start, end in zip([began_s, *ends], ends, strict=False)]


def follow(trial: Mapping[str, Any], folder: Path, place: Place, line: Line) -> None:
    """What the program does on every other machine: what the first one says, until that goes away."""
    run: LocalRun | None = None
    over = failed = False
    while line.open:
        for order in line.hear(FOLLOW_POLL_S):
            if "start" in order:
                run, over = LocalRun({**trial, **order["start"]}, folder, int(order["port"]), place, line.interface), False
                failed = False
            elif "turn" in order and run is not None:
                run.call(int(order["turn"]))
            elif "end" in order and run is not None:
                run.end()
                run = None
        if run is None or over:
            continue
        broken, over = run.broken(), run.has_ended()  # before the last look, which then misses nothing
        for name, report in run.reports():
            line.say({"report": report, "file": name})
        if broken is not None and not failed:
            failed = True
            number, code = broken
            line.say({"failed": [run.first + number, code], "log": run.log(number)})
        if over:
            line.say({"ended": True})
    if run is not None:
        run.end()
