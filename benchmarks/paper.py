"""The AutoScout paper's evaluation on a virtual cluster: `python -m benchmarks.paper [--seeds 20] [--runs FOLDER] [--json] [--write]`.

Llama-3.2-3B, Nemotron-Nano-VL-8B and Qwen3-30B-A3B are trained on 8 A100 and 4 A40 (`benchmarks/_paper_cluster.py` says what stands for
the cluster). All configurations of the paper's spaces are simulated once, then searchers are raced on them: seconds per iteration, steps
and time until they have found something good (Figures 4 to 6), in spaces of three sizes (Figure 10), and the paper's server (Figure 7).

Runs are kept with `--runs`, so that a race that was interrupted can be resumed; `--quick` is a small race that shows that everything works.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout_lab.bench import Entry, Race, Run, find_tables, run_race
from autoscout_lab.bench.simulated import Simulated
from benchmarks._paper_cluster import GLOBAL_BATCH, GPUS, MODELS, OPTIONS, SEQUENCE, jobs, write
from benchmarks._paper_measured import mixed_agreement
from benchmarks._paper_serving import TITLE, TOKENS, write_serving
from benchmarks.assisted import Assistance
from benchmarks.search import machine

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lab" / "results" / "paper.md"
NEAR = 0.05
"""How near the optimum counts as found."""
MINE, UNTOLD = "hybrid", "hybrid, no simulator"
RIVALS = ("cherrypick", "udo", "metis", "hybrid-paper")
BUDGETS = {"3dp": 40, "5dp": 60, "full": 100, "serving": 40}
"""Profiles of a run in each space."""
CLUSTERS = 4
"""Virtual clusters, numbers 0 to 3, over which the runs are dealt; what was tried while this was written ran on others."""

PAPER = {
    "qwen": {"over_megatron": "1.4 to 2.7", "cherrypick": (1.10, 87.1), "udo": (1.06, 91.7), "wall": 16.5},
    "llama": {"over_megatron": "1.3 to 2.7", "cherrypick": (1.08, 80.0), "udo": (1.08, 80.8), "wall": 13.7},
    "nemotron": {"over_megatron": "1.3 to 3.0", "cherrypick": (1.07, 92.0), "udo": (1.06, 92.0), "wall": 22.9},
}
"""Section 4.2: speed-up over defaults and planners; by rival how many times faster and how many per cent fewer steps; search time."""


def entries() -> tuple[Entry, ...]:
    """Who races: the rivals, the paper's search with its simulators (Table 2), and ours with and without the model of training."""
    plain = [Entry.parse(name) for name in ("cherrypick", "udo", "metis")]
    paper = replace(Entry.parse("hybrid-paper"), play=Assistance(paper=True))
    ours = Entry.parse("hybrid")
    return (*plain, paper, replace(ours, label=UNTOLD), replace(ours, label=MINE, simulator=Simulated.parse("training")))


def serving_entries() -> tuple[Entry, ...]:
    """Who races for Figure 7: the rivals and the paper's search without a simulator, ours with and without the model of serving."""
    rivals = tuple(Entry.parse(name) for name in ("cherrypick", "udo", "hybrid-paper"))
    ours = Entry.parse("hybrid")
    return (*rivals, replace(ours, label=UNTOLD), replace(ours, label=MINE, simulator=Simulated.parse("serving")))


@dataclass(frozen=True, kw_only=True)
class Course:
    """One run with the virtual clock: `ends_s` are the seconds at which each profile was finished."""

    run: Run
    optimum_s: float
    megatron_s: float
    ends_s: tuple[float, ...]

    @classmethod
    def of(cls, run: Run, about: Mapping[str, Any]) -> Course:
        measure_s = about.get("measure_s")
        spent_s = [0.0 if loss is None else OPTIONS.steps * loss if measure_s is None else measure_s for loss in run.losses]
        cost_s = [
            OPTIONS.start_s / 2 if loss is None else OPTIONS.start_s + used_s for loss, used_s in zip(run.losses, spent_s, strict=True)
        ]
        ends_s = np.cumsum(np.array(cost_s) + np.array(run.cpu_ms) / 1000.0)
        return cls(run=run, optimum_s=about["best_s"], megatron_s=about["megatron_s"], ends_s=tuple(ends_s.tolist()))

    @property
    def worked(self) -> list[float]:
        """Seconds per iteration of everything that ran, in order."""
        return [loss for loss in self.run.losses if loss is not None]

    @property
    def best_s(self) -> float:
        """Of the best that was found; infinite when nothing ran."""
        return min(self.worked, default=math.inf)

    def until(self, goal_s: float) -> tuple[float, float]:
        """(Steps, seconds) until something at least as good was found; twice the whole run when never."""
        for step, loss in enumerate(self.run.losses):
            if loss is not None and loss <= goal_s + 1e-12:
                return step + 1.0, self.ends_s[step]
        return 2.0 * self.run.budget, 2.0 * self.ends_s[-1] if self.ends_s else 0.0


def figures(courses: Sequence[Course]) -> dict[str, float]:
    """One searcher in one space, means over runs with standard errors."""
    found = [course for course in courses if course.worked]
    near = np.array([course.until(course.optimum_s * (1.0 + NEAR)) for course in courses])
    return {
        "runs": len(courses),
        **_mean("best_s", [course.best_s for course in found]),
        **_mean("first_s", [course.worked[0] for course in found]),
        **_mean("over_megatron", [course.megatron_s / course.best_s for course in found]),
        **_mean("behind", [course.best_s / course.optimum_s - 1.0 for course in found]),
        **_mean("steps", near[:, 0]),
        **_mean("hours", near[:, 1] / 3600.0),
        "reached": float(np.mean([steps <= course.run.budget for steps, course in zip(near[:, 0], courses, strict=True)])),
        "failures": float(np.mean([sum(loss is None for loss in course.run.losses) for course in courses])),
    }


def _mean(name: str, values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """The mean and its standard error over runs."""
    spread = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return {name: float(np.mean(values)), f"{name}_error": spread}


def against(mine: Sequence[Course], theirs: Sequence[Course]) -> dict[str, float]:
    """What the paper reports of a rival: how much better the best is, how much sooner the rival's own best is matched."""
    keyed = {(course.run.table, course.run.seed): course for course in mine}
    pairs = [(keyed[other.run.table, other.run.seed], other) for other in theirs if other.worked]
    matched = np.array([course.until(other.best_s) for course, other in pairs])
    needed = np.array([other.until(other.best_s) for _, other in pairs])
    return {
        "times_faster": float(np.mean([other.best_s / course.best_s for course, other in pairs])),
        "fewer_steps": float(1.0 - matched[:, 0].mean() / needed[:, 0].mean()),
        "sooner": float(needed[:, 1].mean() / matched[:, 1].mean()),
    }


def summary(runs: Sequence[Run], about: Mapping[str, Any]) -> dict[str, Any]:
    """All figures of a race."""
    found: dict[str, Any] = {}
    courses = [Course.of(run, about[run.table]) for run in runs]
    for title in dict.fromkeys(run.table.rpartition("-")[0] for run in runs):
        lots: dict[str, list[Course]] = {}
        for course in courses:
            if course.run.table.rpartition("-")[0] == title:
                lots.setdefault(course.run.searcher, []).append(course)
        clusters = [facts for name, facts in about.items() if name.rpartition("-")[0] == title]
        found[title] = {
            "clusters": clusters,
            "searchers": {label: figures(some) for label, some in lots.items()},
            "against": {label: against(lots[MINE], lots[label]) for label in (*RIVALS, UNTOLD) if label in lots},
        }
    return found


def main() -> None:
    """Simulate the cluster, run what is missing, print the figures, and write the page where that is asked for."""
    asked = _arguments()
    seeds, clusters = (2, 1) if asked.quick else (asked.seeds, min(CLUSTERS, asked.seeds))
    only = ["llama-3dp"] if asked.quick else [title for title in asked.only.split(",") if title]
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(asked.runs) if asked.runs else Path(temporary)
        training: list[Race] = []
        serving: list[Race] = []
        about: dict[str, dict[str, Any]] = {}
        for number in range(clusters):
            mine = tuple(range(seeds))[number::clusters]
            for job in (job for job in jobs(number) if not only or job.title in only):
                folder = kept / "tables" / job.name
                about[job.name] = write(folder, job)
                training.append(_race(folder, entries(), mine, min(BUDGETS[job.space], asked.budget), asked.jobs, kept))
            if not only or TITLE in only:
                folder = kept / "tables" / f"{TITLE}-{number}"
                about[f"{TITLE}-{number}"] = write_serving(folder, number)
                serving.append(_race(folder, serving_entries(), mine, min(BUDGETS["serving"], asked.budget), asked.jobs, kept))
        runs, served = ([run for race in races for run in run_race(race, _progress)] for races in (training, serving))
    found: dict[str, Any] = {"simulated": True, "runs": seeds, "clusters": clusters, "spaces": summary(runs, about)}
    found |= {"serving": summary(served, about)}
    found["measured"] = [asdict(row) for row in mixed_agreement()]
    text = as_text(found)
    print(text)
    if asked.write:
        PAGE.write_text(as_page(found, text, asked), encoding="utf-8")
    if asked.json:
        print(json.dumps(found))


def _race(folder: Path, some: tuple[Entry, ...], seeds: tuple[int, ...], budget: int, processes: int, kept: Path) -> Race:
    """Searchers on the table of one folder."""
    return Race(entries=some, tables=tuple(find_tables(str(folder))), seeds=seeds, budget=budget, output=kept, jobs=processes)


def _progress(run: Run, done: int, count: int) -> None:
    if done % 20 == 0 or done == count:
        print(f"{done} of {count} runs; {run.searcher} on {run.table}", file=sys.stderr)


def as_text(found: Mapping[str, Any]) -> str:
    """Tables in Markdown."""
    spaces = found["spaces"]
    full = [title for title in spaces if title.endswith("-full")] or list(spaces)
    tables = [_model_table(title, spaces[title]) for title in full]
    tables += [_serving_table(found["serving"][TITLE])] if found["serving"] else []
    tables += [_rival_table(spaces, full), _sizes(spaces), _truth(spaces)] if spaces else []
    return "\n\n".join([*tables, *([_measured(found["measured"])] if found["measured"] else [])])


def _model_table(title: str, space: Mapping[str, Any]) -> str:
    """One of Figures 4 to 6."""
    megatron_s, all_s = (float(np.mean([facts[key] for facts in space["clusters"]])) for key in ("megatron_s", "megatron_all_s"))
    slower = float(np.mean([facts["megatron_s"] / facts["megatron_all_s"] for facts in space["clusters"]]))
    lines = [
        f"### {title}",
        "",
        "| | s per iteration | times Megatron's | behind the optimum | steps to 5 % | hours to 5 % | runs within 5 % | failures |",
    ]
    lines += [
        "|---|---|---|---|---|---|---|---|",
        f"| Megatron's guidance, all GPUs in equal shares | {all_s:.2f} | {slower:.2f} | | | | | |",
    ]
    lines += [f"| Megatron's guidance, the better of that and of the A100s alone | {megatron_s:.2f} | 1 | | | | | |"]
    if "metis" in space["searchers"]:
        plan = space["searchers"]["metis"]
        lines.append(f"| `metis`, its first plan that ran | {plan['first_s']:.2f} ± {plan['first_s_error']:.2f} | | | | | | |")
    for label, row in sorted(space["searchers"].items(), key=lambda item: item[1]["behind"]):
        cells = [f"{row[name]:.2f} ± {row[f'{name}_error']:.2f}" for name in ("best_s", "over_megatron")]
        cells += [f"{row['behind']:.1%} ± {row['behind_error']:.1%}", f"{row['steps']:.0f} ± {row['steps_error']:.0f}"]
        cells += [f"{row['hours']:.1f} ± {row['hours_error']:.1f}", f"{row['reached']:.0%}", f"{row['failures']:.0f}"]
        lines.append(f"| `{label}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _standing(title, space)])


def _standing(title: str, space: Mapping[str, Any]) -> str:
    """Whom `hybrid` is ahead of, by what was left to the optimum: two standard errors of the difference count."""
    mine = space["searchers"][MINE]
    found: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
    for label, row in space["searchers"].items():
        if label != MINE:
            errors = (row["behind"] - mine["behind"]) / max(1e-12, math.hypot(row["behind_error"], mine["behind_error"]))
            found["ahead of" if errors > 2 else "behind" if errors < -2 else "level with"].append(f"`{label}`")
    said = "; ".join(f"{how} {', '.join(labels)}" for how, labels in found.items() if labels)
    return f"In {title} `hybrid` is, by what is left to the optimum and two standard errors: {said}."


def _serving_table(space: Mapping[str, Any]) -> str:
    """Figure 7."""
    default = float(np.mean([facts["megatron_s"] for facts in space["clusters"]])) / TOKENS
    lines = [f"### {TITLE}", "", "| | ms per token | times vLLM's default | behind the optimum | steps to 5 % | runs within 5 % |"]
    lines += ["|---|---|---|---|---|---|", f"| vLLM's default | {default:.2f} | 1 | | | |"]
    for label, row in sorted(space["searchers"].items(), key=lambda item: item[1]["behind"]):
        cells = [f"{row['best_s'] / TOKENS:.2f} ± {row['best_s_error'] / TOKENS:.2f}"]
        cells += [
            f"{row['over_megatron']:.2f} ± {row['over_megatron_error']:.2f}",
            f"{row['behind']:.1%} ± {row['behind_error']:.1%}",
            f"{row['steps']:.0f} ± {row['steps_error']:.0f}",
            f"{row['reached']:.0%}",
        ]
        lines.append(f"| `{label}` | {' | '.join(cells)} |")
    fewer = ", ".join(f"`{label}` {row['fewer_steps']:.0%}" for label, row in space["against"].items())
    told = f"Steps that `hybrid` saves until it has matched a rival's best, more of them where negative: {fewer}."
    return "\n".join([*lines, "", f"{told} The paper: 1.02 times vLLM's default, 28.6 % fewer steps.", "", _standing(TITLE, space)])


def _rival_table(spaces: Mapping[str, Any], titles: Sequence[str]) -> str:
    """`hybrid` next to each rival, and what the paper says of its own search."""
    lines = ["### `hybrid` next to the others, and the paper's figures for its own search", ""]
    lines += [
        "| space | next to | times faster | paper | fewer steps | paper | search time, times sooner | paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title in titles:
        paper = PAPER[title.partition("-")[0]]
        for rival, row in spaces[title]["against"].items():
            faster, fewer = (f"{paper[rival][0]:.2f}", f"{paper[rival][1]:.0f} %") if rival in paper else ("", "")
            sooner = f"up to {paper['wall']}" if rival in paper else ""
            cells = [f"{row['times_faster']:.2f}", faster, f"{row['fewer_steps']:.0%}", fewer, f"{row['sooner']:.1f}", sooner]
            lines.append(f"| {title} | `{rival}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _sizes(spaces: Mapping[str, Any]) -> str:
    """Figure 10: steps and hours to 5 % of the optimum in spaces of three sizes."""
    labels = list(next(iter(spaces.values()))["searchers"])
    lines = ["### Spaces of three sizes: steps, hours to 5 % of the optimum", ""]
    lines += [f"| space | feasible of all | {' | '.join(f'`{label}`' for label in labels)} |", f"|---|---|{'---|' * len(labels)}"]
    for title, space in spaces.items():
        feasible, count = (round(float(np.mean([facts[key] for facts in space["clusters"]]))) for key in ("feasible", "configurations"))
        cells = [f"{row['steps']:.0f}, {row['hours']:.1f}" for row in (space["searchers"][label] for label in labels)]
        lines.append(f"| {title} | {feasible:,} of {count:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _truth(spaces: Mapping[str, Any]) -> str:
    """How far the model that `hybrid` is told is from the truth."""
    lines = ["### What `hybrid` is told, and the truth", ""]
    lines += ["| space | error without its bias | Kendall's tau | its first choice is behind by | said to fit, failed | ran, said not to |"]
    lines += ["|---|---|---|---|---|---|"]
    for title, space in spaces.items():
        facts = space["clusters"]
        error, rank, failed, ran = (
            float(np.mean([one[key] for one in facts])) for key in ("told_error", "told_rank", "told_fits_failed", "told_not_ran")
        )
        behind = float(np.mean([one["told_first_s"] / one["best_s"] - 1.0 for one in facts]))
        lines.append(f"| {title} | {error:.0%} | {rank:.2f} | {behind:.0%} | {failed:.0%} | {ran:.0%} |")
    return "\n".join(lines)


def _measured(rows: Sequence[Mapping[str, Any]]) -> str:
    """The model of mixed clusters next to the only measured times of one."""
    lines = [f"### Measured: {rows[0]['rows']} layouts of GPT-2 on 12 V100 and 4 T4 (AMP's table, not used for fitting)", ""]
    lines += ["| model | MAPE | Kendall's tau | its first choice is behind by |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {row['label']} | {row['error']:.0%} | {row['rank']:.2f} | {row['regret']:.0%} |" for row in rows)])


def as_page(found: Mapping[str, Any], text: str, asked: argparse.Namespace) -> str:
    """`docs/lab/results/paper.md`."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    budgets = ", ".join(f"{profiles} in {space}" for space, profiles in BUDGETS.items())
    return f"""# The AutoScout paper's evaluation, simulated

Written by `python -m benchmarks.paper --seeds {asked.seeds} --write`; do not edit. **Nothing on this page was measured on a GPU, except
for the last table.**

| | |
|---|---|
| commit | {commit.stdout.strip() or "unknown"} |
| date | {datetime.now(UTC):%Y-%m-%d} |
| machine | {machine()} |
| jobs | {", ".join(MODELS.values())}; {SEQUENCE} tokens, {GLOBAL_BATCH} sequences per iteration |
| cluster | {GPUS}, virtual; {found["clusters"]} of them, drawn differently |
| runs | {found["runs"]} of each searcher in each space, seeds 0 to {found["runs"] - 1} dealt over the clusters |
| profiles of a run | {budgets} |
| a profile | {OPTIONS.start_s:.0f} s to start and {OPTIONS.steps} iterations; out of memory after {OPTIONS.start_s / 2:.0f} s |

{_PREFACE}
{text}

{_ACCOUNT}"""


_PREFACE = """The virtual cluster is a model of training whose constants and GPU rates are drawn around those of the shipped model. It has
effects that the shipped model lacks: the best number of SMs for communication depends on tensor parallelism and micro-batch, buckets
have a best size, experts are not balanced, replicas of two kinds drift apart. It also has an error of 8 % per structure, and noise of 1 %.
`hybrid` gets the shipped model's predictions, as in any study; `hybrid, no simulator` does not. `hybrid-paper` has the paper's four
regressions, trained on 60 free profiles. `cherrypick`, `udo` and `metis` have no simulator; `metis` plans by nominal rates
of the GPUs. Megatron's guidance is as little tensor and then pipeline parallelism as memory allows, experts spread, full recomputation.
Speed-ups are over the better of all GPUs and of the A100s alone, since somebody who knows Megatron would try both.

"Steps to 5 %" and "hours to 5 %" count until a configuration within 5 % of the optimum was profiled. A run that never gets there counts
twice. Errors are standard errors over runs. "Fewer steps" and "search time" compare the steps that `hybrid` takes to match the rival's
best with the steps that the rival took. `hybrid` takes more steps where the figure is negative, and longer where it is below 1.
"""

_ACCOUNT = """## How this differs from the paper

- The paper ran on GPUs. Here a model stands for them, so times per iteration say nothing about real GPUs. This page only compares
  searchers.
- The paper does not say batch, sequence length, or which configurations its 12 GPUs can run with degrees of 1, 2, 4 and 8. Here degrees of
  3, 6 and 12 are allowed as well, the A40s may be left out, and work may be shared by the speed of the kinds (`a40_share`, `stages_inner`),
  which the paper's Table 1 does not have. Ranges of the dense knobs are coarser, so that the largest space has about as many feasible
  configurations as the paper's.
- Megatron's defaults are a rule that we wrote down; the paper says "expert-recommended" only.
- The paper's Metis is Samsung's program with profiles of every layer. Ours is a planner after its published method with nominal rates.
- Serving (Figure 7) is a small space of batching knobs on the eight A100 at 16 requests per second, latency of a request per generated
  token. No searcher has a simulator there. [Studies of vLLM](../../guides/vllm.md) measure such servers for real.
"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each searcher in each space, dealt over the clusters")
    parser.add_argument("--budget", type=int, default=100, help="most profiles of a run")
    parser.add_argument("--only", default="", help="comma-separated models and spaces, such as llama-full")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--runs", default="", help="folder that keeps tables and runs, of one commit")
    parser.add_argument("--quick", action="store_true", help="one small space, two seeds")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/paper.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
