"""Do limits hold in hours that a configuration was not chosen on? Measured next to simulated.

`python -m benchmarks.unseen_windows vllm --model FOLDER --out FOLDER --config max_num_seqs=64,max_num_batched_tokens=1536`

A service is made here: hours that complete code, hours that chat, and a mixture. Two of its windows are judged on, three are held out.
The default and each `--config` are measured three times, each in one start of the server: how many requests a second they hold in each
judged window; whether the limits hold in each held-out one at the least of those rates, as somebody would run them who trusts the study;
and how many a held-out window holds. Next to that stands what the report of a study says of them, which is simulated. What is known is
written after every start, and what is in the folder is not measured again. `--write FILE...` writes the page, with a section for each file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from autoscout.common.files import write_whole
from autoscout.common.gpus import read_gpus
from autoscout.core.config import Config
from autoscout.core.task import Limit
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import prepare
from autoscout.study.unseen import unseen_of
from autoscout.traffic.description import Traffic, TrafficWindow

PAGE = Path(__file__).parent.parent / "docs" / "results" / "unseen-windows.md"
RESULT = "unseen_windows.json"
LIMITS = ["p95_ttft_ms<=2000", "p95_tpot_ms<=50"]
HOURS = {  # share of requests that complete code; prompts are this many times as long; judged on
    "morning": (0.9, 1.0, True),
    "afternoon": (0.5, 1.0, True),
    "noon": (0.7, 1.0, False),
    "evening": (0.1, 1.0, False),
    "night": (0.5, 2.0, False),
}
CODE, CHAT = ((1500.0, 0.8), (12.0, 0.7)), ((400.0, 0.9), (180.0, 0.8))  # median and spread of the logarithm, of prompts and answers
PAIRS, SEED = 300, 7
LONGEST = (7000, 1000)  # prompt and answer
PARTS = {"judged": True, "held": False}
Document = dict[str, Any]


def service(scale: float) -> Traffic:
    """The traffic, with all lengths multiplied: a small model on a CPU is asked less."""
    windows = []
    for number, (name, (share, longer, judged)) in enumerate(HOURS.items()):
        random = np.random.default_rng([SEED, number])
        is_code = random.random(PAIRS) < share
        columns = []
        for column in (0, 1):
            code, chat = (random.lognormal(math.log(kind[column][0]), kind[column][1], PAIRS) for kind in (CODE, CHAT))
            factor = scale * (longer if column == 0 else 1.0)
            columns.append(np.clip(np.where(is_code, code, chat) * factor, 2, LONGEST[column] * scale).astype(int))
        pairs = tuple(sorted((int(one), int(other)) for one, other in zip(*columns, strict=True)))
        windows.append(TrafficWindow(name=name, requests=3600.0, seconds=3600.0, pairs=pairs, gap_variation=1.0, held_out=not judged))
    return Traffic(source="a service that completes code and chats, synthetic", windows=tuple(windows))


def part(traffic: Traffic, judged: bool) -> Traffic:
    """Only the windows that are judged on, or only the others, as windows to judge on."""
    windows = traffic.judged if judged else traffic.unseen
    return Traffic(source=traffic.source, windows=tuple(window.model_copy(update={"held_out": False}) for window in windows))


def configs(texts: list[str]) -> dict[str, dict[str, str]]:
    """The default, and each by what it is called on the command line."""
    return {"default": {}, **{text: dict(pair.split("=", 1) for pair in text.split(",")) for text in texts}}


def profiled(asked: argparse.Namespace, traffic: Traffic, pins: Mapping[str, str], **more: float) -> dict[str, float]:
    """The metrics of one start of the server; taken once, also on a machine that others use."""
    workload = {**{name: yaml.safe_load(value) for name, value in (pair.split("=", 1) for pair in asked.workload)}, **more}
    data = {
        "system": asked.system,
        "workload": {"model": str(asked.model), **workload},
        "traffic": traffic.to_json(),
        "goal": {"metric": "goodput" if "request_rate" in more else "capacity_rps", "slo": asked.limits},
        "measure": {"dirty_repeats": 0},
    }
    campaign = asked.out / "campaign.yaml"
    campaign.write_text(yaml.safe_dump(data))
    words = [sys.executable, "-m", "autoscout", "profile", str(campaign), "--json"]
    words += [word for name, value in pins.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        measured: dict[str, Any] = json.loads(done.stdout)["measurements"][0]
    except (ValueError, KeyError, IndexError):
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-3000:]}") from None
    if measured["status"] != "ok":
        raise SystemExit(f"{' '.join(words)}\n{measured['status']}: {measured.get('reason')}")
    return {name: float(value) for name, value in measured["metrics"].items()}


def of_windows(metrics: Mapping[str, float], name: str, windows: int) -> list[float]:
    """A metric of each window."""
    return [metrics[name]] if windows == 1 else [metrics[f"{name}_w{number + 1}"] for number in range(windows)]


def measure(asked: argparse.Namespace) -> Document:
    """All of it; what is known is written after every start."""
    asked.out = asked.out.absolute()
    asked.out.mkdir(parents=True, exist_ok=True)
    traffic, path = service(asked.scale), asked.out / RESULT
    parts = {name: part(traffic, judged) for name, judged in PARTS.items()}
    gpus = read_gpus()
    found: Document = json.loads(path.read_text()) if path.exists() else {"measured": {}}
    found |= {"system": asked.system, "model": asked.name, "limits": asked.limits, "scale": asked.scale, "command": command(asked)}
    found |= {"machine": gpus[0].name if gpus else f"{os.cpu_count()} cores, {platform.machine()}"}
    for name, pins in configs(asked.config).items():
        one = found["measured"].setdefault(name, {"load_average": os.getloadavg()[0]})

        def keep(key: str, metrics: dict[str, float], one: Document = one) -> None:
            one[key] = metrics
            write_whole(path, json.dumps(found, indent=1) + "\n")

        search_s = asked.search_limit_s
        if "judged" not in one:
            keep("judged", profiled(asked, parts["judged"], pins, search_limit_s=search_s))
        one["rate"] = rate = min(of_windows(one["judged"], "capacity_rps", len(parts["judged"].windows)))
        if rate > 0 and "held" not in one:
            keep("held", profiled(asked, parts["held"], pins, request_rate=rate, requests=max(100, round(rate * asked.seconds))))
        if "capacities" not in one:
            keep("capacities", profiled(asked, parts["held"], pins, search_limit_s=search_s))
        print(f"{name}: {rate:.3g} requests/s in the judged windows", file=sys.stderr, flush=True)
    found["simulated"] = simulated(asked, traffic)
    write_whole(path, json.dumps(found, indent=1) + "\n")
    return found


def simulated(asked: argparse.Namespace, traffic: Traffic) -> Document:
    """What the report of a study would say of these configurations."""
    hardware = {"gpus": asked.gpus} if asked.gpus else {}
    data = {"system": asked.system, "traffic": traffic.to_json(), "goal": {"slo": asked.limits}}
    setup = prepare(build_campaign({**data, "workload": {"model": str(asked.model)}, "hardware": hardware}, where="benchmarks"))
    whole = {}
    for name, pins in configs(asked.config).items():
        values = {knob: json.loads(value) if value.lstrip("-").replace(".", "", 1).isdigit() else value for knob, value in pins.items()}
        whole[name] = setup.space.project(Config({**setup.default, **values}))
    unseen = unseen_of(setup, whole)
    if unseen is None or unseen.unknown:
        return {"unknown": unseen.unknown if unseen is not None else "no limits"}
    return {"error": unseen.error, "rows": [asdict(row) for row in unseen.rows], "sentence": unseen.sentence}


def command(asked: argparse.Namespace) -> str:
    """As it was asked, but for folders."""
    words = [*(f"--config {text}" for text in asked.config), *(f"--slo '{limit}'" for limit in asked.limits if asked.limits != LIMITS)]
    words += [f"--scale {asked.scale:g}"] if asked.scale != 1 else []
    words += [f"-w {shlex.quote(field)}" for field in asked.workload if "/" not in field]
    return " ".join(["python -m benchmarks.unseen_windows", asked.system, *words, f"--search-limit-s {asked.search_limit_s:g}"])


def rows(found: Document) -> list[Document]:
    """One for each configuration and held-out window: how much of each limit is used, what the window holds, and both as simulated."""
    held = [name for name, (_, _, judged) in HOURS.items() if not judged]
    told = {(row["name"], row["window"], row["limit"].split("<")[0]): row for row in found.get("simulated", {}).get("rows", ())}
    made = []
    for name, one in found["measured"].items():
        capacities = of_windows(one["capacities"], "capacity_rps", len(held)) if "capacities" in one else [math.nan] * len(held)
        for place, window in enumerate(held):
            shares, said = {}, {}
            for limit in map(Limit.parse, found["limits"]):
                if "held" in one:
                    shares[limit.metric] = of_windows(one["held"], limit.metric, len(held))[place] / limit.value
                row = told.get((name, window, limit.metric))
                if row is not None:
                    said[limit.metric] = {"holds": row["holds"], "share": row["value"] / row["bound"] if row["value"] is not None else None}
                    said["capacity"] = row["capacity"]
            made.append(
                {"name": name, "window": window, "rate": one["rate"], "shares": shares, "capacity": capacities[place], "said": said}
            )
    return made


def page(documents: list[Document]) -> str:
    """The results as a page."""
    judged = " and ".join(name for name, (_, _, judged) in HOURS.items() if judged)
    lines = [
        "# Hours that a configuration was not chosen on",
        "",
        "A service that is made here has five windows: hours that mostly complete code (long prompts, answers of a few tokens), hours that",
        f"chat, and mixtures. A study would judge on {judged}. In the held-out windows",
        "each configuration gets the request rate that it held in every judged one. A cell is the share of the limit that was used:",
        "measured once, then as the report of a study says it, simulated. Above 100 % the limit is broken. Written by",
        "`benchmarks/unseen_windows.py`.",
    ]
    for found in documents:
        loads = [one["load_average"] for one in found["measured"].values()]
        lines += ["", f"## {found['system']}, {found['model']}, {found['machine']}", "", f"`{found['command']}`", ""]
        if not found["machine"].startswith("NVIDIA"):
            lines += [f"Load average of the machine {min(loads):.0f} to {max(loads):.0f}, on {os.cpu_count()} cores.", ""]
        if unknown := found["simulated"].get("unknown"):
            lines += [f"Nothing is simulated here: {unknown}.", ""]
        lines += [*_table(found, rows(found)), "", _agreement(rows(found))]
    return "\n".join(lines) + "\n"


def _table(found: Document, made: list[Document]) -> list[str]:
    names = [Limit.parse(text).metric for text in found["limits"]]
    lines = [
        f"| configuration | window | requests/s | {' | '.join(found['limits'])} | held, requests/s |",
        "|" + "---|" * (4 + len(names)),
    ]
    for row in made:
        cells = [f"{_share(row['shares'].get(name))}{_simulated(row['said'].get(name))}" for name in names]
        capacity = row["said"].get("capacity")
        held = f"{row['capacity']:.3g}" + (f" ({capacity:.3g} simulated)" if capacity is not None else "")
        lines.append(f"| {row['name'].replace(',', ', ')} | {row['window']} | {row['rate']:.3g} | {' | '.join(cells)} | {held} |")
    return lines


def _share(value: float | None) -> str:
    return "-" if value is None else f"**{value:.0%}**" if value > 1 else f"{value:.0%}"


def _simulated(said: Mapping[str, Any] | None) -> str:
    return "" if said is None else f" ({_share(said['share'])} simulated)"


def _agreement(made: list[Document]) -> str:
    """How many limits the simulation was right about."""
    both = [(row["shares"][name] <= 1, row["said"][name]["holds"]) for row in made for name in row["shares"] if name in row["said"]]
    if not both:
        return f"{sum(max(row['shares'].values(), default=0) > 1 for row in made)} of {len(made)} break a limit."
    right, missed = sum(one == other for one, other in both), sum(not one and other for one, other in both)
    return f"Whether a limit holds was predicted rightly in {right} of {len(both)} cases; of those that broke, {missed} were not predicted."


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", nargs="?", choices=("vllm", "sglang", "llamacpp"), default="vllm")
    parser.add_argument("--model", help="folder, file or name of the model")
    parser.add_argument("--name", default="an 8B model with random weights", help="of the model, on the page")
    parser.add_argument("--out", type=Path, help=f"measure, and write {RESULT} here")
    parser.add_argument("--config", action="append", default=[], metavar="KNOB=VALUE,...", help="next to the default; may be repeated")
    parser.add_argument("--slo", dest="limits", action="append", help=f"limits; {' and '.join(LIMITS)} when left out")
    parser.add_argument("-w", "--workload", action="append", default=[], metavar="NAME=VALUE", help="of the workload, as for `autoscout`")
    parser.add_argument("--gpus", default="", help="for the simulation, such as 1xH200; those of this machine when left out")
    parser.add_argument("--scale", type=float, default=1.0, help="of all lengths")
    parser.add_argument("--seconds", type=float, default=30.0, help="of requests in a held-out window")
    parser.add_argument("--search-limit-s", type=float, default=40.0, help="for the search of the capacity in one window")
    parser.add_argument("--write", type=Path, nargs="+", metavar="FILE", help="write the page")
    parser.add_argument("--json", action="store_true", help="print what was measured")
    asked = parser.parse_args()
    asked.limits = asked.limits or LIMITS
    if asked.write:
        PAGE.write_text(page([json.loads(path.read_text()) for path in asked.write]), encoding="utf-8")
        return
    if not asked.out or not asked.model:
        parser.error("give --model and --out FOLDER to measure, or --write FILE")
    found = measure(asked)
    print(json.dumps(found) if asked.json else page([found]))


if __name__ == "__main__":
    main()
