"""What the studies of `make test-vllm` and `make test-sglang` measured: `python -m benchmarks.engines_cpu --vllm A --sglang B --write`.

A and B are result folders of those studies, which pytest leaves below its `--basetemp`: that of
`test_guesses_are_compared_with_the_launch_of_today` and that of `test_a_study_that_begins_with_a_script`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from autoscout.common.text import show_number

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "engines-cpu.md"
TITLES = {
    "vllm": "vLLM 0.32.0, guessing by n-grams",
    "sglang": "SGLang 0.5.23, limits of scheduling",
}
ABOUT = {
    "vllm": (
        "The launch guesses 4 tokens. The model has random weights, so its answers soon repeat themselves and are easy to guess: the",
        "acceptance shows that counters, text and checks work, not what a real model reaches. Answers are compared with the default's.",
    ),
    "sglang": (
        "Torch computes in the place of SGLang's kernels (`scripts/setup-sglang`). The script allows 4 requests at once. A `bounded`",
        "trial was stopped because it could no longer win; its throughput is that of the requests until then.",
    ),
}
KNOBS = ("speculative_method", "num_speculative_tokens", "max_num_seqs", "max_running_requests", "schedule_policy")
COLUMNS = {
    "output tok/s": "output_throughput",
    "median TTFT, ms": "median_ttft_ms",
    "median TPOT, ms": "median_tpot_ms",
    "acceptance rate": "acceptance_rate",
    "tokens per step": "acceptance_length",
}


def main() -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for engine in TITLES:
        parser.add_argument(f"--{engine}", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = page({engine: getattr(given, engine) for engine in TITLES})
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


def page(folders: dict[str, Path]) -> str:
    """The whole page."""
    lines = [
        "# Real engines on the CPU",
        "",
        "One study each of the real vLLM and the real SGLang, with a model of 4 layers and random weights, as `make test-vllm` and",
        "`make test-sglang` run them: from the user's own launch, three configurations, no final. The whole road works with these engines.",
        "**The machine was busy and each configuration was measured once, so the rows are not to be compared for speed.**",
        "",
        "`python -m benchmarks.engines_cpu --vllm FOLDER --sglang FOLDER --write` reads the studies' folders.",
    ]
    for engine, folder in folders.items():
        trials = [json.loads(line) for line in (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()]
        machine = json.loads((folder / "report.json").read_text(encoding="utf-8"))["machine"]
        busy = statistics.median(trial["conditions"]["other_cpu_share"] for trial in trials)
        metrics = {title: name for title, name in COLUMNS.items() if any(name in trial["metrics"] for trial in trials)}
        knobs = [name for name in KNOBS if len({trial["config"].get(name) for trial in trials}) > 1]
        lines += ["", f"## {TITLES[engine]}", "", *ABOUT[engine], ""]
        lines += [f"{machine['processor']}, {machine['cores']}, {machine['memory']}; load average before: {machine['load average']}."]
        lines += [f"Other work used {busy:.0%} of the processor (median of the trials).", ""]
        head = ["who proposed it", *(f"`{name}`" for name in knobs), "status", *metrics, "CPU s", "starting, s"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += [row(trial, knobs, list(metrics.values())) for trial in trials]
    return "\n".join(lines) + "\n"


def row(trial: dict[str, Any], knobs: list[str], metrics: list[str]) -> str:
    """One trial."""
    values = [show_number(trial["metrics"][name]) if name in trial["metrics"] else "" for name in metrics]
    conditions = trial["conditions"]
    cells = [trial["origin"]["by"], *(str(trial["config"].get(name, "")) for name in knobs), trial["status"], *values]
    return "| " + " | ".join([*cells, f"{conditions['cpu_s']:.0f}", f"{conditions['start_s']:.0f}"]) + " |"


if __name__ == "__main__":
    sys.exit(main())
