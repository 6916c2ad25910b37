"""Draws the pictures of docs/explanation from real runs of the code; nothing in them is made up but the systems that are searched.

`PYTHONPATH=src python scripts/pictures.py [NAME ...]` writes docs/images/NAME.svg. They follow the reader's light or dark theme.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autoscout
from autosched.arrivals.synthetic import Recipe, generate
from autosched.control.controller import Controller
from autosched.control.overview import overview
from autosched.control.settings import build_settings
from autosched.live.replay import Replay
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.series import timeline
from autosched.sim.simulation import Simulation
from autosched.web.cluster_plots import gains_plot, settings_plot
from autoscout.analysis.labels import PART_NAMES
from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.common.draw import HEIGHT, WIDTH, Scale, box, chart, label, line, picture
from autoscout.common.markup import Markup, join, tag
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.estimate.search import estimate
from autoscout.learning.answers import AnswerSet
from autoscout.report.sections.convergence import convergence_plot
from autoscout.report.sections.header import intervals
from autoscout.report.sections.predicted import predicted_plot
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.searcher import HybridSearcher
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.search.hybrid.target import ruler
from autoscout.space import Grid, Space
from autoscout.space.encode import Encoder
from autoscout.study.final import Finals

IMAGES = Path(__file__).parent.parent / "docs" / "images"
STYLE = """
:root { --ink: #1d2125; --quiet: #5d6673; --rule: #dcdcd6; --faint: #efefea; --card: #fff; --accent: #1466a8; --good: #0d7a53;
  --bad: #b3261e; --warn: #94560a; --sim: #7040a8; --band: #1466a81c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #9ca5b2; --rule: #3a404b; --faint: #2a2f38; --card: #1a1d23;
  --accent: #6db5ec; --good: #52cf9c; --bad: #ff8b80; --warn: #f1b25c; --sim: #c39bf2; --band: #6db5ec2c; } }
svg { font: 12px system-ui, sans-serif; }
text:not([fill]) { fill: var(--ink); } .tick, .axis-name, .default-label, .range-label { fill: var(--quiet); }
line, .grid { stroke: var(--rule); } line.default { stroke: var(--ink); stroke-dasharray: 5 4; }
.truth { fill: none; stroke: var(--quiet); stroke-dasharray: 4 3; } .mean { fill: none; stroke: var(--accent); stroke-width: 2; }
.spread, .band { fill: var(--band); } .worth { fill: none; stroke: var(--good); stroke-width: 2; }
.chance { fill: none; stroke: var(--warn); stroke-width: 1.5; }
.dot { fill: var(--accent); } .dot.improved, .dot.good { fill: var(--good); }
.dot.failed, .dot.bounded { fill: none; stroke: var(--bad); stroke-width: 2; }
.next { stroke: var(--good); stroke-dasharray: 3 3; } path.best { fill: none; stroke: var(--good); stroke-width: 2; }
line.range { stroke: var(--quiet); stroke-width: 5; stroke-linecap: round; } line.range.better { stroke: var(--good); }
circle.range { fill: var(--quiet); } circle.range.better { fill: var(--good); }
.setting { stroke: var(--rule); fill: var(--faint); } .setting.odd { fill: var(--band); }
line.predicted { stroke: var(--sim); stroke-width: 3; opacity: .5; }
circle.predicted { fill: var(--card); stroke: var(--sim); stroke-width: 2; }
circle.measured:not(.dot) { fill: var(--good); } circle.measured.worse { fill: var(--bad); }
"""
"""The colours of the report, for light and dark."""
WIDE, TALL, LEFT, RIGHT = 720, 300, 62, 700


def themed(drawing: Markup) -> str:
    """A drawing as a file that brings its own style."""
    start = drawing.index("<title>")
    wide, tall = drawing.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()
    head = drawing[:start].replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" ', 1)
    return f"{head}<style>{STYLE}</style>{drawing[start:]}\n"


def curve(xs: Sequence[float], ys: Sequence[float], kind: str) -> Markup:
    """A line through points; those that are not finite break it."""
    steps, drawing = [], False
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(y):
            steps.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
        drawing = math.isfinite(y)
    return tag("path", d="".join(steps), class_=kind)


# --- the search ---

SHARES = [round(0.02 * step, 2) for step in range(1, 50)]
LOW_MS, HIGH_MS = 22.0, 70.0  # of the axis
MOST = 0.84  # above it the made-up system does not fit


def step_ms(share: float) -> float:
    """A system with one knob, a share of memory that is set aside: too little and it waits, too much and the rest suffers."""
    return 30.0 + 60.0 * (share - 0.62) ** 2 + 3.0 * math.cos(9.0 * share) + 14.0 * math.exp(-9.0 * share)


def searched(space: Space, task: Task, measure: Callable[[Config], float | None], count: int, seed: int) -> list[Trial]:
    """Trials of a real search; None is a failure."""
    searcher, trials = HybridSearcher(space, task, seed), list[Trial]()
    for number in range(count):
        (proposal,) = searcher.ask(1)
        value = measure(proposal.config)
        answer = (
            Measurement(status=Status.OOM_START) if value is None else Measurement(status=Status.OK, metrics={task.objective.metric: value})
        )
        trials.append(Trial(proposal=proposal, measurement=answer, number=number))
        searcher.tell(trials[-1:])
    return trials


def search_model() -> Markup:
    """What the model of one knob believes after a few trials, what it is worth to try where, and what is tried next."""
    space, task = Space([Grid("share", values=SHARES, default=0.3)]), Task(system="picture", objective=Objective(metric="step_ms"))
    measure = lambda config: None if config["share"] > MOST else step_ms(float(str(config["share"])))  # noqa: E731
    trials = searched(space, task, measure, 7, seed=3)
    panels = [_model_panel(space, task, trials[:count], trials[count].proposal, place) for place, count in enumerate((4, 6))]
    parts = [tag("g", panel, transform=f"translate({place * 360:g},0)") for place, panel in enumerate(panels)]
    words = "What the search believes about one knob after four and after six trials, and what it tries next"
    return picture(*parts, width=WIDE, height=TALL + 60, title=words)


def _model_panel(space: Space, task: Task, trials: Sequence[Trial], following: Proposal, place: int) -> Markup:
    told = AnswerSet(space, task.objective)
    told.add(trials)
    encoder = Encoder(space)
    model = Surrogate(encoder, {})
    model.fit(told.answers())
    rows = encoder.rows([Config(share=share) for share in SHARES])
    mean, spread = model.predict(rows)
    chance = model.chance(rows)
    worth = model.worth(rows)
    found, _ = ruler(np.array([answer.loss for answer in told.answers() if not answer.failed]))

    def value(target: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        drawn = np.clip(target * found.scale + found.shift, None, 0.999 * tuning.TARGET_TAIL)
        return np.exp(
            found.centre
            + found.deviation * np.where(drawn > 0, tuning.TARGET_TAIL * np.arctanh(np.maximum(drawn, 0) / tuning.TARGET_TAIL), drawn)
        )

    across = Scale(low=0.0, high=1.0, start=46, end=346)
    up, below = Scale(low=LOW_MS, high=HIGH_MS, start=210, end=34), Scale(low=0, high=1.15, start=TALL + 20, end=240)
    xs = [across.place(share) for share in SHARES]
    low, high = (np.clip(value(mean + sign * 2 * spread), LOW_MS, HIGH_MS) for sign in (-1, 1))
    edge = [f"{x:.1f},{up.place(y):.1f}" for x, y in [*zip(xs, low, strict=True), *reversed(list(zip(xs, high, strict=True)))]]
    parts = [label(f"after {len(trials)} trials", 46, 20, class_="axis-name"), tag("polygon", points=" ".join(edge), class_="spread")]
    truth = [up.place(step_ms(share)) if share <= MOST else math.nan for share in SHARES]
    parts += [curve(xs, truth, "truth"), curve(xs, [up.place(y) for y in np.clip(value(mean), LOW_MS, HIGH_MS)], "mean")]
    parts += [curve(xs, [below.place(y) for y in worth / worth.max()], "worth"), curve(xs, [below.place(y) for y in chance], "chance")]
    for trial in trials:
        x = across.place(float(str(trial.config["share"])))
        good = trial.ok
        y = up.place(trial.measurement.metrics["step_ms"]) if good else 216.0
        parts.append(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_="dot") if good else _cross(x, y))
    x = across.place(float(str(following.config["share"])))
    parts += [line(x, 34, x, TALL + 20, "next"), label("next", x, 30, text_anchor="middle", class_="tick")]
    parts += [line(46, y, 346, y, "grid") for y in (210, TALL + 20)]
    parts += [label(f"{tick:g}", across.place(tick), TALL + 36, text_anchor="middle", class_="tick") for tick in (0, 0.25, 0.5, 0.75, 1)]
    parts += [label("share", 196, TALL + 52, text_anchor="middle", class_="axis-name")]
    if place == 0:
        parts += [label("ms", 40, 60, text_anchor="end", class_="tick"), label("worth", 40, 270, text_anchor="end", class_="tick")]
    return join(parts)


def _cross(x: float, y: float) -> Markup:
    return tag("path", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", class_="dot failed")


def search_map() -> Markup:
    """Where a real search of two knobs went, in which order; crosses failed."""
    across_values, up_values = [2**power for power in range(8)], [64 * 2**power for power in range(8)]
    space = Space([Grid("parallel", values=across_values, default=4), Grid("batch", values=up_values, default=512)])
    task = Task(system="picture", objective=Objective(metric="step_ms"))

    def measure(config: Config) -> float | None:
        parallel, batch = (math.log2(float(str(config[name]))) for name in ("parallel", "batch"))
        return None if parallel + batch > 16 else 20.0 + 3.0 * (parallel - 5) ** 2 + 2.0 * (batch - 9.5 - 0.4 * (parallel - 5)) ** 2

    trials = searched(space, task, measure, 16, seed=1)
    best = min((trial for trial in trials if trial.ok), key=lambda trial: trial.measurement.metrics["step_ms"])
    side, top = 34.0, 20.0
    parts: list[Markup] = []
    place = {(x, y): (LEFT + side * a, top + side * (7 - b)) for a, x in enumerate(across_values) for b, y in enumerate(up_values)}
    for (x, y), (left, upper) in place.items():
        value = measure(Config(parallel=x, batch=y))
        shade = 0.0 if value is None else max(0.04, 0.75 - 0.16 * math.log(value / 20.0))
        kind = "none" if value is None else "var(--good)"
        parts.append(box(left, upper, side, side, fill=kind, fill_opacity=f"{shade:.2f}", stroke="var(--rule)"))
    for trial in trials:
        left, upper = place[int(str(trial.config["parallel"])), int(str(trial.config["batch"]))]
        x, y = left + side / 2, upper + side / 2
        parts.append(
            tag("circle", cx=x, cy=y, r=11, fill="var(--card)", stroke="var(--ink)", stroke_width=3 if trial is best else 1)
            if trial.ok
            else _cross(x, y - 8)
        )
        parts.append(label(trial.number, x, y + (4 if trial.ok else 12), text_anchor="middle"))
    parts += [
        label(f"{x}", LEFT + side * (a + 0.5), top + 8 * side + 16, text_anchor="middle", class_="tick")
        for a, x in enumerate(across_values)
    ]
    parts += [label(f"{y}", LEFT - 8, top + side * (7.5 - b) + 4, text_anchor="end", class_="tick") for b, y in enumerate(up_values)]
    parts += [
        label("parallel", LEFT + 4 * side, top + 8 * side + 34, text_anchor="middle", class_="axis-name"),
        label("batch", 8, 12, class_="axis-name"),
    ]
    steps = [f"{trial.number}: {trial.proposal.origin.notes.get('proposer', '')}" for trial in trials]
    parts += [label(words, 380 + 130 * (number // 8), 40 + 24 * (number % 8), class_="tick") for number, words in enumerate(steps)]
    parts.append(label("trial: who proposed it", 380, 18, class_="axis-name"))
    return picture(
        *parts, width=WIDE, height=TALL + 40, title="A search of two knobs, trial by trial; greener is faster, crosses ran out of memory"
    )


def noisy_study() -> autoscout.Outcome:
    """A study of a function whose answers scatter, with a final."""
    draw = np.random.default_rng(5)

    def seconds(config: Config) -> float:
        base = 10.0 + 0.25 * (config["threads"] - 6) ** 2 + (0.0 if config["fused"] else 0.9)  # type: ignore[operator]
        return float(base * draw.normal(1.0, 0.05))

    return autoscout.minimize(
        seconds, {"threads": [2, 1, 3, 4, 5, 6, 7, 8], "fused": bool}, trials=14, metric="seconds", finals=Finals(rounds=5)
    )


def search_final() -> Markup:
    """Search, simplifying and final of a noisy study: the number that won the search is not the one that counts."""
    summary = noisy_study().summary
    drawing = convergence_plot(summary.task, summary.points, summary.default.value if summary.default else None)
    assert drawing is not None
    return drawing


def search_gain() -> Markup:
    """The final's own numbers: gain of each finalist with its interval."""
    drawing = intervals(noisy_study().summary.finalists)
    assert drawing is not None
    return drawing


# --- the simulators ---


def simulators_step() -> Markup:
    """Where the time of a training step goes in three layouts."""
    layouts = ({"tp": 1, "pp": 1}, {"tp": 4, "pp": 1}, {"tp": 1, "pp": 4})
    found = []
    for pins in layouts:
        best = estimate("megatron", model="llama-3.1-8b", gpus="32xH100", global_batch=128, pins={**pins, "mbs": 1}, top=1).candidates[0]
        found.append((", ".join(f"{name}={value}" for name, value in pins.items()), best.parts))
    names = [name for name in PART_NAMES if any(parts.get(name, 0.0) > 0.01 * sum(parts.values()) for _, parts in found)]
    colours = dict(
        zip(
            names,
            ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#cc6677", "#999933", "#332288"),
            strict=False,
        )
    )
    longest = max(sum(parts.values()) for _, parts in found)
    items: list[Markup] = []
    for row, (title, parts) in enumerate(found):
        left, y = 120.0, 16 + 44 * row
        items.append(label(title, 110, y + 19, text_anchor="end", class_="tick"))
        for name in names:
            wide = (RIGHT - 180) * parts.get(name, 0.0) / longest
            items.append(
                tag("g", tag("title", f"{PART_NAMES[name]}: {parts.get(name, 0.0):.3f} s"), box(left, y, wide, 30, fill=colours[name]))
            )
            left += wide
        items.append(label(f"{sum(parts.values()):.2f} s", left + 8, y + 19, class_="tick"))
    for number, name in enumerate(names):
        x, y = 120 + 200 * (number % 3), 172 + 20 * (number // 3)
        items += [box(x, y - 10, 11, 11, fill=colours[name]), label(PART_NAMES[name], x + 18, y, class_="tick")]
    return picture(
        *items,
        width=WIDE,
        height=184 + 20 * ((len(names) + 2) // 3),
        title="Predicted time of a step of an 8B model on 32 H100 in three layouts, by what it goes into",
    )


def simulators_rate() -> Markup:
    """Latency of a server over the rate of requests, as the batching loop predicts it."""
    rates = [float(rate) for rate in range(4, 45, 4)]
    lines: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
    for batch in (2048, 8192):
        late = []
        for rate in rates:
            pins: dict[str, Any] = {"tensor_parallel_size": 1, "max_num_batched_tokens": batch}
            late.append(
                estimate("vllm", model="llama-3.1-8b", gpus="1xH100", request_rate=rate, pins=pins, top=1)
                .candidates[0]
                .metrics["p95_ttft_ms"]
            )
        lines[f"max_num_batched_tokens={batch}"] = np.asarray(rates), np.asarray(late)
    body = chart("p95 time to the first token, ms (simulated)", lines, "requests per second")
    return picture(body, width=WIDTH, height=HEIGHT, title="Predicted latency over the rate of requests for two settings")


def simulators_prior() -> Markup:
    """Predicted against what came out, in a study of a virtual cluster whose truth differs from the simulator that informs the search."""
    campaign = {
        "system": "virtual",
        "workload": {"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 96},
        "hardware": {"gpus": "8xA100-80"},
        "simulate": {"simulator": "training"},
        "budget": {"trials": 16},
        "finals": {"rounds": 0},
        "name": "picture",
    }
    with tempfile.TemporaryDirectory() as folder:
        found = autoscout.tune(campaign, folder)
    task, rows = found.summary.task, []
    for trial in found.trials:
        predicted = trial.measurement.conditions.get("predicted")
        if predicted is not None:
            rows.append(PredictedTrial(trial=trial.number, name="", predicted=predicted, measured=task.objective.value(trial.measurement)))
    drawing = predicted_plot(Predictions(simulator="training", metric=task.objective.metric, rows=tuple(rows)))
    assert drawing is not None
    return drawing


# --- the schedulers ---


def scheduler_queue() -> Markup:
    """The same jobs under the published settings of Tiresias and under tuned ones."""
    trace = generate(Recipe(profile="philly", jobs=1_500, days=3, load=1.1, cluster_gpus=64, seed=4))
    cluster = Cluster.parse("8x8")
    question = Simulation(trace=trace, cluster=cluster, scheduler="tiresias")
    tuned = autoscout.minimize(question, question.space(), trials=30, metric="mean_jct_s", simulated=True).best
    assert tuned is not None
    lines = {}
    for name, scheduler in (("published settings", Tiresias.of(question.space().default())), ("tuned settings", Tiresias.of(tuned))):
        course = timeline(simulate(trace, cluster, scheduler), 300)
        lines[name] = (course["time_s"] - course["time_s"][0]) / 86_400.0, course["jobs"]
    body = chart("jobs in the system (simulated)", lines, "days")
    return picture(body, width=WIDTH, height=HEIGHT, title="Jobs in the system under the published and under tuned settings")


def replayed(folder: Path) -> Any:
    """A controller that applies what it decides, on a replayed trace."""
    start_s = 1_577_664_406 + 2 * 86_400
    live = {"trace": "synthetic:philly:1500:5:1", "cluster": "3x8", "scheduler": "tiresias", "start": str(start_s)}
    tuning_block = {"draws": 4, "trials": 16, "least_gain": 1.05}
    given = {"cluster": "replayed", "live": {"kind": "replay", **live}, "folder": str(folder), "mode": "apply", "look": "20m", "watch": 0}
    settings = build_settings({**given, "every": "2h", "tuning": tuning_block}, "picture")
    controller = Controller(settings, Replay(live))
    controller.run(until_s=start_s + 30 * 3_600.0)
    controller.ledger.close()
    return overview(settings.target, "replayed")


def scheduler_history() -> Markup:
    """Settings over time, and each change's predicted and measured gain, of a controller on a replayed trace."""
    with tempfile.TemporaryDirectory() as folder:
        seen = replayed(Path(folder))
    drawings = [drawing for drawing in (settings_plot(seen), gains_plot(seen)) if drawing is not None]
    heights = [float(drawing.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1]) for drawing in drawings]
    parts, top = [], 0.0
    for drawing, height in zip(drawings, heights, strict=True):
        parts.append(Markup(drawing.replace("<svg ", f'<svg y="{top:g}" width="900" height="{height:g}" ', 1)))
        top += height
    return picture(
        *parts,
        width=900,
        height=top,
        title="Settings that a controller changed on a replayed trace, and what each change was predicted to gain and gained",
    )


PICTURES: dict[str, Callable[[], Markup]] = {
    "search-model": search_model,
    "search-map": search_map,
    "search-final": search_final,
    "search-gain": search_gain,
    "simulators-step": simulators_step,
    "simulators-rate": simulators_rate,
    "simulators-prior": simulators_prior,
    "scheduler-queue": scheduler_queue,
    "scheduler-history": scheduler_history,
}
"""Name of the file -> what draws it."""


def main() -> int:
    """Write the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        (IMAGES / f"{name}.svg").write_text(themed(PICTURES[name]()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
