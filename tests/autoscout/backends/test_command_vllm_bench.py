"""Strings and files of vLLM's own sweeps, unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.command.backend import with_saved_result
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import prepare
from autoscout.study.space_file import read_space_file

SERVE, BENCH = "vllm serve M", "vllm bench serve --model M --dataset-name random"


def plan(space: Any, **workload: Any) -> dict[str, Any]:
    given = {"serve": SERVE, "bench": BENCH, "find_program": False, **workload}
    setup = prepare(
        build_campaign({"system": "command", "space": space, "workload": given, "goal": {"metric": "output_throughput"}}, where="t")
    )
    read: dict[str, Any] = json.loads(setup.backend.render(setup.default, setup.task, 1).files["autoscout-plan.json"])
    return read


@pytest.mark.parametrize(
    "points",
    [
        [{"max_num_seqs": 32, "enable_prefix_caching": False}, {"max_num_seqs": 64, "enable_prefix_caching": True}],
        {"small": {"max_num_seqs": 32, "enable_prefix_caching": False}, "large": {"max_num_seqs": 64, "block_size": 16}},
    ],
    ids=["list", "names"],
)
def test_a_sweep_is_tuned_with_its_own_strings(tmp_path: Path, points: Any) -> None:
    path = tmp_path / "serve_params.json"
    path.write_text(json.dumps(points))
    made = plan(read_space_file(path, "command").block or {})
    server, load = made["serve"]["shell"], made["run"]["shell"]
    assert server.startswith(f"{SERVE} --host 127.0.0.1 --port")
    assert "--max-num-seqs 32" in server
    assert "--no-enable-prefix-caching" in server
    assert "benchmark" not in server, "the name of a point is no flag"
    assert load.startswith(BENCH)
    assert "--save-result" in load
    assert "--metric-percentiles 50,90,95,99" in load
    assert made["health_url"].endswith("/health")


def test_what_is_written_stays() -> None:
    own = {"serve": f"{SERVE} --port 9", "bench": f"{BENCH} --port 9 --metric-percentiles 42"}
    made = with_saved_result(own)
    assert made["serve"] == own["serve"]
    assert "50,90" not in made["bench"]
    assert "health" not in made
    assert with_saved_result(made) == made, "a task that was filled up is a good description of itself"
    for other in (
        {"serve": SERVE, "bench": "other --model M"},
        {"bench": BENCH},
        {**own, "metrics": {"x": "json:x"}},
        {"serve": SERVE, "bench": "'"},
    ):
        assert with_saved_result(other) == other
