"""Studies of training programs as people have them, on this machine's cores: `python -m benchmarks.training [--only NAME...] [--write]`.

Needs the environment of `make test-training`, and Debian's Slurm for the last. Each study is one that `autoscout tune` runs. Afterwards
this program starts the default and the best `AGAIN` times in turn, without AutoScout's trial program: the user's own command against the
hand-over. It times the lines that the training prints, so that the two figures have nothing in common but the program that trains.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.config import Config
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare
from autoscout.training.runner import free_port
from benchmarks._real_studies import change_lines, figures, gain_text, side_text, whole_study
from benchmarks.search import machine

ROOT = Path(__file__).parents[1]
JOBS = Path(__file__).parent / "training_jobs"
PAGE = ROOT / "docs" / "results" / "training.md"
AGAIN = 3
STEPS = 31  # of a run that is timed again; those before `SETTLED` do not count
SETTLED = 5
LIMIT_S = 600.0
POLL_S = 0.01
LINE = re.compile(r"^step (\d+)\b.*?(?: cpu ([\d.]+))?$")


@dataclass(frozen=True)
class Case:
    """A program that somebody trains with.

    Attributes:
        title: For people.
        blocks: Of the campaign, besides its name and budget.
        own: The user's own command; empty where the default is what the system renders.
        slurm: Whether it runs on two nodes of Slurm.
    """

    title: str
    blocks: Mapping[str, Any]
    own: str = ""
    slurm: bool = False


ZERO2 = f"torchrun --nproc-per-node 2 {JOBS}/zero2.py --deepspeed_config {JOBS}/zero2.json"
FSDP2 = f"torchrun --nproc-per-node 2 {JOBS}/fsdp2.py"
TRAINER = f"python {JOBS}/trainer.py"
CPU = {"device": "cpu", "cores": 2}
CASES = {
    "zero2": Case(
        "DeepSpeed: the user's own ZeRO-2 file",
        {"system": "deepspeed", "from": ZERO2, "hardware": {**CPU, "gpus": 0, "processes": 2}},
        own=f"DS_ACCELERATOR=cpu {ZERO2}",
    ),
    "fsdp2": Case(
        "A plain FSDP2 script",
        {
            "system": "pytorch",
            "workload": {
                "command": f"{FSDP2} {{flags}}",
                "knobs": {
                    "micro-batch": {"values": [1, 2, 4, 8], "default": 2},
                    "wrap": {"values": ["layer", "model"], "default": "layer"},
                    "reshard": {"values": ["yes", "no"], "default": "yes"},
                    "exchange": {"values": ["each", "last"], "default": "each"},
                },
            },
            "hardware": {**CPU, "processes": 2},
        },
        own=FSDP2,
    ),
    "trainer": Case(
        "Hugging Face's Trainer with the callback",
        {
            "system": "pytorch",
            "workload": {
                "command": f"{TRAINER} {{flags}}",
                "knobs": {
                    "micro-batch": {"values": [1, 2, 4, 8, 16], "default": 2},
                    "checkpointing": {"values": ["yes", "no"], "default": "yes"},
                    "attention": {"values": ["eager", "sdpa"], "default": "eager"},
                    "optimizer": {"values": ["adamw_torch", "adamw_torch_fused"], "default": "adamw_torch"},
                },
            },
            "hardware": {**CPU, "processes": 1},
            "set": {"threads": 1},  # more wait for each other by spinning, and other work is on the second core
        },
        own=f"OMP_NUM_THREADS=1 {TRAINER}",
    ),
    "megatron": Case(
        "megatron-core on two nodes of Slurm",
        {
            "system": "megatron",
            "workload": {"model": "tiny"},
            "hardware": {**CPU, "cores": 1, "gpus": 0, "nodes": 2, "processes": 2},
            "execute": {"executor": "slurm", "options": {"mode": "allocation", "nodes": 2, "cpus_per_node": 1}},
        },
        slurm=True,
    ),
}


@contextmanager
def two_nodes(folder: Path) -> Iterator[None]:
    """A real Slurm of two nodes on this machine, as programs of this process find it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from _slurm import SlurmCluster

    folder.mkdir(parents=True, exist_ok=True)
    with SlurmCluster(folder, accounting=False, nodes=2) as cluster:
        before = dict(os.environ)
        os.environ.update({name: cluster.environment[name] for name in ("SLURM_CONF", "PATH")})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def measure(name: str, case: Case, results: Path, budget: str) -> dict[str, Any]:
    """The study, and its two sides again; a study that `results` holds is resumed."""
    common: dict[str, Any] = {
        "name": name,
        "budget": {"wall": budget},
        "search": {"warm_start": False},
        "finals": {"finalists": 1, "rounds": 3},
        "measure": {"dirty_repeats": 0},
    }
    campaign = build_campaign({**common, **case.blocks}, where="benchmarks.training")
    with two_nodes(results / "slurm") if case.slurm else nullcontext():
        load = os.getloadavg()[0]
        outcome = whole_study(campaign, results)
        found = {"name": name, "load": load, "budget": budget, **figures(outcome)}
        best = outcome.summary.best
        setup = prepare(campaign)
        sides = {"default": case.own or handed_over(setup, setup.space.default(), results / name / "again" / "default", slurm=case.slurm)}
        if best is not None and best.config != setup.space.default():
            sides["best"] = handed_over(setup, best.config, results / name / "again" / "best", slurm=case.slurm)
            try:
                found["again"] = in_turn(sides, results / name / "again")
            except RuntimeError as error:  # the study is no less true
                found["not_again"] = f"Default and best did not run again: {error}."
    return found


def handed_over(setup: Setup, config: Config, folder: Path, *, slurm: bool) -> str:
    """The command that starts a configuration from its hand-over."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in setup.backend.export(config, setup.task).items():
        (folder / name).write_text(text)
    return (
        f'cd {folder} && MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()} sbatch --wait --output "$TOLD" run.sbatch > /dev/null'
        if slurm
        else f"sh {folder}/run.sh"
    )


def in_turn(sides: Mapping[str, str], folder: Path) -> list[dict[str, Any]]:
    """Milliseconds a step, on the clock and of the first process's CPU time, of both sides, in rounds that swap who begins."""
    rounds = []
    for number in range(AGAIN):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        rounds.append({side: timed(sides[side], folder / f"{side}-{number}") for side in order})
    return rounds


def timed(command: str, folder: Path) -> dict[str, float]:
    """One run of `STEPS` steps, by the lines that it prints, or that it has written to `$TOLD`.

    Raises:
        RuntimeError: it failed, or printed too few.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "out.txt"
    told.write_text("")
    environment = {**os.environ, "STEPS": str(STEPS), "TOLD": str(told), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(["/bin/sh", "-c", f'{{ {command}; }} >> "$TOLD" 2>&1'], env=environment)
    seen: dict[int, tuple[float, float]] = {}
    began_s, read, over = time.monotonic(), 0, False
    while not over:
        over = process.poll() is not None
        text = told.read_text()
        whole = text.rfind("\n") + 1
        for line in text[read:whole].splitlines():
            if match := LINE.match(line):
                seen.setdefault(int(match[1]), (time.monotonic(), float(match[2] or math.nan)))
        read = max(read, whole)
        if time.monotonic() - began_s > LIMIT_S:
            process.terminate()
        time.sleep(POLL_S)
    steps = sorted(step for step in seen if step >= SETTLED)
    if process.returncode or len(steps) < 2:
        raise RuntimeError(f"{command} ended with {process.returncode} after {len(seen)} lines; see {folder}")
    first, last = steps[0], steps[-1]
    wall, cpu = (1000 * (seen[last][at] - seen[first][at]) / (last - first) for at in (0, 1))
    return {"wall_ms": wall, "cpu_ms": cpu}


def geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def again_lines(found: Mapping[str, Any]) -> list[str]:
    """The rounds of one study as a table, and their mean ratio."""
    rounds = found.get("again")
    if not rounds:
        return [found.get("not_again") or "Nothing else than the default was worth a second look."]
    lines = [
        "| round | default, ms a step | best, ms a step | ratio | default, CPU ms | best, CPU ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, one in enumerate(rounds, start=1):
        cells = [str(number)]
        for unit in ("wall_ms", "cpu_ms"):
            default, best = one["default"][unit], one["best"][unit]
            cells += ["-"] * 3 if math.isnan(default) else [f"{default:.0f}", f"{best:.0f}", f"{default / best:.2f}x"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ratios(found: Mapping[str, Any], unit: str) -> list[float]:
    """Default over best of every round; empty where the program does not say."""
    both = [(one["default"][unit], one["best"][unit]) for one in found.get("again") or ()]
    return [default / best for default, best in both if not math.isnan(default)]


def ratio_text(values: Sequence[float]) -> str:
    return f"{geometric(values):.2f}x ({min(values):.2f} to {max(values):.2f})" if values else "-"


def page(studies: Sequence[Mapping[str, Any]]) -> str:
    """The page."""
    loads = sorted(study["load"] for study in studies)
    lines = [
        "# Training programs as people have them",
        "",
        f"`python -m benchmarks.training --write`, in `.venv-training`, on {machine().rpartition(',')[0]}.",
        "The programs are in `benchmarks/training_jobs`. Each study is one of `autoscout tune`. Afterwards default and best ran again",
        f"{AGAIN} times in turn, without AutoScout's trial program: the user's own command against the hand-over,",
        f"{STEPS} steps each, timed by the lines that they print.",
        "",
        f"**The machine was busy** with other work: its load average was {loads[0]:.0f} to {loads[-1]:.0f} when the studies began.",
        "So times scatter, and intervals are wide. Ratios are within a round. CPU time is that of the first process.",
        "",
        "| | verdict | gain by the study | again, by the clock | again, by CPU time |",
        "|---|---|---|---|---|",
    ]
    for one in studies:
        again = [ratio_text(ratios(one, unit)) for unit in ("wall_ms", "cpu_ms")]
        lines.append(f"| {CASES[one['name']].title} | {one['verdict']} | {gain_text(one)} | {' | '.join(again)} |")
    quicker = [ratio > 1 for one in studies for ratio in ratios(one, "cpu_ms")]
    lines += [
        "",
        f"In {studies[0]['budget']} of such a machine few configurations are measured, so these are no examples of what a search finds.",
        f"By CPU time, of which other work takes none, the best was quicker in {sum(quicker)} of {len(quicker)} rounds.",
    ]
    for one in studies:
        case, trials = CASES[one["name"]], ", ".join(f"{count} {phase}" for phase, count in one["trials"].items() if count)
        lines += ["", f"## {case.title}", ""]
        lines += [f"`{case.own}`".replace(f"{JOBS}/", ""), ""] if case.own else []
        lines += [
            f"Verdict: {one['verdict']}: {one['reason']}.",
            f"Launches: {trials}; {one['failed']} failed; {one['wall_s'] / 60:.0f} minutes of a budget of {one['budget']}.",
            f"`{one['metric']}`: default {side_text(one['default'])}, best {side_text(one['best'])}.",
        ]
        lines += ["", *change_lines(one)] if one["changes"] else []
        lines += ["", *again_lines(one)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--budget", default="10m", help="wall-clock time of each study")
    parser.add_argument("--results", type=Path, default=Path("autoscout_results") / "training", help="where studies and figures are kept")
    parser.add_argument("--write", action="store_true", help="write docs/results/training.md from all figures that are kept")
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(JOBS)
    for name in given.only:
        kept = given.results / f"{name}.json"
        if not kept.exists():
            found = measure(name, CASES[name], given.results.absolute(), given.budget)
            kept.write_text(json.dumps(found, indent=1) + "\n")
    studies = [json.loads(kept.read_text()) for name in CASES if (kept := given.results / f"{name}.json").exists()]
    text = page(studies)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
