"""The trial program of training backends: starts the ranks, watches their steps, and writes what they came to.

    python -m autoscout.training.trial train_input.json

Runs in a folder of its own, once per measurement. Ranks stay in its process group. It ends them as soon as the step time has settled, when
one of them fails, when none makes a step any more, or when they cannot win. Standard library only, apart from what the ranks import.
"""

from __future__ import annotations

import json
import math
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.common.files import write_whole
from autoscout.common.processes import begin_program
from autoscout.core.curves import curves_here
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import COMPILED
from autoscout.training.nodes import Followers, NodeLostError, Place, connect, run_token
from autoscout.training.protocol import DEPTH, FAILED, INPUT, RESULT, STAGE, TFLOPS, TURNS
from autoscout.training.run import RunFailure, TrainingRun, durations, follow
from autoscout.training.runner import CLOCK
from autoscout.training.steps import (
    FIRST_STEPS,
    StepPlan,
    extrapolated,
    has_enough_steps,
    loss_fault,
    warm_up_steps,
    work_fault,
)

POLL_S = 0.05
TOGETHER_S = 0.5  # ranks that lose a partner fail within this time of it; the cause is looked for among all of them
LOST_S = 10.0  # for the executor to say why a machine went away, which this program cannot know
HANG_STEPS = 20  # a step that takes this many times the median of those before it will not end
MIN_JUDGED_STEPS = 4  # steps after the warm-up that tell what a step takes; two tell that a run is far behind
WORK = ("tokens", "samples")
STAGE_S = 1.0  # between two looks at how far it came

Steps = Sequence[Sequence[Mapping[str, Any]]]


class TrainingFailed(Exception):  # noqa: N818 - a result
    """The run ended early; `kind` is a status, or `ended` where the log must tell."""

    def __init__(self, kind: str, reason: str, failure: RunFailure | None = None) -> None:
        super().__init__(reason)
        self.kind, self.log = kind, failure.log if failure is not None else ""
        self.returncode = failure.code if failure is not None else 0


def measure(trial: Mapping[str, Any], run: TrainingRun, to_beat: ToBeat | None) -> dict[str, Any]:
    """Watch a run until enough is known.

    Raises:
        Failed: a process failed, hangs, or learns something else than the default.
    """
    plan = StepPlan(**trial["plan"])
    stopped = watch(trial, run, plan, to_beat)
    steps = run.steps()
    taken = durations(steps, run.began_s)
    if stopped:
        return {**summary(trial, run, taken, plan), **stopped}
    worlds, world = run.worlds()
    if world and worlds > world:
        why = f"{worlds} processes train, and each knows of {world}: the machines did not meet, so every one trains on its own"
        raise TrainingFailed("wrong_output", why)
    if len(taken) < plan.warm_up + 1:
        raise TrainingFailed("wrong_output", f"ended after {len(taken)} steps; at least {plan.warm_up + 1} must be reported")
    curve = loss_curve(steps)
    default = curves_here()
    why = work_fault(worked(steps, "tokens"), default.get("tokens", ()))
    why = why or loss_fault(curve, default.get("loss", ()), trial["max_loss_gap"], trial["max_first_gap"])
    if why:
        raise TrainingFailed("wrong_output", why)
    return summary(trial, run, taken, plan)


def watch(trial: Mapping[str, Any], run: TrainingRun, plan: StepPlan, to_beat: ToBeat | None) -> dict[str, Any]:
    """Return once the steps suffice, the run has ended by itself, or it cannot win any more: then with its bounds, and why."""
    moved_s = looked_s = CLOCK.span_s()
    count, least = 0, int(trial["loss_steps"])
    while True:
        over = run.has_ended()  # before the last look, which then misses nothing
        run.look()
        steps = run.steps()
        taken = durations(steps, run.began_s)
        if (failed := run.failure()) is not None:
            CLOCK.sleep(TOGETHER_S)
            run.look()
            failed = run.failure() or failed
            raise TrainingFailed("ended", f"rank {failed.rank} ended with {exit_words(failed.code)} after {len(steps)} steps", failed)
        if over or (len(steps) >= least and has_enough_steps(taken, plan)):
            return {}
        if to_beat is not None and len(steps) > max(count, plan.warm_up + 1):
            bounds = _reachable(to_beat, steps, taken, plan)
            if why := to_beat.lost(bounds):
                return {"bounds": bounds, "reason": why}
        now_s = CLOCK.span_s()
        if len(steps) > count:
            count, moved_s = len(steps), now_s
        usual_s = statistics.median(taken[1:]) if len(taken) > 1 else math.inf
        if now_s - moved_s > max(trial["hang_s"], HANG_STEPS * usual_s):
            raise TrainingFailed(
                "timeout", f"no step for {now_s - moved_s:.0f} s after {len(steps)} steps, where one took {usual_s:.3g} s before"
            )
        if now_s - looked_s > STAGE_S:
            run.compiled_s += now_s - looked_s if run.here.compiles() else 0.0
            looked_s = now_s
            Path(STAGE).write_text(f"{run.stage}\n")
        CLOCK.sleep(POLL_S)


def _reachable(to_beat: ToBeat, steps: Steps, taken: Sequence[float], plan: StepPlan) -> dict[str, float]:
    """The best that the metrics are likely to reach.

    While there are hardly any steps to judge by, twice as good as the best of them: one step alone may have compiled something.
    """
    per_step = rates(steps, taken, plan.warm_up)
    if len(steps) >= plan.warm_up + MIN_JUDGED_STEPS:
        return to_beat.likely(per_step)
    return {name: 2 * max(values) if name.endswith("_per_s") else min(values) / 2 for name, values in per_step.items()}


def loss_curve(steps: Steps) -> list[float | None]:
    """The loss of each step: the mean over what those who know it trained on; None where it is not finite. Empty when nobody knows."""
    curve: list[float | None] = []
    for reports in steps:
        losses = [report for report in reports if "loss" in report]
        if not losses:
            return []
        if any(report["loss"] is None for report in losses):
            curve.append(None)
            continue
        weights = [float(report.get("tokens", 0.0)) for report in losses]
        curve.append(statistics.fmean([report["loss"] for report in losses], weights if sum(weights) else None))
    return curve


def worked(steps: Steps, name: str) -> list[float]:
    """What all processes together have done in each step."""
    return [sum(float(report.get(name, 0.0)) for report in reports) for reports in steps]


def rates(steps: Steps, taken: Sequence[float], cut: int) -> dict[str, list[float]]:
    """Time and throughput of every step after the first `cut`."""
    values = {"step_ms": [1000 * duration for duration in taken[cut:]]}
    for name in WORK:
        amounts = worked(steps, name)[cut:]
        if sum(amounts):
            values[f"{name}_per_s"] = [amount / duration for amount, duration in zip(amounts, taken[cut:], strict=True)]
    return values


def summary(trial: Mapping[str, Any], run: TrainingRun, taken: Sequence[float], plan: StepPlan) -> dict[str, Any]:
    """Metrics of the steps after the warm-up, and what the trial spent."""
    steps, cut = run.steps(), warm_up_steps(taken, plan.warm_up)
    rest = list(taken[cut:])
    mean_s = statistics.fmean(rest)
    work = {name: worked(steps, name) for name in WORK}
    most_gib = max([run.most_gib, *(float(report["mem_gib"]) for report in steps[-1] if "mem_gib" in report)])
    metrics = {"step_ms": 1000 * mean_s, "peak_mem_gib": most_gib}
    room = [report["mem_total_gib"] - report["mem_gib"] for report in steps[-1] if "mem_total_gib" in report]
    metrics |= {"free_mem_gib": max(0.0, min(room))} if room else {}
    samples = rates(steps, taken, cut)
    metrics |= {f"{name}_per_s": sum(amounts[cut:]) / sum(rest) for name, amounts in work.items() if sum(amounts[cut:])}
    counted = [float(report["tflops"]) for reports in steps[cut:] for report in reports if "tflops" in report]
    metrics |= {TFLOPS: statistics.fmean(counted)} if counted else {}
    curve = loss_curve(steps)
    at = min(len(curve), int(trial["loss_steps"]))
    if at:
        window = [loss for loss in curve[max(0, at - FIRST_STEPS) : at] if loss is not None]
        metrics["loss_after"] = statistics.fmean(window)
    return {
        "metrics": metrics,
        "samples": samples,
        "curves": {"loss": [loss for loss in curve if loss is not None], "tokens": work["tokens"] if any(work["tokens"]) else []},
        "tokens_per_step": statistics.median(work["tokens"]),
        "spent": {
            "start_s": taken[0],
            "warm_up_s": sum(taken[1:cut]),
            "measure_s": sum(rest),
            **({COMPILED: run.compiled_s} if run.compiled_s else {}),
        },
        "steps": {"dropped": cut, "measured": len(rest)},
    }


def exit_words(code: int) -> str:
    """An exit code for people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


Begin = Callable[[Mapping[str, Any]], TrainingRun]
"""Starts the processes of a trial."""


def _measured(trial: Mapping[str, Any], begin: Begin) -> dict[str, Any]:
    """One run, or one at each of two depths of the model."""
    if not trial["depths"]:
        return measure(trial, begin(trial), ToBeat.here())
    results = []
    for depth in trial["depths"]:
        shallow = {**trial, "env": {**trial["env"], DEPTH: str(depth)}}
        run = begin(shallow)
        results.append(measure(shallow, run, None))  # what is to beat is a figure of the whole model
        run.end()
    return extrapolated(results, trial["depths"], trial["layers"])


def _in_turn(trial: Mapping[str, Any], begin: Begin) -> dict[str, Any]:
    """Several configurations in as few starts as possible, each kept as soon as it is known.

    After a failure the others get fresh processes. What fails in processes that others have used is tried again first in fresh ones: what
    was left there may be to blame.
    """
    results: list[dict[str, Any]] = []
    ended_s = CLOCK.span_s()
    while rest := trial["turns"][len(results) :]:
        env = {**trial["env"], TURNS: json.dumps([turn["config"] for turn in rest])}
        run = begin({**trial, "env": env})
        first_s = 0.0  # until the first step of this start
        for number, turn in enumerate(rest):
            try:
                result = measure({**trial, **turn}, run, ToBeat.here())
                first_s = first_s or result["spent"]["start_s"]
                result["spent"]["saved_s"] = max(0.0, first_s - result["spent"]["start_s"])
            except TrainingFailed as error:
                if number:
                    break
                result = {**_failure(error, run), "log": error.log or run.log()}
            ended_s, took_s = CLOCK.span_s(), CLOCK.span_s() - ended_s
            results.append({**result, "took_s": took_s})
            _write({"turns": results})
            if "failure" in result or number + 1 == len(rest) or not run.next_turn(trial["hang_s"]):
                break
        run.end()
    return {"turns": results}


def _failure(error: TrainingFailed, run: TrainingRun) -> dict[str, Any]:
    return {"failure": error.kind, "reason": str(error), "returncode": error.returncode, "stage": run.stage}


def _write(result: Mapping[str, Any]) -> None:
    write_whole(Path(RESULT), json.dumps(result, indent=1) + "\n")


def main(path: str) -> int:
    """Measure what the file describes; the result is in `result.json` whatever happens."""
    text = Path(path).read_text()
    trial = json.loads(text)
    begin_program()
    try:
        place = Place.here(int(trial["nodes"])) if trial["nodes"] > 1 and not trial["first_only"] else None
        if place is not None and place.rank:
            follow(trial, Path.cwd(), place, connect(place, run_token(text)))
            return 0
        others = None if place is None else Followers(place, run_token(text))
    except (NodeLostError, ValueError) as error:
        return _give_up(error)
    return _lead(trial, place, others)


def _give_up(error: Exception) -> int:
    _write({"failure": "crashed", "reason": str(error), "returncode": 0, "stage": ""})
    print(error, file=sys.stderr)
    return FAILED


def _lead(trial: Mapping[str, Any], place: Place | None, others: Followers | None) -> int:
    """What the program does on the only machine, or the first of several."""
    runs: list[TrainingRun] = []

    def begin(trial: Mapping[str, Any]) -> TrainingRun:
        runs.append(TrainingRun(trial, Path.cwd(), place, others))
        return runs[-1]

    try:
        result = _in_turn(trial, begin) if trial.get("turns") else _measured(trial, begin)
    except TrainingFailed as error:
        _write(_failure(error, runs[-1]))
        print(error.log or runs[-1].log(), file=sys.stderr)
        print(f"{error.kind}: {error}", file=sys.stderr)
        return FAILED
    except NodeLostError as error:
        CLOCK.sleep(LOST_S)
        return _give_up(error)
    except SystemExit:  # told to stop, at the time limit for instance
        print("".join(run.waits_for() for run in runs[-1:]), file=sys.stderr)
        raise
    finally:
        for run in runs[-1:]:
            run.end()
            Path(STAGE).write_text(f"{run.stage}\n")
        if others is not None:
            others.close()
    _write(result)
    for name, value in result.get("metrics", {}).items():
        print(f"{name}: {value:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else INPUT))
