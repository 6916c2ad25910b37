"""Training steps on one GPU, tuned: `python -m benchmarks.h200_training --out FOLDER`, then `--write FOLDER/h200_training.json`.

Three studies through the same program as `autoscout tune`: steps of pre-training the built-in GPT over PyTorch's default (fp32, eager,
whole batch), LoRA fine-tuning of a model with random weights, and the same GPT by megatron-core. Each has at most 15 profiles; `--only`,
`--model`, `--wall` and `--device` change that. Then a few configurations of a deeper model, measured whole and extrapolated from two
shallow ones: how far off, and how much cheaper.
The page is written from the recorded files, wherever they were measured; of a study that is in several the last counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autoscout.api import tune
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.common.gpus import read_gpus
from autoscout.core.config import Config
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.study.outcome import Outcome

PAGE = Path(__file__).parent.parent / "docs" / "results" / "h200-training.md"
PROFILES = 15
QUICK = "compile != 'max-autotune-no-cudagraphs'"  # takes minutes to compile, longer than a profile may last
TRIED: list[dict[str, Any]] = [
    {"precision": "bf16", "optimizer": "fused", "micro_batch": 8},
    {"precision": "bf16", "optimizer": "fused", "micro_batch": 8, "recompute": "full"},
    {"precision": "bf16", "optimizer": "fused", "micro_batch": 2, "loss_chunks": 8},
    {"precision": "tf32", "optimizer": "foreach", "micro_batch": 8},
]
"""Configurations of the deeper model; what a machine does not have is left out."""
STUDIES: dict[str, dict[str, Any]] = {
    "pretraining": {"system": "pytorch", "workload": {"model": "gpt-216m", "global_batch": 32}, "space": {"constraints": [QUICK]}},
    "lora": {"system": "finetune", "workload": {"method": "lora"}},
    "megatron": {"system": "megatron", "workload": {"model": "gpt-216m", "global_batch": 32}},
}


def campaign(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The study as a campaign file would describe it."""
    study = STUDIES[name]
    workload = {**study["workload"], "limit_s": 150.0, "enough_s": 8.0, "most_steps": 24, "settled": 0.01}
    if asked.model:
        workload["model"] = asked.model
    found: dict[str, Any] = {
        **study,
        "name": name,
        "workload": workload,
        "budget": {"trials": asked.trials, "wall": asked.wall},
        "finals": {"finalists": asked.finalists, "rounds": asked.rounds, "simplify": False},
        "measure": {"dirty_repeats": 0, "per_process": 1 if study["system"] == "megatron" else asked.per_process},
        "search": {"warm_start": False},
    }
    if asked.device == "cpu":
        found.pop("space", None)  # nothing is compiled there
    if asked.device:
        found["hardware"] = {"device": asked.device, **({"gpus": 0, "processes": 1} if asked.device == "cpu" else {})}
    return found


def figures(outcome: Outcome) -> dict[str, Any]:
    """What is reported of one study."""
    summary = outcome.summary
    metric = summary.task.objective.metric

    def side(config: Any) -> dict[str, Any]:
        runs = [trial.measurement for trial in outcome.inside if trial.config == config and trial.ok]
        values = [run.metrics[metric] for run in runs]
        others = ("step_ms", "peak_mem_gib", "loss_after")
        return {
            "config": dict(config),
            metric: values,
            **{name: [run.metrics[name] for run in runs if name in run.metrics] for name in others},
        }

    best = summary.best.config if summary.best is not None else None
    return {
        "metric": metric,
        "verdict": str(summary.verdict),
        "reason": summary.reason,
        "gain": summary.gain.ratio,
        "interval": [summary.gain.low, summary.gain.high],
        "workload": dict(outcome.setup.task.workload),
        "software": dict(outcome.setup.task.software),
        "default": side(outcome.setup.default),
        "best": side(best) if best is not None else None,
        "trials": [
            {
                "number": trial.number,
                "config": dict(trial.config),
                "status": trial.measurement.status.value,
                "value": trial.measurement.metrics.get(metric),
                "spent": trial.measurement.spent,
                "cost_s": trial.measurement.cost_s,
                "repeat": trial.proposal.repeat,
                "reason": trial.measurement.reason,
            }
            for trial in outcome.trials
        ],
    }


def depths(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Configurations measured at full depth and extrapolated from two shallow models."""
    backend = PyTorchBackend()
    hardware = {"device": "cpu", "gpus": 0, "processes": 1} if asked.device == "cpu" else {}
    model, shallow = ("tiny", [1, 2]) if asked.device == "cpu" else ("gpt-1b", [2, 6])
    common = {"model": asked.model or model, "most_steps": 12, "enough_s": 8.0, "limit_s": 150.0}
    whole = backend.task({"workload": common, "hardware": hardware})
    cheap = backend.task({"workload": {**common, "depths": shallow}, "hardware": hardware})
    space = backend.space(cheap)
    rows = []
    with LocalExecutor(LocalOptions(folder=asked.out / "depths")) as executor:
        for wanted in TRIED:
            known = Config({name: value for name, value in wanted.items() if name in space.knobs and value in space.knobs[name]})
            config = space.project({**space.default(), **known}, known)
            row: dict[str, Any] = {"config": dict(known), "model": common["model"], "depths": shallow}
            for name, task in (("whole", whole), ("extrapolated", cheap)):
                done = backend.parse(executor.submit(backend.render(config, task, seed=0)).result(600.0), task)
                row[name] = {"status": done.status.value, "reason": done.reason, **done.metrics, **done.spent}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the studies; what is known is written after each."""
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("AUTOSCOUT_CACHE", str(asked.out / "cache"))
    gpus = read_gpus()
    found: dict[str, Any] = {"gpu": gpus[0].name if gpus else platform.processor() or "cpu", "torch": _version("torch"), "studies": {}}
    for name in asked.only.split(","):
        if name == "depths":
            found["depths"] = depths(asked)
            (asked.out / "h200_training.json").write_text(json.dumps(found, indent=1) + "\n")
            continue
        outcome = tune(campaign(name, asked), output_dir=asked.out / "studies")
        found["studies"][name] = figures(outcome)
        (asked.out / "h200_training.json").write_text(json.dumps(found, indent=1) + "\n")
        told = found["studies"][name]
        print(f"{name}: {told['gain']}x {told['interval']} {told['verdict']}; {len(told['trials'])} trials", flush=True)
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several runs have measured; all must be of the same GPU and PyTorch."""
    if len(kinds := {(record["gpu"], record["torch"]) for record in records}) > 1:
        raise SystemExit(f"the files are of different machines: {sorted(kinds)}")
    studies = {name: study for record in records for name, study in record["studies"].items()}
    deep = [record["depths"] for record in records if record.get("depths")]
    return {**records[-1], "studies": {name: studies[name] for name in STUDIES if name in studies}, "depths": deep[-1] if deep else []}


TITLES = {"pretraining": "Pretraining", "lora": "LoRA fine-tuning", "megatron": "Pretraining with megatron-core"}


def page(found: dict[str, Any]) -> str:
    """The results as a page."""
    lines = [
        "# Training on one GPU",
        "",
        f"Measured on one {found['gpu']} with PyTorch {found['torch']} by `python -m benchmarks.h200_training`: at most",
        f"{PROFILES} profiles each, then the default and the best measured again in rounds whose order rotates. A profile is a fresh",
        "process that trains the same steps on the same data. Intervals are 95 %, of the final alone.",
        "",
    ]
    for name, study in found["studies"].items():
        metric, sides = study["metric"], [("default", study["default"]), ("best found", study["best"])]
        profiles = [trial for trial in study["trials"] if trial["repeat"] == 0]
        failed = sum(trial["status"] not in ("ok", "bounded") for trial in profiles)
        low, high = study["interval"]
        gain = f"Gain {study['gain']:.2f}x ({low:.2f} to {high:.2f})" if study["gain"] and low and high else "No interval"
        model = study["workload"].get("model", "")
        lines += [f"## {TITLES.get(name, name)}: {model}", "", f"{gain}: {study['reason']}.", ""]
        lines += [f"| | {metric} | lowest, highest | ms a step | peak GiB | loss after |", "|---|---|---|---|---|---|"]
        for label, side in sides:
            if side is None or not side[metric]:
                continue
            values = side[metric]
            means = [_mean(side[other]) for other in ("step_ms", "peak_mem_gib", "loss_after")]
            lines.append(f"| {label} | {_mean(values)} | {min(values):,.0f}, {max(values):,.0f} | {' | '.join(means)} |")
        changes = {
            knob: value
            for knob, value in (study["best"] or study["default"])["config"].items()
            if study["default"]["config"].get(knob) != value
        }
        spent_s = sum(trial["cost_s"] for trial in study["trials"])
        lines += ["", f"Changed: {', '.join(f'`{knob}` {value}' for knob, value in changes.items()) or 'nothing'}. "]
        lines[-1] += f"{len(profiles)} profiles, {failed} failed; {spent_s:.0f} s of measuring, the final included."
        lines.append("")
    return "\n".join([*lines, *_depths(found.get("depths", []))]).rstrip() + "\n"


def _depths(rows: list[dict[str, Any]]) -> list[str]:
    """The comparison of whole and extrapolated runs."""
    if not rows:
        return []
    model, (low, high) = rows[0]["model"], rows[0]["depths"]
    what = "Time and memory of the whole model, measured and extrapolated, and seconds of training steps that each took."
    lines = [f"## {model} from {low} and {high} layers", "", what, ""]
    lines += ["| | ms a step | extrapolated | off by | peak GiB | extrapolated | s | s |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        whole, cheap = row["whole"], row["extrapolated"]
        label = ", ".join(f"{knob} {value}" for knob, value in row["config"].items()) or "default"
        if "step_ms" not in whole or "step_ms" not in cheap:
            lines.append(f"| {label} | {whole['status']} | {cheap['status']} | | | | | |")
            continue
        off = cheap["step_ms"] / whole["step_ms"] - 1
        spent = [sum(one[name] for name in ("warm_up_s", "measure_s")) for one in (whole, cheap)]
        lines.append(
            f"| {label} | {whole['step_ms']:.1f} | {cheap['step_ms']:.1f} | {off:+.1%} | {whole['peak_mem_gib']:.1f} | "
            f"{cheap['peak_mem_gib']:.1f} | {spent[0]:.1f} | {spent[1]:.1f} |"
        )
    return [*lines, ""]


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return f"{mean:,.0f}" if mean >= 1000 else f"{mean:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="measure, and write h200_training.json here")
    parser.add_argument("--write", type=Path, nargs="+", metavar="FILE", help="write the page from recorded files")
    parser.add_argument("--only", default="pretraining,lora,megatron,depths", help="what to run")
    parser.add_argument("--model", default="", help="another model")
    parser.add_argument("--device", default="", choices=["", "cpu", "cuda"])
    parser.add_argument("--trials", type=int, default=PROFILES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--finalists", type=int, default=2)
    parser.add_argument("--per-process", type=int, default=1, help="trials of a search that share a process, where the backend can")
    parser.add_argument("--wall", default="5m", help="for each study, the final included")
    parser.add_argument("--json", action="store_true", help="print what was measured")
    asked = parser.parse_args()
    if asked.write:
        PAGE.write_text(page(merged([json.loads(path.read_text()) for path in asked.write])))
    elif asked.out:
        found = measure(asked)
        if asked.json:
            print(json.dumps(found))
    else:
        parser.error("give --out FOLDER to measure, or --write FILE")


if __name__ == "__main__":
    main()
