"""Random launches and Megatron-LM's own parser: `python -m benchmarks.megatron_parser CHECKOUT... [--launches N] [--write]`.

Eight models on several clusters: the default and random valid configurations are rendered, and the parser of each checkout is asked about
the words: `add_megatron_arguments`, `validate_args` and `core_transformer_config_from_args`. Needs PyTorch and six, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscout.backends.megatron import MegatronBackend
from autoscout.core import seeds
from autoscout.core.config import Config
from autoscout.core.task import Task

PAGE = Path(__file__).parent.parent / "docs" / "results" / "megatron.md"
PROGRAM = Path(__file__).with_name("_megatron_parser.py")
CASES: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("gpt-350m", "8xA100-80", 64, {"transformer_engine": False}),
    ("gpt-1b", "8xA100-80", 256, {}),
    ("llama-3.2-3b", "8xH100", 128, {}),
    ("llama-3.1-8b", "16xH100", 128, {}),
    ("qwen2.5-32b", "32xH100", 256, {}),
    ("llama-3.1-70b", "64xH100", 256, {}),
    ("mixtral-8x7b", "64xH100", 256, {}),
    ("qwen3-30b-a3b", "16xH100", 256, {}),
    ("llama-3.2-3b", "8xA100-80+4xA40", 64, {}),
)
"""Model, cluster, sequences of a step, and further fields of the workload."""
LAUNCHES = 1000


def task_of(checkout: str, case: tuple[str, str, int, dict[str, Any]]) -> Task:
    model, gpus, batch, more = case
    workload = {"model": model, "checkout": checkout, "global_batch": batch, **more}
    return MegatronBackend().task({"workload": workload, "hardware": {"gpus": gpus, "cores": 16}})


def configs(backend: MegatronBackend, task: Task, count: int, seed: int) -> Iterator[Config]:
    """The default, the hints, then random ones."""
    space, rng = backend.space(task), seeds.stream(seed, "megatron_parser")
    opening = list(dict.fromkeys([space.default(), *backend.hints(task)]))[:count]
    yield from opening
    for _ in range(count - len(opening)):
        config = space.sample(rng)
        assert config is not None
        yield config


def words(backend: MegatronBackend, config: Config, task: Task) -> list[str]:
    """What the script is given."""
    argv: list[str] = json.loads(backend.render(config, task, seed=1).files["run.json"])["argv"]
    return argv[argv.index("pretrain_gpt.py") + 1 :]


def refusals(checkout: str, launches: int, seed: int = 0) -> dict[str, list[str]]:
    """For each model what the parser says of its launches; empty for one that it takes."""
    backend, asked = MegatronBackend(), []
    for number, case in enumerate(CASES):
        task = task_of(checkout, case)
        count = launches // len(CASES) + (number < launches % len(CASES))
        asked += [
            (f"{case[0]} on {case[1]}", int(task.hardware["processes"]), words(backend, config, task))
            for config in configs(backend, task, count, seed)
        ]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), checkout], input=json.dumps([row[1:] for row in asked]), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: the parser could not be asked\n{done.stderr[-3000:]}")
    said: dict[str, list[str]] = {f"{case[0]} on {case[1]}": [] for case in CASES}
    for (model, _, given), answer in zip(asked, json.loads(done.stdout), strict=True):
        said[model].append(answer and f"{answer} | {' '.join(given)}")
    return said


def version_of(checkout: str) -> str:
    from autoscout.backends.megatron.workload import checkout_version

    commit = subprocess.run(
        ["git", "-C", checkout, "describe", "--tags", "--always"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return checkout_version(Path(checkout)) + (f" ({commit})" if commit else "")


def page(results: dict[str, dict[str, list[str]]], launches: int) -> str:
    lines = [
        "# Launches of Megatron-LM and its own parser",
        "",
        f"`python -m benchmarks.megatron_parser CHECKOUT... --launches {launches} --write`.",
        "",
        "For eight models the default, the hints and random valid configurations are rendered. Megatron-LM's own `add_megatron_arguments`,",
        "`validate_args` and `core_transformer_config_from_args` are asked about the words. Nothing is trained.",
        "The table says how many they take.",
        "",
        "| model | GPUs | " + " | ".join(results) + " |",
        "|---|---|" + "---|" * len(results),
    ]
    for model, gpus, _, _ in CASES:
        cells = [
            f"{sum(not answer for answer in said[f'{model} on {gpus}'])} of {len(said[f'{model} on {gpus}'])}" for said in results.values()
        ]
        lines.append(f"| {model} | {gpus} | " + " | ".join(cells) + " |")
    totals = [f"{sum(not one for rows in said.values() for one in rows)} of {sum(map(len, said.values()))}" for said in results.values()]
    lines += ["| all | | " + " | ".join(totals) + " |", ""]
    rules = Counter(answer.partition(" | ")[0] for said in results.values() for rows in said.values() for answer in rows if answer)
    if rules:
        lines += ["What they refuse:", "", *(f"- {count} times: {rule.strip()}" for rule, count in rules.most_common()), ""]
    lines += ["The machine has no GPU and no Transformer Engine: questions about them are answered as on an H100 that has it.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="+")
    parser.add_argument("--launches", type=int, default=LAUNCHES)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    results = {}
    for checkout in asked.checkouts:
        said = refusals(checkout, asked.launches)
        results[version_of(checkout)] = said
        wrong = [answer for rows in said.values() for answer in rows if answer]
        print(f"{version_of(checkout)}: {sum(map(len, said.values())) - len(wrong)} of {sum(map(len, said.values()))} taken", flush=True)
        for answer in wrong[:5]:
            print("   ", answer[:600])
    if asked.write:
        PAGE.write_text(page(results, asked.launches))


if __name__ == "__main__":
    main()
