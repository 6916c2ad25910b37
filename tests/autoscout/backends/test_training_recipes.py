"""The recipes for training programs of others: what they start, and what they read of a log as these programs write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from _cli_program import run
from autoscout.backends.command import CommandBackend
from autoscout.core.launch import Completed
from autoscout.core.trial import Status
from autoscout.study.campaign import read_campaign
from autoscout.study.setup import prepare

RECIPES = Path(__file__).parents[3] / "recipes"
NANOGPT = "".join(
    f"iter {step}: loss {4 - step / 100:.4f}, time {900.0 if step < 10 else 200.0 + step:.2f}ms, mfu 30.12%\n" for step in range(61)
)
TITAN = "".join(
    f"[rank0]:[titan] 2025-08-01 10:00:00 - INFO - step: {step:2}  loss: {9 - step / 10:7.4f}  grad_norm:  2.1  memory: 60.1GiB(75.9%)"
    f"  tps: 6,012  tflops: {300 + step}.25  mfu: 31.2%\n"
    for step in (1, 5, 10, 15, 20, 25, 30)
)
AXOLOTL = "{'train_runtime': '60.5', 'train_samples_per_second': '7.93', 'train_loss': '1.234', 'epoch': 1}\n"
VERL = "".join(f"step:{step} - actor/pg_loss:0.01 - perf/throughput:{1000 + step}.5 - timing_s/step:20.1\n" for step in range(1, 7))


@pytest.mark.parametrize(
    ("name", "words", "log", "metrics"),
    [
        ("nanogpt", ["--batch_size=12", "--gradient_accumulation_steps=40", "--compile=True"], NANOGPT, {"step_ms": 235.0, "loss": 3.4}),
        (
            "torchtitan",
            ["-m torchtitan.train", "--training.local_batch_size 1", "--parallelism.tensor_parallel_degree 1"],
            TITAN,
            {"tflops": 322.75, "loss": 6.0},
        ),
        ("axolotl", ["--micro-batch-size 2", "--gradient-checkpointing"], AXOLOTL, {"samples_per_s": 7.93, "loss": 1.234}),
        ("verl", ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"], VERL, {"throughput": 1005.0}),
    ],
)
def test_a_recipe_starts_the_program_and_reads_its_log(
    tmp_path: Path, name: str, words: list[str], log: str, metrics: dict[str, float]
) -> None:
    done = run(tmp_path, "render", RECIPES / f"{name}.yaml", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    for word in words:
        assert word in " ".join(shown["argv"])
    setup = prepare(read_campaign(RECIPES / f"{name}.yaml"))
    assert isinstance(setup.backend, CommandBackend)
    assert len(setup.space.knobs) >= 3
    measured = setup.backend.parse(Completed(returncode=0, stdout=log), setup.task)
    assert measured.status is Status.OK, measured.reason
    assert {name: measured.metrics[name] for name in metrics} == pytest.approx(metrics)
