"""Public launches, read and rendered again: `python -m benchmarks.launches --recipes A --inferencex B --parsers C [--write]`.

A and B are checkouts of https://github.com/vllm-project/recipes and https://github.com/SemiAnalysisAI/InferenceX. They are counted;
nothing of them is copied. A launch is taken as it is if it is read without an error, its knobs are a valid configuration, and the server's
command of that configuration has every flag and value of the launch again. `--list` prints those that are not. C is the environment of
`scripts/setup-vllm`: the engines' own parsers there are given the command of every launch that is taken.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from autoscout.backends.sglang.backend import SglangBackend
from autoscout.backends.vllm.backend import VllmBackend
from autoscout.commands.script import ScriptError
from autoscout.core.errors import AutoScoutError, ConfigError
from autoscout.core.user import UserLaunch
from autoscout.engines.backend import EngineBackend
from autoscout.engines.space import default_of
from autoscout.engines.table import versions
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import prepare
from benchmarks._engine_parsers import refusals

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "launches.md"
ENGINES: Mapping[str, EngineBackend] = {"vllm": VllmBackend(), "sglang": SglangBackend()}
COMMANDS = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
GPUS = 72  # of the machine that a launch is rendered for: the largest of the collections
OTHER = {"trt": "TensorRT-LLM", "atom": "ATOM", "tilert": "TileRT"}
STARTS = re.compile(r"\bvllm serve\b|vllm\.entrypoints|sglang\.launch_server|\bsglang serve\b")


@dataclass
class Counted:
    """Launches of one source, and what became of them."""

    title: str
    taken: int = 0
    said: int = 0  # of those taken: with a sentence on what was left out besides addresses and output
    knobs: int = 0
    passed: int = 0
    why: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, list[tuple[str, list[str]]]] = field(default_factory=lambda: {engine: [] for engine in ENGINES})
    """Name and words of each command that is taken."""
    refused: Counter[str] = field(default_factory=Counter)  # by the engine's own parser

    @property
    def all(self) -> int:
        """Launches of the two engines."""
        return self.taken + self.why.total()


def main() -> int:
    """Count, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", type=Path, required=True)
    parser.add_argument("--inferencex", type=Path, required=True)
    parser.add_argument("--parsers", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    counts = [*recipes(given.recipes), guides(given.recipes), inferencex(given.inferencex)]
    for counted in counts if given.parsers else ():
        ask_parsers(counted, given.parsers)
    text = page(counts, asked=bool(given.parsers))
    print(text)
    if given.list:
        print(*(line for counted in counts for line in counted.failed), sep="\n")
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


def ask_parsers(counted: Counted, environment: Path) -> None:
    """Give the engines' own parsers every command."""
    for engine, commands in counted.lines.items():
        if not commands:
            continue
        answers = refusals(engine, versions(engine)[-1], [words for _, words in commands], environment)
        for (name, _), answer in zip(commands, answers, strict=True):
            if answer:
                counted.refused[_class(answer)] += 1
                counted.failed.append(f"{counted.title}: {name}: {engine} itself refuses: {answer}")


def recipes(folder: Path) -> Iterator[Counted]:
    """Every recipe as its variant `default`, and every variant, opt-in feature and kind of hardware of every recipe."""
    usual, parts = Counted("recipes, as they are"), Counted("recipes, each variant, feature and kind of hardware by itself")
    for path in sorted(folder.glob("models/*/*.yaml")):
        text = path.read_text(encoding="utf-8")
        recipe = yaml.safe_load(text)
        if "omni" in recipe:
            usual.other["vLLM-Omni"] += 1
            continue
        count(usual, "vllm", text, path.name)
        places = [recipe, *recipe["variants"].values()]
        kinds = {kind for place in places for kind in place.get("hardware_overrides") or {}}
        chosen = [*(name for name in recipe["variants"] if name != "default"), *(recipe.get("opt_in_features") or ()), *kinds]
        for part in chosen:
            count(parts, "vllm", text, f"{path.name}#{part}")
    yield usual
    yield parts


def guides(folder: Path) -> Counted:
    """The commands in the guides of the recipes."""
    counted = Counted("commands in the guides of the recipes")
    for path in sorted(folder.glob("models/*/*.yaml")):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        for number, block in enumerate(re.findall(r"^[ \t]*```\w*\n(.*?)```", recipe["guide"], re.DOTALL | re.MULTILINE), 1):
            if "omni" in recipe or "--omni" in block:
                counted.other["vLLM-Omni"] += bool(STARTS.search(block))
            elif STARTS.search(block) and not re.search(r"^(vllm bench|curl)", block):
                engine = "sglang" if "sglang" in block else "vllm"
                several(counted, engine, block, f"{path.name}: block {number}")
    return counted


def several(counted: Counted, engine: str, text: str, name: str) -> None:
    """Count each launch of a text."""
    try:
        ENGINES[engine].read_launch(text, name)
    except ConfigError as error:
        match = re.search(r"holds (\d+) launches", str(error))
        for number in range(1, int(match[1]) + 1) if match else ():
            count(counted, engine, text, f"{name}#{number}")
        if match:
            return
    count(counted, engine, text, name)


def inferencex(folder: Path) -> Counted:
    """The script of every configuration, with the variables of every point of its search space."""
    counted = Counted("InferenceX, each point of each configuration")
    for maker in ("nvidia", "amd"):
        for name, entry in yaml.safe_load((folder / "configs" / f"{maker}-master.yaml").read_text(encoding="utf-8")).items():
            if entry["framework"] not in ENGINES:
                counted.other[OTHER.get(entry["framework"], "several machines with a router of their own")] += 1
                continue
            if entry.get("multinode"):
                counted.other["several machines with a router of their own"] += 1
                continue
            for kind, scenarios in entry["scenarios"].items():
                for scenario in scenarios:
                    for point in scenario["search-space"]:
                        _point(counted, folder, (name, entry), kind, scenario, point)
    return counted


def _point(
    counted: Counted, folder: Path, named: tuple[str, Mapping[str, Any]], kind: str, scenario: Mapping[str, Any], point: Mapping[str, Any]
) -> None:
    name, entry = named
    script = _script(folder, entry, kind, point)
    if script is None:
        counted.other["no script of that name"] += 1
        return
    offload = point.get("kv-offload-backend") or {}
    variables = {
        "MODEL": entry["model"],
        "TP": point.get("tp", 1),
        "EP_SIZE": point.get("ep", 1),
        "DP_ATTENTION": str(point.get("dp-attn", False)).lower(),
        "CONC": (point.get("conc-list") or [point.get("conc-start", 1)])[0],
        "ISL": scenario.get("isl", ""),
        "OSL": scenario.get("osl", ""),
        "MAX_MODEL_LEN": int(scenario.get("isl", 0)) + int(scenario.get("osl", 0)) + 256,
        "PORT": 8888,
        "RANDOM_RANGE_RATIO": 0.8,
        "RESULT_FILENAME": "result",
        "RESULT_DIR": "results",
        "DURATION": 60,
        "SPEC_DECODING": point.get("spec-decoding", "none"),
        "KV_OFFLOADING": point.get("kv-offloading", "none"),
        "KV_OFFLOAD_BACKEND": offload.get("name", ""),
        "TOTAL_CPU_DRAM_GB": 2000,
        "DCP_SIZE": point.get("dcp-size", 1),
        "EVAL_ONLY": "false",
    }
    words = " ".join(f"{key}={value}" for key, value in variables.items() if value != "")
    count(counted, entry["framework"], f"{words} bash {script}", f"{name} {json.dumps(point)}")


def _script(folder: Path, entry: Mapping[str, Any], kind: str, point: Mapping[str, Any]) -> Path | None:
    """The script of a configuration, by the rules of the runners: one that names the engine goes before one that does not."""
    home = folder / "benchmarks" / "single_node" / ("agentic" if kind.startswith("agentic") else "fixed_seq_len")
    kinds = [str(entry["runner"]).split(":")[-1].split("-")[0]]
    suffix = "_mtp" if point.get("spec-decoding") == "mtp" else ""
    for runner in kinds:
        base = f"{entry['model-prefix']}_{entry['precision']}_{runner}"
        for name in (f"{base}_{entry['framework']}{suffix}.sh", f"{base}{suffix}.sh"):
            for place in (home, home / "deprecated"):
                if (place / name).exists():
                    return place / name
    return None


def count(counted: Counted, engine: str, text: str, name: str) -> None:
    """One launch."""
    backend = ENGINES[engine]
    try:
        launch = backend.read_launch(text, name)
        words, lost = rendered(engine, launch)
        reason = f"renders without {', '.join(lost)}" if lost else ""
    except (AutoScoutError, ScriptError) as error:
        faults = getattr(error, "faults", ())
        reason = " / ".join(dict.fromkeys(_class(f"{fault.field} {fault.rule}") for fault in faults)) or type(error).__name__
    if reason:
        counted.why[reason] += 1
        counted.failed.append(f"{counted.title}: {name}: {reason}")
        return
    counted.taken += 1
    counted.lines[engine].append((name, words[{"vllm": 1, "sglang": 3}[engine] :]))  # `serve` is for vLLM's parser
    counted.knobs += len(launch.knobs)
    counted.passed += len(launch.workload.get("engine_args", {})) + len(launch.workload.get("env", {}))
    counted.said += any("is not read" in sentence or "are not read" in sentence for sentence in launch.left_out)


def _class(rule: str) -> str:
    """A reason without the names and numbers of one launch."""
    rule = re.sub(r"\s*\(.*", "", rule)
    rule = re.sub(r"'[^']*'|\[.*", "...", rule)
    return re.sub(r"\s+", " ", rule).strip()


def rendered(engine: str, launch: UserLaunch) -> tuple[list[str], list[str]]:
    """The server's command of a launch's configuration, and flags of the launch that it lacks or has with another value."""
    workload = {**launch.workload, "engine_command": COMMANDS[engine], "input_tokens": 16, "output_tokens": 16}
    workload.setdefault("model", "org/model")
    hardware = {"gpus": GPUS, "gpu_memory_gb": 280.0, "cores": 64, "node_gpus": GPUS}
    study = {"system": engine, "workload": workload, "hardware": hardware, "baseline": dict(launch.knobs)}
    setup = prepare(build_campaign(study, where="launch"))
    config = setup.baseline or setup.default
    backend = setup.backend
    assert isinstance(backend, EngineBackend)
    words = [word.replace("{port}", "8000") for word in backend.serve(config, setup.task)]
    again = ENGINES[engine].read_launch(shlex.join(words), "rendered")
    table = backend.table(setup.task)
    usual = {name: default_of(table.knobs[name], table, {}) for name in launch.knobs} | dict(backend.space(setup.task).default())
    lost = [name for name, value in launch.knobs.items() if config.get(name) != value]
    lost += [name for name, value in launch.knobs.items() if again.knobs.get(name, usual.get(name)) != value]
    own, others = (side.workload.get("engine_args", {}) for side in (launch, again))
    env = backend.env(config, setup.task)
    lost += [name for name, value in own.items() if others.get(name) != value]
    lost += [name for name, value in launch.workload.get("env", {}).items() if env.get(name) != value]
    return words, list(dict.fromkeys(lost))


def page(counts: list[Counted], *, asked: bool) -> str:
    """The whole page; with what the engines' own parsers said if they were asked."""
    tables = ", ".join(f"{engine} {versions(engine)[-1]}" for engine in ENGINES)
    lines = [
        "# Launches that people publish",
        "",
        "Every launch of two public collections, read as `--from` reads it and rendered again. A launch is taken as it is if it is read",
        "without an error, its knobs are a valid baseline, and the server's command has every flag, value and variable again.",
        f"The rendered flags are read with the tables of {tables}: names, types and choices."
        + (" They are then given to the engines' own parsers, which need no GPU." if asked else " The engines themselves were not asked."),
        "",
        "`python -m benchmarks.launches --recipes FOLDER --inferencex FOLDER --parsers .venv-vllm --write` counts them in checkouts of",
        "`vllm-project/recipes` and `SemiAnalysisAI/InferenceX` (both of 21 August 2026). Nothing of them is part of AutoScout.",
        "",
        "| launches | taken as they are | of | share | the engine's parser takes | with a value only their run knows | knobs | passed on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for counted in counts:
        accepted = counted.taken - counted.refused.total() if asked else "not asked"
        share = f"{counted.taken / counted.all:.1%}" if counted.all else ""
        lines.append(
            f"| {counted.title} | {counted.taken} | {counted.all} | {share} | {accepted} "
            f"| {counted.said} | {counted.knobs} | {counted.passed} |"
        )
    lines += ["", "## Why the rest is not", "", "| launches | reason | how many |", "|---|---|---|"]
    for counted in counts:
        lines += [f"| {counted.title} | {_cell(reason)} | {number} |" for reason, number in counted.why.most_common()]
    if any(counted.refused for counted in counts):
        lines += [
            "",
            "What the engines' own parsers refuse of those that are taken:",
            "",
            "| launches | what they say | how many |",
            "|---|---|---|",
        ]
        for counted in counts:
            lines += [f"| {counted.title} | {_cell(reason)} | {number} |" for reason, number in counted.refused.most_common()]
    lines += ["", "Not counted, because they start something else:", ""]
    for counted in counts:
        if counted.other:
            lines.append(f"- {counted.title}: " + ", ".join(f"{number} {reason}" for reason, number in counted.other.most_common()))
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:200]


if __name__ == "__main__":
    sys.exit(main())
