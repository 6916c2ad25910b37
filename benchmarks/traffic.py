"""What is it worth to tune on the traffic itself? `python -m benchmarks.traffic [--json] [--write]`.

Simulated, on services that are made here: one whose lengths drift, one with bursts, one that is a mixture of chat and code, one with short
answers. A configuration is chosen on a description of a window, and judged on the window's own requests. `--trace` does the same with
traces of your own. `--real` sends a known traffic to a real llama-server: see `benchmarks._traffic_real`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving.model import ServingModel, ServingOptions
from autoscout.study.campaign import build_campaign
from autoscout.study.drift import drift_of
from autoscout.study.setup import Setup, prepare
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.lengths import TokenLengths
from autoscout.traffic.requests import sample
from autoscout.traffic.sources.table import read_trace
from benchmarks._traffic_real import real

PAGE = Path(__file__).parent.parent / "docs" / "results" / "traffic.md"
LIMITS = ("p95_ttft_ms<=2000", "p95_tpot_ms<=50")
SEQS, STEPS = (64, 128, 256, 1024), (512, 1024, 2048, 4096, 8192)
DEFAULT = Config({"max_num_seqs": 1024, "max_num_batched_tokens": 8192})
CONFIGS = [Config({"max_num_seqs": seqs, "max_num_batched_tokens": step}) for seqs, step in product(SEQS, STEPS)]
ONE_TWO_FIVE = [step * 10.0**power for power in range(6) for step in (1, 2, 5)]
WINDOWS, REQUESTS = 4, 1500  # of each service
DRIFTS = 20  # services that have changed, and as many that have not
MOST_DRAWN = 60
PAYS = 1.3  # gain above which a study should be advised: clearly more than the error of the prediction
Pairs = list[tuple[int, int]]


def drawn(random: np.random.Generator, prompt: float, answer: float, count: int, spread: float = 0.9) -> Pairs:
    """Log-normal lengths around two medians."""
    columns = (random.lognormal(math.log(size), one, count) for size, one in ((prompt, spread), (answer, spread + 0.1)))
    return [(max(1, min(30_000, int(one))), max(1, min(4000, int(other)))) for one, other in zip(*columns, strict=True)]


def two_kinds(random: np.random.Generator, prompt: float, answer: float, count: int) -> Pairs:
    """Requests of two kinds, with gamma lengths: short ones, and a third that are six times as long."""
    is_long = random.random(count) < 1 / 3
    columns = []
    for mean, shape in ((prompt, 1.5), (answer, 2.0)):
        columns.append(random.gamma(shape, mean / shape, count) * np.where(is_long, 2.25, 0.375))
    return [(max(1, min(30_000, int(one))), max(1, min(4000, int(other)))) for one, other in zip(*columns, strict=True)]


@dataclass(frozen=True)
class DriftFamily:
    """Services that change.

    Attributes:
        seed: Of all of them.
        draw: Pairs of lengths around a prompt and an answer.
        prompts: Range of the prompt before and after the change, in tokens.
        answers: Likewise, of the answer.
    """

    seed: int
    draw: Callable[[np.random.Generator, float, float, int], Pairs]
    prompts: tuple[tuple[float, float], tuple[float, float]]
    answers: tuple[tuple[float, float], tuple[float, float]]

    def before(self, random: np.random.Generator) -> tuple[float, float]:
        """Prompt and answer of a service when it was tuned."""
        return float(random.uniform(*self.prompts[0])), float(random.uniform(*self.answers[0]))

    def after(self, random: np.random.Generator) -> tuple[float, float]:
        """The same today."""
        return float(random.uniform(*self.prompts[1])), float(random.uniform(*self.answers[1]))


FAMILIES = {
    "the family that its grid was fitted to": DriftFamily(77, drawn, ((300, 900), (1500, 3000)), ((80, 250), (6, 16))),
    "a family that it was not fitted to": DriftFamily(4039, two_kinds, ((200, 2000), (800, 6000)), ((40, 400), (4, 40))),
}


def services() -> Iterator[tuple[str, list[tuple[Pairs, float]]]]:
    """Name and windows: pairs of lengths, and the variation of gaps."""
    for name in ("drifting lengths", "bursts", "chat and code", "short answers"):
        windows = []
        for window in range(WINDOWS):
            random = np.random.default_rng([WINDOWS, window, len(name)])
            if name == "drifting lengths":
                windows.append((drawn(random, 400 * 1.8**window, 200 / 1.6**window, REQUESTS), 1.0))
            elif name == "bursts":
                windows.append((drawn(random, 800, 120, REQUESTS), 1.5 + window))
            elif name == "chat and code":
                share = (0.15, 0.35, 0.6, 0.85)[window]
                code = drawn(random, 2200, 14, int(REQUESTS * share), 0.6)
                windows.append(([*code, *drawn(random, 300, 260, REQUESTS - len(code))], 1.0))
            else:
                windows.append((drawn(random, 1500 * 1.2**window, 18, REQUESTS), 1.2))
        yield name, windows


def descriptions(pairs: Pairs, variation: float) -> dict[str, Traffic]:
    """What a configuration may be chosen on."""
    inputs, outputs = np.array(pairs).T
    means = [(float(column.mean()) * 0.9, float(column.mean()) * 1.1, 1.0) for column in (inputs, outputs)]
    counted = [
        TokenLengths.counted(ONE_TWO_FIVE, np.histogram(column, [0, *ONE_TWO_FIVE])[0].tolist(), float(column.sum()))
        for column in (inputs, outputs)
    ]

    def made(**fields: Any) -> Traffic:
        return Traffic(windows=(TrafficWindow(name="x", requests=float(len(pairs)), **fields),))

    return {
        "usual load": made(inputs=TokenLengths(bins=((512, 1536, 1),)), outputs=TokenLengths(bins=((64, 192, 1),))),
        "means": made(inputs=TokenLengths(bins=(means[0],)), outputs=TokenLengths(bins=(means[1],))),
        "histograms": made(inputs=counted[0], outputs=counted[1]),
        "log": made(pairs=sample(pairs, 400), gap_variation=variation),
    }


def capacities(traffic: Traffic, seed: int) -> dict[Config, float]:
    """Requests a second that each configuration holds."""
    objective = Objective(metric="capacity_rps", direction=Direction.MAXIMIZE, limits=tuple(map(Limit.parse, LIMITS)))
    workload = {"model": "llama-3.1-8b", **traffic.to_load()}
    task = Task(system="vllm", objective=objective, workload=workload, hardware={"gpus": "1xH100"})
    simulator = ServingModel(ServingOptions(seed=seed))
    return {config: simulator.metrics(config, task).get("capacity_rps", 0.0) for config in CONFIGS}


def chosen(values: Mapping[Config, float]) -> Config:
    """The best; of those within 3 % the one nearest the default."""
    least = 0.97 * max(values.values())
    return min((config for config in values if values[config] >= least), key=lambda config: (far(config), -values[config]))


def far(config: Config) -> float:
    """Distance to the default in doublings."""
    return sum(abs(math.log2(float(config[name]) / float(DEFAULT[name]))) for name in DEFAULT)  # type: ignore[arg-type]


def simulated(windows_of: Sequence[tuple[str, list[tuple[Pairs, float]]]]) -> dict[str, Any]:
    """Share of the best capacity of each window by what the choice was made on, and the worst of a choice on windows it was not made on."""
    rows, held = [], []
    for name, windows in windows_of:
        truths = []
        for pairs, variation in windows:
            whole = Traffic(windows=(TrafficWindow(name="x", requests=1.0, pairs=sample(pairs, 5000), gap_variation=variation),))
            truths.append(capacities(whole, seed=11))
        choices = []
        for number, ((pairs, variation), truth) in enumerate(zip(windows, truths, strict=True)):
            best = max(truth.values())
            found = {kind: chosen(capacities(traffic, seed=3)) for kind, traffic in descriptions(pairs, variation).items()}
            choices.append(found)
            shares = {"default": truth[DEFAULT] / best, **{kind: truth[config] / best for kind, config in found.items()}}
            rows.append({"service": name, "window": number, "best_rps": best, "shares": shares, "log": found["log"].to_json()})
        for number, found in enumerate(choices):
            others = [truth[found["histograms"]] / max(truth.values()) for place, truth in enumerate(truths) if place != number]
            if others:
                held.append({"service": name, "window": number, "least_share_elsewhere": min(others)})
    kinds = list(rows[0]["shares"])
    table = {
        kind: {"median": median(row["shares"][kind] for row in rows), "min": min(row["shares"][kind] for row in rows)} for kind in kinds
    }
    return {"fidelity": "simulated", "windows": len(rows), "table": table, "rows": rows, "elsewhere": held}


def drifts(family: DriftFamily) -> dict[str, Any]:
    """What `drift` says of services that have not changed, and of those that have so that a new study would pay.

    Whether it would is judged on many more requests and other draws than those that `drift` is given.
    """
    answers: dict[str, list[str]] = {"changed, a study pays": [], "the same": []}
    gains: list[dict[str, Any]] = []
    for seed in range(MOST_DRAWN):
        random = np.random.default_rng([family.seed, seed])
        prompt, answer = family.before(random)
        setup = _study(_service(family, random, prompt, answer))
        mine, config = tuned(setup)
        if len(answers["the same"]) < DRIFTS:
            answers["the same"].append(drift_of(setup, mine, _service(family, random, prompt, answer)).pays.value)
        prompt, answer = family.after(random)
        told = drift_of(setup, mine, _service(family, random, prompt, answer)).pays.value
        whole = TrafficWindow(name="x", requests=1.0, pairs=sample(family.draw(random, prompt, answer, 5000), 5000))
        truth = capacities(Traffic(windows=(whole,)), seed=11)
        gain = max(truth.values()) / truth[config] if truth[config] else math.inf
        gains.append({"gain": min(gain, 99.0), "said": told})
        if gain > PAYS:
            answers["changed, a study pays"].append(told)
        if len(answers["changed, a study pays"]) >= DRIFTS:
            break
    return {"fidelity": "simulated", "answers": answers, "all changed": gains}


def of_experts() -> str:
    """What `drift` says of a mixture of experts."""
    family = FAMILIES["the family that its grid was fitted to"]
    experts = _study(_service(family, np.random.default_rng(0), 600, 100), model="qwen3-30b-a3b", gpus="2xH100")
    return drift_of(experts, experts.default.to_json(), _service(family, np.random.default_rng(1), 2000, 10)).pays.value


def tuned(setup: Setup) -> tuple[dict[str, Any], Config]:
    """What a study would hand over, by simulation: the best, and of equals the nearest to the default."""
    simulator = ServingModel()
    configs = {config: setup.space.project({**setup.default, **config}) for config in CONFIGS}
    values = {config: simulator.metrics(whole, setup.task).get("capacity_rps", 0.0) for config, whole in configs.items()}
    return configs[chosen(values)].to_json(), chosen(values)


def _service(family: DriftFamily, random: np.random.Generator, prompt: float, answer: float) -> Traffic:
    window = TrafficWindow(name="all", requests=1000.0, seconds=300.0, pairs=sample(family.draw(random, prompt, answer, 1000), 400))
    return Traffic(source="a service", windows=(window,))


def _study(traffic: Traffic, model: str = "llama-3.1-8b", gpus: str = "1xH100") -> Setup:
    data = {
        "system": "vllm",
        "workload": {"model": model},
        "traffic": traffic.to_json(),
        "hardware": {"gpus": gpus},
        "goal": {"slo": LIMITS},
    }
    return prepare(build_campaign({**data, "goal": {"slo": list(LIMITS)}}, where="benchmarks.traffic"))


def of_traces(paths: Sequence[Path]) -> list[tuple[str, list[tuple[Pairs, float]]]]:
    """Traces as services of four windows."""
    found = []
    for path in paths:
        windows = []
        for part in np.array_split(np.array([(one.time_s, one.input_tokens, one.output_tokens) for one in read_trace(path)]), WINDOWS):
            gaps = np.diff(part[:, 0])
            variation = float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else 1.0
            windows.append(([(int(one), int(other)) for _, one, other in part.tolist()], variation))
        found.append((path.name, windows))
    return found


def page(document: Mapping[str, Any]) -> str:
    """The results as a page."""
    found = document["services"]
    elsewhere = [one["least_share_elsewhere"] for one in found["elsewhere"]]
    lines = [
        "# Your own traffic",
        "",
        "`python -m benchmarks.traffic --write`, see [the guide](../guides/traffic.md). **The first two parts are simulated** by the",
        f"product's own model of vLLM: Llama-3.1-8B on one H100, {' and '.join(LIMITS)}, `max_num_seqs` x `max_num_batched_tokens`",
        f"({len(CONFIGS)} configurations).",
        "",
        "## What a choice is worth by what it was made on",
        "",
        f"Four services made by the benchmark (drifting lengths, bursts, chat and code, short answers), {found['windows']} windows in all.",
        "Share of the best capacity of the window, judged on its own requests:",
        "",
        "| chosen on | median | least |",
        "|---|---|---|",
        *(f"| {kind} | {row['median']:.2f} | {row['min']:.2f} |" for kind, row in found["table"].items()),
        "",
        "A choice made on the histograms of one window has, on the other windows of its service, at least this share of their best:",
        f"{min(elsewhere):.2f} in the worst case, {median(elsewhere):.2f} in the median.",
        "",
        "## `autoscout drift`",
        *(line for name, found in document["drift"].items() for line in _drift_lines(name, found)),
        "",
        f'A mixture of experts (Qwen3-30B-A3B): "{document["mixture of experts"]}".',
        *(_real_lines(document["real"]) if document.get("real") else []),
    ]
    return "\n".join(lines) + "\n"


def _drift_lines(name: str, found: Mapping[str, Any]) -> list[str]:
    small = [one["said"] for one in found["all changed"] if one["gain"] <= PAYS]
    return [
        "",
        f"Services of {name}:",
        "",
        "| service | no | yes | cannot tell |",
        "|---|---|---|---|",
        *(
            f"| {kind} | {said.count('no')} | {said.count('yes')} | {said.count('cannot tell')} |"
            for kind, said in found["answers"].items()
        ),
        "",
        f"Changed services whose best configuration gains less than {PAYS:g}x over what was handed over are not in the table: of "
        f"{len(small)}, drift advised a study in {small.count('yes')}.",
    ]


def _real_lines(found: Mapping[str, Any]) -> list[str]:
    told, seconds = found["recovered"], f"{found['recovered']['seconds']:.0f}"
    before, after = found["load_average"]
    rows = []
    for name, values in found["judged"].items():
        shown = ", ".join(f"{value:.1f}" for value in values)
        rows.append(f"| {name} | {median(values):.1f} | {shown} |" if values else f"| {name} | - | failed |")
    lengths = []
    for kind, one in told["quantiles"].items():
        sent, read = (" / ".join(f"{one[side][at]:.0f}" for at in (0, 2, 4)) for side in ("sent", "read"))
        mean = told[f"mean_{kind}"]
        lengths += [f"| mean {kind} | {mean['sent']:.1f} | {mean['read']:.1f} |", f"| {kind}, 5 / 50 / 95 % | {sent} | {read} |"]
    return [
        "",
        "## A real llama-server",
        "",
        f"Measured on {os.cpu_count()} cores, on a **busy machine** (load average {before:.0f} before, {after:.0f} after):",
        "small differences mean nothing.",
        f"A known traffic was sent for {seconds} s; `--traffic http://HOST:PORT/metrics --traffic-over {seconds}s` read:",
        "",
        "| | sent | read |",
        "|---|---|---|",
        *lengths,
        f"| requests/s | {told['rate']['sent']:.2f} | {told['rate']['read']:.2f} |",
        "",
        f"Distance (mean logarithm of the ratios of means and quantiles): {told['distance']:.2f}.",
        "",
        f'A study on what was read ended "{found["own"]["verdict"]}", one on the usual load "{found["usual"]["verdict"]}". Then each',
        "answer under the traffic that was sent, in turns, tokens/s:",
        "",
        "| configuration | median | rounds |",
        "|---|---|---|",
        *rows,
        "",
        "The answers were measured without their `context_size`, which stays the default in every row: it follows from the load",
        "that a study is of, and one for the usual load would not be about the traffic that was sent. So the last row is not the",
        "whole answer of its study.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/results/traffic.md")
    parser.add_argument("--trace", nargs="*", type=Path, default=[], help="traces of your own")
    parser.add_argument("--real", nargs=2, metavar=("LLAMA_SERVER", "MODEL"), help="also with a real server")
    parser.add_argument("--real-result", type=Path, help="a document of an earlier --real")
    given = parser.parse_args()
    document: dict[str, Any] = {"services": simulated(list(services())), "drift": {}}
    for name, family in FAMILIES.items():
        document["drift"][name] = drifts(family)
    document["mixture of experts"] = of_experts()
    if given.trace:
        document["traces"] = simulated(of_traces(given.trace))
    if given.real:
        with tempfile.TemporaryDirectory() as folder:
            document["real"] = real(Path(folder), given.real[0], Path(given.real[1]), seconds=120.0, budget="5m", rounds=3)
    elif given.real_result:
        document["real"] = json.loads(given.real_result.read_text())
    if given.write:
        PAGE.write_text(page(document))
    print(json.dumps(document, indent=1) if given.json else page(document))


if __name__ == "__main__":
    main()
