"""`autoscout compare`: which answer wins under which load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _cli_program import campaign, run
from autoscout.report.across import across


def document(concurrency: int, method: str, ratio: float | None, **metrics: float) -> dict[str, Any]:
    """What `report.json` says of a study whose answer is this way of guessing; `none` is the default."""
    default = {"config": {"speculative_method": "none", "max_num_seqs": 64}, "metrics": {"output_throughput": 100.0}}
    config = {"speculative_method": method, "max_num_seqs": 64, **({"num_speculative_tokens": 3} if method != "none" else {})}
    best = {"config": config, "metrics": {"output_throughput": 100.0 * (ratio or 1.0), **metrics}}
    changes = [{"knob": "speculative_method"}, {"knob": "num_speculative_tokens"}] if method != "none" else []
    workload = {"model": "m", "concurrency": concurrency, "requests": 3 * concurrency, "engine_command": ["vllm"]}
    return {
        "study": f"load-{concurrency}",
        "task": {"system": "vllm", "workload": workload, "objective": {"metric": "output_throughput"}},
        "default": default, "best": best, "answer": config, "changes": changes,
        "gain": {"ratio": ratio, "low": ratio and 0.9 * ratio, "high": ratio and 1.1 * ratio},
    }  # fmt: skip


def test_answers_by_what_sets_their_loads_apart() -> None:
    rows = across([document(128, "none", None), document(8, "mtp", 2.0, acceptance_rate=0.7), document(32, "mtp", 1.2)])
    assert [dict(row.load) for row in rows] == [{"concurrency": 8}, {"concurrency": 32}, {"concurrency": 128}], "by size"
    assert [dict(row.answer) for row in rows] == [
        {"speculative_method": "mtp", "num_speculative_tokens": 3},
        {"speculative_method": "mtp", "num_speculative_tokens": 3},
        {"speculative_method": "none", "num_speculative_tokens": None},
    ]
    assert rows[0].metrics == {"output_throughput": 200.0, "acceptance_rate": 0.7}
    assert rows[0].gain == {"ratio": 2.0, "low": 1.8, "high": 2.2}
    assert rows[2].gain is None


def test_studies_on_the_command_line(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written = campaign(tmp_path, name=name, finals={"rounds": 1, "finalists": 1, "simplify": False}, budget={"trials": 3})
        assert run(tmp_path, "tune", written).returncode == 0
    folders = ["autoscout_results/one", "autoscout_results/two"]
    told = run(tmp_path, "compare", *folders)
    assert told.returncode == 0, told.stderr
    assert "What wins where" in told.stdout
    assert all(word in told.stdout for word in ("study", "one", "two", "score", "gain"))
    data = json.loads(run(tmp_path, "compare", *folders, "--json").stdout)
    assert [row["study"] for row in data["studies"]] == ["one", "two"]
    (tmp_path / "autoscout_results" / "one" / "report.json").unlink()
    told = run(tmp_path, "compare", *folders)
    assert told.returncode == 2
    assert "autoscout report autoscout_results/one writes it" in told.stderr
    assert run(tmp_path, "compare", tmp_path).returncode == 2
