"""Real vLLM on one GPU, tuned: `python -m benchmarks.h200_vllm tight lossy --model FOLDER --out FOLDER --wall 44m`.

Studies of an 8B model with random weights, 1024 +- 512 tokens in and 128 +- 64 out, each as `autoscout tune vllm` makes it: `lossless`
(TTFT and TPOT limits), `lossy` (the same limits, with fp8 weights and cache allowed), `tight` (a limit on the gaps between tokens, fp8
allowed too). `traffic` is of a service that completes code, made here: long prompts, and answers of which most are a few tokens; there
the simulator promises twice the capacity for smaller steps. The goal is the highest request rate that keeps the limits. The studies run
one after the other and share the time; what is known is written after every trial, and a study that is in the folder is resumed. The page
is written from recorded files, wherever they were measured: `--write benchmarks/h200_vllm.json FOLDER/h200_vllm.json`; of a study that is
in several the last counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.common.files import write_whole
from autoscout.common.gpus import read_gpus
from autoscout.core.clock import RealClock
from autoscout.core.trial import Trial
from autoscout.study.campaign import build_campaign, duration_s
from autoscout.study.outcome import Outcome
from benchmarks._real_studies import change_lines, figures, gain_text, side_text, whole_study

PAGE = Path(__file__).parent.parent / "docs" / "results" / "h200-vllm.md"
RESULT = "h200_vllm.json"
CLOCK = RealClock()
LATENCY = ["p95_ttft_ms<=500", "p95_tpot_ms<=30"]
STUDIES: dict[str, dict[str, Any]] = {
    "lossless": {"title": "TTFT <= 500 ms and TPOT <= 30 ms, answers unchanged", "limits": LATENCY},
    "lossy": {"title": "The same limits, fp8 weights and cache allowed", "limits": LATENCY, "lossy": True},
    "tight": {"title": "Gaps between tokens: p99 <= 40 ms, fp8 weights and cache allowed", "limits": ["p99_itl_ms<=40"], "lossy": True},
    "traffic": {
        "title": "A service that completes code: TTFT <= 2 s and TPOT <= 50 ms",
        "limits": ["p95_ttft_ms<=2000", "p95_tpot_ms<=50"],
        "load": "prompts of 1,784 tokens on average (log-normal), answers of 27, 61 % of them below 16 tokens; synthetic",
    },
}
TRAFFIC_SEED, TRAFFIC_SAMPLE = 7, 400
LENGTHS = {"input_tokens": 1024, "input_spread": 512, "output_tokens": 128, "output_spread": 64}
SHOWN = ("capacity_rps", "capacity_confirmed", "p95_ttft_ms", "p95_tpot_ms", "p99_itl_ms", "token_agreement", "mean_logprob_error")


def code_completion() -> dict[str, Any]:
    """The description of a service that completes code, drawn with lengths like those of the public trace of one."""
    random = np.random.default_rng(TRAFFIC_SEED)
    prompts = np.clip(np.exp(random.normal(np.log(1500), 0.8, TRAFFIC_SAMPLE)), 64, 7000)
    is_short = random.random(TRAFFIC_SAMPLE) < 0.6
    long = np.clip(np.exp(random.normal(np.log(45), 0.6, TRAFFIC_SAMPLE)), 16, 300)
    answers = np.where(is_short, random.integers(4, 16, TRAFFIC_SAMPLE), long)
    pairs = [[int(prompt), int(answer)] for prompt, answer in zip(prompts, answers, strict=True)]
    window = {"name": "day", "requests": 7200, "seconds": 3600, "gap_variation": 1.0, "pairs": pairs}
    return {"format": "autoscout traffic 1", "source": "a service that completes code, synthetic", "windows": [window]}


def campaign(name: str, asked: argparse.Namespace, wall_s: float) -> dict[str, Any]:
    """The study as a campaign file would describe it."""
    study = STUDIES[name]
    lengths = {} if "load" in study else LENGTHS
    workload: dict[str, Any] = {**lengths, "model": str(asked.model), "search_limit_s": asked.search_limit_s}
    if asked.engine:
        workload["engine_command"] = shlex.split(asked.engine)
    if asked.engine_version:
        workload["engine_version"] = asked.engine_version
    if asked.env:
        workload["env"] = dict(pair.split("=", 1) for pair in asked.env)
    return {
        "system": "vllm",
        "name": f"vllm_{name}",
        "workload": workload | ({"allow_lossy": True} if study.get("lossy") else {}),
        "goal": {"slo": study["limits"]},
        "budget": {"wall": wall_s},
        "finals": {"finalists": 1, "rounds": asked.rounds, "simplify": False},
        "measure": {"dirty_repeats": 0},
        "search": {"warm_start": False},
        **({"traffic": {"source": code_completion()}} if "load" in study else {}),
    }


def row(trial: Trial, default: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one trial."""
    measured, origin = trial.measurement, trial.proposal.origin
    return {
        "number": trial.number,
        "phase": origin.phase.value,
        "changes": {name: value for name, value in trial.config.items() if default.get(name) != value},
        "status": measured.status.value,
        "reason": measured.reason[:300],
        "metrics": {name: measured.metrics[name] for name in SHOWN if name in measured.metrics},
        "bounds": dict(measured.bounds),
        "spent": dict(measured.spent),
        "cost_s": measured.cost_s,
    }


def told(outcome: Outcome, asked: argparse.Namespace) -> dict[str, Any]:
    """What is kept of one study, at its end or before."""
    rows = [row(trial, outcome.setup.default) for trial in outcome.trials]
    budget_s = outcome.setup.task.budget.wall_s
    return {**figures(outcome), "budget_s": budget_s, "options": options(asked, budget_s), "trial_rows": rows}


def options(asked: argparse.Namespace, wall_s: float | None) -> str:
    """What else the command line says, but for folders."""
    env = "".join(f" --env {pair}" for pair in asked.env or ())
    return f"--wall {wall_s:.0f}s --rounds {asked.rounds} --search-limit-s {asked.search_limit_s:g}{env}"


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the studies in the time there is: each gets an equal share of what those before it have left. What is known is written after
    every trial."""
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / RESULT
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"studies": {}}
    gpus = read_gpus()
    found |= {"gpu": gpus[0].name if gpus else platform.processor() or "cpu", "vllm": asked.engine_version}
    deadline_s = CLOCK.span_s() + duration_s(asked.wall)

    def keep(name: str, outcome: Outcome) -> None:
        found["studies"][name] = told(outcome, asked)
        write_whole(path, json.dumps(found, indent=1) + "\n")

    for place, name in enumerate(asked.studies):
        wall_s = (deadline_s - CLOCK.span_s()) / (len(asked.studies) - place)
        asks = build_campaign(campaign(name, asked, wall_s), where="benchmarks.h200_vllm")
        keep(name, whole_study(asks, asked.out / "studies", partial(keep, name)))
        one = found["studies"][name]
        print(f"{name}: {gain_text(one)} {one['verdict']}; {len(one['trial_rows'])} trials in {one['wall_s'] / 60:.1f} minutes", flush=True)
    return found


def page(found: Mapping[str, Any]) -> str:
    """The results as a page."""
    lines = [
        "# vLLM on one GPU",
        "",
        f"vLLM {found['vllm']} on one {found['gpu']}: an 8B-shaped model (Llama architecture) with random weights. Prompts of 1024 +- 512",
        "tokens and answers of 128 +- 64 where nothing else is said, Poisson arrivals.",
        "The goal is `capacity_rps`, the highest request rate that keeps the limits, found",
        "inside one start of the server. Each study is what `autoscout tune vllm --slo ... --budget ...` runs, every start of the",
        'server included in its time. Intervals are 95 %, of the rounds of the final alone. "Short" capacities held for a few seconds',
        "only: the time was up, or a longer probe had failed just above. The weights are vLLM's dummy ones, with which every token is",
        "about as likely as every other: that answers agree says little about real weights. Where fp8 is allowed, every trial first",
        "compares its answers to fixed prompts with the default's.",
    ]
    for name, study in STUDIES.items():
        if name not in found["studies"]:
            lines += ["", f"## {study['title']}", "", "Not measured yet."]
            continue
        lines += ["", f"## {study['title']}", "", *_study(name, found["studies"][name])]
    return "\n".join(lines) + "\n"


def _study(name: str, study: Mapping[str, Any]) -> list[str]:
    rows = study["trial_rows"]
    lines = [
        f"- `python -m benchmarks.h200_vllm {' '.join(filter(None, (name, study.get('options'))))}`",
        *([f"- load: {STUDIES[name]['load']}"] if "load" in STUDIES[name] else []),
        f"- verdict: {study['verdict'].replace('_', ' ')}, {gain_text(study)}. {study['reason']}",
        f"- default {side_text(study['default'])}, best {side_text(study['best'])} {study['metric']}",
        f"- price, each at its own capacity: {', '.join(study['costs']) or 'no metric is worse by more than a fifth'}",
        f"- {study['wall_s'] / 60:.1f} minutes for {len(rows)} trials, {study['failed']} of them failed",
    ]
    if predicted := study.get("predicted"):
        lines.append(f"- simulated, by `{predicted['command']}`: default {predicted['default']}, best {predicted['best']} capacity_rps")
    if errors := [one["metrics"]["mean_logprob_error"] for one in rows if one["changes"] and "mean_logprob_error" in one["metrics"]]:
        least = min(one["metrics"]["token_agreement"] for one in rows if one["changes"] and "token_agreement" in one["metrics"])
        lines.append(f"- answers of changed configurations: at least {least:.0%} of tokens agree, at most {max(errors):.3f} nats off")
    if not study.get("ended", True):
        lines.append("- not finished: what it had measured when it was stopped")
    if study["changes"]:
        lines += ["", *change_lines(study)]
    lines += ["", "| trial | changes | result | p95 TTFT, TPOT, p99 gap (ms) | start, warm-up, measure (s) |", "|---|---|---|---|---|"]
    return lines + [_row(one) for one in rows]


def _row(one: Mapping[str, Any]) -> str:
    changes = ", ".join(f"`{name}={value}`" for name, value in one["changes"].items()) or "default"
    metrics, spent = one["metrics"], one["spent"]
    short = "" if metrics.get("capacity_confirmed", 1.0) else ", short"
    result = f"{metrics['capacity_rps']:.1f} requests/s{short}" if "capacity_rps" in metrics else one["status"]
    if one["bounds"]:
        result = f"bounded: at most {one['bounds'].get('capacity_rps', 0.0):.1f}"
    if "mean_logprob_error" in metrics:
        result += f"; {metrics['token_agreement']:.0%} of tokens agree, {metrics['mean_logprob_error']:.3f} nats off"
    latencies = ", ".join(f"{metrics[name]:.0f}" if name in metrics else "-" for name in ("p95_ttft_ms", "p95_tpot_ms", "p99_itl_ms"))
    seconds = ", ".join(f"{spent[name]:.0f}" if name in spent else "-" for name in ("start_s", "warm_up_s", "measure_s"))
    return f"| {one['number']} ({one['phase']}) | {changes} | {result} | {latencies} | {seconds} |"


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help=f"measure, and write {RESULT} here")
    parser.add_argument("--write", type=Path, nargs="+", metavar="FILE", help="write the page; of a study the last file counts")
    parser.add_argument("--model", type=Path, help="folder of the model")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"which, in this order: {', '.join(STUDIES)}; all when left out")
    parser.add_argument("--wall", default="66m", help="for all of them together, the finals included; one takes about 22m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--search-limit-s", type=float, default=90.0, help="for the search of the capacity inside a trial")
    parser.add_argument("--engine", default="", help="how vLLM is started, if not as `vllm serve`")
    parser.add_argument("--engine-version", default="")
    parser.add_argument("--env", action="append", metavar="NAME=VALUE", help="for the server")
    parser.add_argument("--json", action="store_true", help="print what was measured")
    asked = parser.parse_args()
    asked.studies = asked.studies or list(STUDIES)
    if unknown := [name for name in asked.studies if name not in STUDIES]:
        parser.error(f"there is no study {unknown[0]!r}; there are {', '.join(STUDIES)}")
    if asked.write:
        files = [json.loads(path.read_text()) for path in asked.write]
        found = {**files[-1], "studies": {name: study for one in files for name, study in one["studies"].items()}}
        PAGE.write_text(page(found), encoding="utf-8")
    elif asked.out and asked.model:
        found = measure(asked)
    else:
        parser.error("give --model FOLDER and --out FOLDER to measure, or --write FILE")
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
