"""DeepSpeed's own tuner and AutoScout on one space: `python -m benchmarks.deepspeed --measure`, then `--write`.

`--measure` runs every configuration of the space in several rounds: real training of the built-in model by DeepSpeed on two CPU processes.
`--write` lets both search these measurements and writes the page. DeepSpeed's tuner starts its experiments through pdsh, which a machine
without ssh does not have: its `Autotuner`, enumeration and tuners run as they are, and only `ResourceManager.run` is answered here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.study.assemble import build_searcher
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import StartingPoint
from autoscout.training.workload import BuiltInWorkload
from benchmarks.search import machine

TABLE = Path(__file__).parent / "tables" / "deepspeed_cpu.json"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "deepspeed.md"
PROCESSES = 2
SHARE = 4  # sequences of a process in a step: the largest micro-batch
SCOPE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": [1, 2, SHARE],
    "zero_optimization": {"stage": [0, 1, 2, 3], "overlap_comm": [False, True], "reduce_bucket_size": [500_000, 500_000_000]},
}
"""The space: DeepSpeed's documented way to write one, lists in a file."""
SHARDED = {**SCOPE, "zero_optimization": {**SCOPE["zero_optimization"], "stage": [1, 2, 3]}}
"""The same without ZeRO 0, whose micro-batches keep DeepSpeed's tuner from overlap and buckets of the other stages."""
USUAL_BUCKET = 500_000_000
"""What DeepSpeed takes where a file is silent; overlap it turns on for stage 3."""
SEEDS = range(5)
FINALISTS = 2
PARAMETERS, ACTIVATION_BYTES = 3_700_000, 50_000_000  # of the model, and of one sequence
STAGES = [["zero_stage"], ["micro_batch"], ["overlap_comm", "reduce_bucket_size"]]

Key = tuple[int, int, bool, int]
"""Stage, micro-batch, overlap and bucket; the last two mean nothing in stage 0."""


def key_of(stage: int, micro_batch: int, overlap: bool | None, bucket: float | None) -> Key:
    """What of an experiment is tuned."""
    if stage == 0:
        return (0, micro_batch, False, 0)
    return (stage, micro_batch, stage == 3 if overlap is None else overlap, int(USUAL_BUCKET if bucket is None else bucket))


def key_of_config(config: Config) -> Key:
    values: dict[str, Any] = dict(config)
    return key_of(values["zero_stage"], values["micro_batch"], values.get("overlap_comm"), values.get("reduce_bucket_size"))


def key_of_file(file: Mapping[str, Any]) -> Key:
    zero = file.get("zero_optimization", {})
    return key_of(
        int(zero.get("stage", 0)), int(file["train_micro_batch_size_per_gpu"]), zero.get("overlap_comm"), zero.get("reduce_bucket_size")
    )


def description(**workload: Any) -> dict[str, Any]:
    """The task: a small GPT whose steps take long enough to be measured, on two processes with a thread each."""
    facts = {"model": "tiny", "global_batch": PROCESSES * SHARE, "most_steps": 14, "least_steps": 8, "enough_s": 6.0, **workload}
    return {
        "system": "deepspeed",
        "workload": facts,
        "hardware": {"device": "cpu", "gpus": 0, "processes": PROCESSES},
        "simulate": {"simulator": "none"},
    }


def space_setup(scope: Mapping[str, Any] = SCOPE, **more: Any) -> Setup:
    return prepare(build_campaign({**description(tuning_space=dict(scope)), **more}, "benchmark"))


def distinct(setup: Setup) -> dict[Key, Config]:
    """One configuration for each experiment."""
    return {key_of_config(config): config for config in setup.space.enumerate()}


def measure(rounds: int, out: Path) -> None:
    """Measure everything in further rounds, each in an order of its own; all in one start of two processes."""
    setup = space_setup()
    rows = distinct(setup)
    earlier = json.loads(out.read_text())["seconds"] if out.exists() else []
    numbers, entries = range(len(earlier), len(earlier) + rounds), []
    for number in numbers:
        order = list(rows)
        random.Random(number).shuffle(order)
        for key in order:
            file = json.loads(setup.backend.render(rows[key], setup.task, seed=0).files["ds_config.json"])
            entries.append({"round": number, "key": key, "file": file})
    shape = BuiltInWorkload.named_shape(setup.task.workload["model"])
    with tempfile.TemporaryDirectory() as folder:
        work, lines = Path(folder, "work.json"), Path(folder, "lines.jsonl")
        work.write_text(json.dumps({"entries": entries, "shape": shape, "global_batch": PROCESSES * SHARE}))
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
        subprocess.run([*launcher, "-m", "benchmarks._deepspeed_worker", str(work), str(lines)], check=True)
        results = [json.loads(line) for line in lines.read_text().splitlines()]
    taken = [{json.dumps(row["key"]): row["seconds"] for row in results if row["round"] == number} for number in numbers]
    out.write_text(json.dumps({"machine": machine(), "scope": SCOPE, "seconds": [*earlier, *taken]}, indent=1) + "\n")


Seen = list[tuple[Key, float]]
"""Experiments of a search in their order, with their tokens per second."""
Search = Callable[[Mapping[str, Any], Mapping[Key, float], int], Seen]


def autoscout(trials: int | None, **search: Any) -> Search:
    """AutoScout's search of the tuning space, of as many experiments as the budget has."""

    def run(scope: Mapping[str, Any], rates: Mapping[Key, float], seed: int) -> Seen:
        setup = space_setup(scope, search={**search, "seed": seed} if search else {}, budget={"trials": trials} if trials else {})
        searcher = build_searcher(setup, StartingPoint.decide(setup, None))
        seen: Seen = []
        proposals = [Proposal(config=setup.default)]
        while proposals and len(seen) < (trials or setup.space.count().value):
            key = key_of_config(proposals[0].config)
            answer = Measurement(status=Status.OK, metrics={"tokens_per_s": rates[key], "loss_after": 1.0}, cost_s=1.0)
            searcher.tell([Trial(proposal=proposals[0], measurement=answer, study="benchmark", number=len(seen), batch=len(seen))])
            seen.append((key, rates[key]))
            proposals = searcher.ask(1)
        return seen

    return run


def deepspeed_tuner(tuner: str, *, fast: bool = False) -> Search:
    """DeepSpeed's own `Autotuner`, its experiments answered from the table."""

    def run(scope: Mapping[str, Any], rates: Mapping[Key, float], seed: int) -> Seen:
        from deepspeed.autotuning import autotuner
        from deepspeed.autotuning.scheduler import ResourceManager

        class Recorded(autotuner.Autotuner):  # type: ignore[misc]
            """Knows what a run of its own would have told it of the model: that memory is ample."""

            def model_info_profile_run(self) -> dict[str, int]:
                return {"num_params": PARAMETERS, "activation_mem_per_gpu": ACTIVATION_BYTES}

        random.seed(seed)
        np.random.seed(seed)
        seen: Seen = []

        def answer(manager: Any) -> None:
            while manager.experiment_queue:
                experiment = manager.experiment_queue.pop(0)
                key = key_of_file(experiment["ds_config"])
                seen.append((key, rates[key]))
                place = Path(
                    experiment["ds_config"].setdefault("autotuning", {}).setdefault("metric_path", f"{manager.results_dir}/{len(seen)}")
                )
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps({"throughput": rates[key]}))
                manager.finished_experiments[experiment["exp_id"]] = (experiment, None)

        with tempfile.TemporaryDirectory() as folder:
            section = {"enabled": True, "fast": fast, "tuner_type": tuner, "overwrite": True, "exps_dir": f"{folder}/exps"}
            section |= {"results_dir": f"{folder}/results"}
            (file := Path(folder, "ds.json")).write_text(json.dumps({**scope, "autotuning": section}))
            arguments = {"user_args": ["--deepspeed_config", str(file)], "user_script": "train.py", "hostfile": "", "master_port": 29500}
            told = argparse.Namespace(**arguments, num_nodes=1, num_gpus=PROCESSES)
            own, ResourceManager.run = ResourceManager.run, answer
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    Recorded(told, {"localhost": list(range(PROCESSES))}).tune()
            finally:
                ResourceManager.run = own
        return seen

    return run


SEARCHES: dict[str, Search] = {
    "DeepSpeed, grid (`gridsearch`, its default)": deepspeed_tuner("gridsearch"),
    "DeepSpeed, `random`": deepspeed_tuner("random"),
    "DeepSpeed, `model_based`": deepspeed_tuner("model_based"),
    "DeepSpeed, fast mode": deepspeed_tuner("gridsearch", fast=True),
    "AutoScout, `--space FILE`": autoscout(None),
    "AutoScout, grid in stages": autoscout(None, searcher="grid", options={"stages": STAGES}),
    "AutoScout, `hybrid`, 12 trials": autoscout(12, searcher="hybrid"),
}


@dataclass(frozen=True)
class Row:
    """What a search came to, over rounds and seeds.

    Attributes:
        launches: That it took.
        found: Speed of its answer, of the fastest configuration's, both by the rounds that it did not see.
    """

    launches: tuple[int, ...]
    found: tuple[float, ...]


def compare(table: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Row]:
    """Every search sees one round of measurements, a final the next ones; answers are judged by the rounds that nobody saw."""
    tokens = PROCESSES * SHARE * BuiltInWorkload.named_shape("tiny")["sequence"]
    keys = list(distinct(space_setup(scope)))
    rounds = [{key: tokens / taken[json.dumps(key)] for key in keys} for taken in table["seconds"]]
    rows = {}
    for name, search in SEARCHES.items():
        counts, answers = [], []
        for number in range(len(rounds)):
            first, *rest = [*rounds[number:], *rounds[:number]]
            final, judges = rest[: len(rest) // 2], rest[len(rest) // 2 :]
            truth = {key: statistics.median(judge[key] for judge in judges) for key in keys}
            for seed in SEEDS:
                seen = search(scope, first, seed)
                ranked = list(dict.fromkeys(key for key, _ in sorted(seen, key=lambda pair: -pair[1])))
                contenders = list(dict.fromkeys([*ranked[:FINALISTS], seen[0][0]])) if name.startswith("AutoScout") else ranked[:1]
                best = max(contenders, key=lambda key: statistics.median(one[key] for one in final))
                counts.append(len(seen) + (len(contenders) * len(final) if len(contenders) > 1 else 0))
                answers.append(truth[best] / max(truth.values()))
        rows[name] = Row(tuple(counts), tuple(answers))
        print(name, statistics.mean(counts), round(statistics.mean(answers), 3), flush=True)
    return rows


HEAD = """\
# DeepSpeed's own tuner and AutoScout on one space

`python -m benchmarks.deepspeed --measure`, then `--write`, in `.venv-training` with `xgboost-cpu` and `tabulate`.

The space, as a DeepSpeed file: `{scope}`.

It has {count} configurations that differ, since ZeRO 0 has neither overlap nor buckets, of 48 combinations. All were trained for real,
{rounds} times, each time in another order: a small GPT (`tiny`), {processes} CPU processes with a thread each, {batch} sequences a step.
The machine was busy with other work: the {rounds} times of a configuration scatter by {spread:.0%} (median). The slowest median is
{span:.1f} times the fastest.

DeepSpeed's tuner starts experiments through pdsh, which needs ssh. So its `Autotuner`, enumeration and tuners run as they are. Only
`ResourceManager.run` is answered from these measurements, and the profile of the model from its size. AutoScout's searchers are
answered from the same measurements. A search sees one round. AutoScout's best two meet the default in a final of {final} more rounds, as
in a study, and these launches are counted. Answers are judged by the median of the {judges} rounds that nobody saw: 100 % is the fastest
configuration there, which is lucky itself. Means over {rounds} rounds and {seeds} seeds, with the standard error over rounds.

| search | launches | speed of the answer | without ZeRO 0: launches | speed of the answer |
|---|---|---|---|---|
"""

TAIL = """\
DeepSpeed's tuner tries the micro-batches of every stage, and overlap and buckets only of a stage whose best micro-batch is larger than
that of the stages before. So it rarely comes to them, whichever tuner is chosen.
"""


def found(row: Row) -> str:
    """Mean of the answers' speed, and its standard error over the rounds."""
    means = [statistics.mean(row.found[at : at + len(SEEDS)]) for at in range(0, len(row.found), len(SEEDS))]
    return f"{statistics.mean(means):.1%} ± {statistics.stdev(means) / len(means) ** 0.5:.1%}"


def page(table: Mapping[str, Any], whole: Mapping[str, Row], sharded: Mapping[str, Row]) -> str:
    rounds, count = len(table["seconds"]), len(table["seconds"][0])
    spread = statistics.median(
        statistics.stdev(values) / statistics.mean(values)
        for key in table["seconds"][0]
        if (values := [taken[key] for taken in table["seconds"]])
    )
    medians = [statistics.median(taken[key] for taken in table["seconds"]) for key in table["seconds"][0]]
    lines = HEAD.format(
        scope=json.dumps(SCOPE),
        count=count,
        rounds=rounds,
        processes=PROCESSES,
        batch=PROCESSES * SHARE,
        spread=spread,
        span=max(medians) / min(medians),
        seeds=len(SEEDS),
        final=(rounds - 1) // 2,
        judges=rounds - 1 - (rounds - 1) // 2,
    ).splitlines()
    for name in whole:
        cells = [f"{statistics.mean(row.launches):.1f} | {found(row)}" for row in (whole[name], sharded[name])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *TAIL.splitlines(), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--table", type=Path, default=TABLE)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.rounds, asked.table)
    if asked.write:
        logging.disable(logging.CRITICAL)
        table = json.loads(asked.table.read_text())
        PAGE.write_text(page(table, compare(table, SCOPE), compare(table, SHARDED)))


if __name__ == "__main__":
    main()
