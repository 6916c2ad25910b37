"""Live progress in the terminal; one line per trial where there is none (CI logs, pipes)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autoscout.analysis.labels import KnobNote, namer, one_line, show_spent
from autoscout.analysis.tally import Tally
from autoscout.analysis.verdict import Verdict
from autoscout.common.text import plural, show_duration, show_gain, show_number
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.reference import References
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Trial

_FAILURES_SHOWN = 3
_RUNNING_SHOWN = 6

OTHERS = {"gpu_other_share": "GPUs", "other_cpu_share": "cores"}
"""Conditions that say how much of something others used during a trial."""


class ProgressDisplay:
    """Watches a study and shows how it goes. Safe to call from any thread.

    A study that is resumed reports its old trials before its first `phase`; they count, but are not shown one by one.

    Args:
        task: Objective and budget.
        default_config: The engine's default.
        baseline: What the user runs today.
        console: Where to show; standard error is the usual choice, so that standard output stays clean for `--json`.
        clock: For elapsed time and the estimate of what is left.
        workers: How many trials run at once.
        final_trials: How many trials the final is expected to add.
        final_rounds: How often it measures each of its configurations.
        knobs: The space's knobs, for readable names.
        live: Whether to draw a live display; None asks the console.
    """

    def __init__(
        self,
        task: Task,
        default_config: Config,
        *,
        console: Console | None = None,
        clock: Clock | None = None,
        workers: int = 1,
        final_trials: int = 0,
        final_rounds: int = 0,
        knobs: Iterable[KnobNote] = (),
        live: bool | None = None,
        baseline: Config | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock or RealClock()
        self._lock = threading.RLock()
        self._references = References(default_config, baseline)
        self._name_of: Callable[[Config], str] = namer(self._references.reference(()), knobs, self._references.titles)
        self._tally = Tally(
            task,
            default_config,
            workers=workers,
            final_trials=final_trials,
            final_rounds=final_rounds,
            name_of=self._name_of,
            baseline=baseline,
        )
        self._running: dict[tuple[str, int], tuple[str, float]] = {}
        self._failures: deque[tuple[Trial, str]] = deque(maxlen=_FAILURES_SHOWN)
        self._phase = ""
        self._default = default_config
        self._reported: set[Config] = set()  # references of which it was said that they do not run
        self._started_s = self._clock.span_s()
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal if live is None else live
        self._closed = False
        self._drawn: RenderableType = Text("")
        self._live = Live(get_renderable=self.render, console=self._console, refresh_per_second=4) if is_live else None  # draws at once

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def phase(self, name: str) -> None:
        """A part of the study begins: "search", then "simplify" and "final" where there are any."""
        with self._lock:
            first = not self._phase
            self._phase = name
            done = self._tally.done
            if first:
                self._started_s = self._clock.span_s()
                self._tally.begin()
        # The display is never touched with the lock held: its own thread takes the two locks the other way round.
        if self._live is not None and first and not self._closed:
            self._live.start()
        elif self._live is None:
            self._say(Text(f"{name}: resumes after {plural(done, 'stored trial')}" if first and done else f"{name}"))

    def started(self, proposal: Proposal) -> None:
        """A trial begins."""
        with self._lock:
            self._running[_slot(proposal)] = (self._name_of(proposal.config), self._clock.span_s())

    def finished(self, trial: Trial) -> None:
        """A trial ended, here or in another process that works on the same study."""
        with self._lock:
            self._running.pop(_slot(trial.proposal), None)
            improved = self._tally.add(trial)
            if trial.measurement.status.failed:
                self._failures.append((trial, self._name_of(trial.config)))
            line = self._line(trial, improved) if self._live is None and self._phase else None
            broken = trial.measurement.status.failed and trial.config in self._references and trial.config not in self._reported
            self._reported |= {trial.config} if broken and self._phase else set()
            hint = self._short_of_time(trial)
        if line is not None:
            self._say(line)
        if hint:
            self._say(Text(hint, style="yellow"))
        if broken and self._phase:
            why = one_line(trial.measurement.reason) or "no reason given"
            self._say(
                Text(f"the {self._references.titles[trial.config]} does not run: {trial.measurement.status.value}: {why}", style="bold red")
            )

    def repeated(self, proposal: Proposal, disturbed: Measurement) -> None:
        """A trial is measured again, because other work disturbed it."""
        used = {what: disturbed.conditions.get(name, 0.0) for name, what in OTHERS.items()}
        most = max(used, key=lambda what: used[what])
        why = "disturbed by other work" + (f" (others used {100 * used[most]:.0f} % of its {most})" if used[most] else "")
        why = why if disturbed.ok or not disturbed.reason else one_line(disturbed.reason)
        self._say(Text(f"{why}: measured again after {show_duration(disturbed.cost_s)}: {self._name_of(proposal.config)}", style="yellow"))

    def _short_of_time(self, trial: Trial) -> str:
        """What to say after the default's first measurement where the budget may be too short for a verdict."""
        budget_s = self._tally.task.budget.wall_s
        if budget_s is None or self._tally.done != 1 or not trial.ok or trial.config != self._default or not self._phase:
            return ""
        count, needed_s = self._tally.needed(trial)
        if needed_s <= budget_s:
            return ""
        took, up_to = show_duration(trial.measurement.usual_s), show_duration(needed_s)
        return f"a measurement took {took}; a verdict needs about {count}, up to {up_to}: a longer --budget can be given later"

    def close(self) -> None:
        """Leave the last state on the screen. Safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._running.clear()
        if self._live is not None and self._live.is_started:
            self._live.stop()

    def render(self) -> RenderableType:
        """The display now; the last one drawn while another thread changes it.

        Never waits for long: a signal handler that prints may have stopped a thread that holds our lock, and then waits for
        the display's own lock, which the thread that calls this holds.
        """
        if self._lock.acquire(timeout=0.2):
            try:
                self._drawn = self._draw()
            finally:
                self._lock.release()
        return self._drawn

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = [self._head(), self._best()]
        now_s = self._clock.span_s()
        running = list(self._running.values())
        for name, since_s in running[:_RUNNING_SHOWN]:
            parts.append(Text(f"  running  {name}  {show_duration(now_s - since_s)}", style="cyan", no_wrap=True, overflow="ellipsis"))
        if len(running) > _RUNNING_SHOWN:
            parts.append(Text(f"  and {len(running) - _RUNNING_SHOWN} more", style="cyan"))
        for trial, name in self._failures:
            why = one_line(trial.measurement.reason) or "no reason given"
            text = f"  failed   #{trial.number} {trial.measurement.status.value}  {why}  ({name})"
            parts.append(Text(text, style="red", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _head(self) -> Table:
        tally = self._tally
        elapsed_s = self._clock.span_s() - self._started_s
        table = Table.grid(padding=(0, 2))
        share = tally.share(elapsed_s)
        bar: RenderableType = ProgressBar(total=1.0, completed=share or 0.0, width=28, pulse=share is None)
        cells: list[RenderableType] = [Text(self._phase or "start", style="bold"), bar, Text(tally.progress_text())]
        cells.append(Text(f"{show_duration(elapsed_s)} gone"))
        left_s = tally.left_s(elapsed_s)
        if left_s is not None and not self._closed:
            cells.append(Text(f"about {show_duration(left_s)} left"))
        if tally.failed:
            cells.append(Text(f"{tally.failed} failed", style="red"))
        table.add_row(*cells)
        return table

    def _best(self) -> Text:
        tally = self._tally
        metric = tally.task.objective.metric
        if tally.best is None:
            return Text(f"  best     no configuration has run yet ({metric})", style="dim")
        name = f"#{tally.best.number} {self._name_of(tally.best.config)}"
        if tally.final is not None and tally.final.best is not None:
            name = tally.final.best.name
        text = f"  best     {metric} {show_number(self._best_value())}  {self._gain_text()}  {name}"
        return Text(text, style="green", no_wrap=True, overflow="ellipsis")

    def _best_value(self) -> float | None:
        final = self._tally.final
        return final.best.value if final is not None and final.best is not None else self._tally.best_value

    def _gain_text(self) -> str:
        tally = self._tally
        if tally.final is not None and tally.final.best is not None:
            gain = tally.final.gain
            if tally.final.verdict is Verdict.KEEPS:
                return f"keeps the limits, which the {tally.reference_name} does not"
            return f"{show_gain(gain.ratio, gain.low, gain.high)} in the final"
        if tally.default_breaks:
            return f"keeps the limits so far, which the {tally.reference_name} does not"
        return f"(no {tally.reference_name} yet)" if tally.gain is None else f"{show_gain(tally.gain)} so far"

    def _line(self, trial: Trial, improved: bool) -> Text:
        answer = trial.measurement
        tally = self._tally
        text = f"[{tally.progress_text()}] #{trial.number} {answer.status.value}"
        if answer.ok:
            metric = tally.task.objective.metric
            text += f" {metric}={show_number(answer.metrics.get(metric))}"
            text += " (simulated)" if answer.fidelity.label == "simulated" else ""
            text += " breaks a limit" if tally.task.objective.loss(answer) == float("inf") else ""
        else:
            text += f": {one_line(answer.reason) or 'no reason given'}"
        spent = show_spent(answer)
        text += f" {self._name_of(trial.config)} {show_duration(answer.cost_s)}" + (f" ({spent})" if spent else "")
        if tally.best is not None:
            text += f"; {'new best' if improved else 'best'} {show_number(self._best_value())}, {self._gain_text()}"
        return Text(text)

    def _say(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


def _slot(proposal: Proposal) -> tuple[str, int]:
    return proposal.config.canonical, proposal.repeat
