"""`benchmarks.training`: what it times by itself, and what its page says of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import training  # noqa: E402
from benchmarks.training import CASES, in_turn, page, ratios, timed  # noqa: E402

SLOW = 'i=0; while [ $i -le 12 ]; do echo "step $i loss 1.0 cpu $((i * {cpu})).5"; sleep {s}; i=$((i + 1)); done'
FOUND: dict[str, Any] = {
    "verdict": "no gain",
    "reason": "the interval includes the default",
    "gain": {"ratio": 1.1, "low": 0.9, "high": 1.3, "pairs": 3},
    "metric": "tokens_per_s",
    "default": {"value": 100.0, "runs": 3, "spread": 0.1},
    "best": {"value": 110.0, "runs": 3, "spread": 0.1},
    "trials": {"search": 4, "final": 6},
    "failed": 0,
    "wall_s": 120.0,
    "budget": "8m",
    "load": 9.0,
    "changes": [],
    "contributions": [],
}


def test_steps_are_timed_by_the_lines_that_they_print(tmp_path: Path) -> None:
    found = timed(SLOW.format(cpu=2, s=0.05), tmp_path / "a-0")
    assert found["cpu_ms"] == 2000.0
    assert found["wall_ms"] >= 45.0, "sleeping takes at least that long"
    with pytest.raises(RuntimeError, match="ended with 3 after 0 lines"):
        timed("sh -c 'exit 3'", tmp_path / "b-0")


def test_both_sides_run_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []

    def noted(command: str, folder: Path) -> dict[str, float]:
        began.append(command)
        return {"wall_ms": 2.0 if command == "a" else 1.0, "cpu_ms": 1.0}

    monkeypatch.setattr(training, "timed", noted)
    found = {**FOUND, "name": "fsdp2", "again": in_turn({"default": "a", "best": "b"}, tmp_path)}
    assert began == ["a", "b", "b", "a", "a", "b"]
    assert ratios(found, "wall_ms") == [2.0] * 3


def test_the_page_says_how_busy_the_machine_was_and_gives_every_round() -> None:
    rounds = [{"default": {"wall_ms": 300.0, "cpu_ms": 90.0}, "best": {"wall_ms": 200.0, "cpu_ms": 60.0}}] * 3
    text = page([{**FOUND, "name": "fsdp2", "again": rounds}, {**FOUND, "name": "zero2", "load": 15.0}])
    assert "load average was 9 to 15" in text
    assert f"| {CASES['fsdp2'].title} | no gain | 1.100x [0.900, 1.300], 3 pairs | 1.50x (1.50 to 1.50) | 1.50x (1.50 to 1.50) |" in text
    assert text.count("| 300 | 200 | 1.50x | 90 | 60 | 1.50x |") == 3
    assert f"| {CASES['zero2'].title} | no gain | 1.100x [0.900, 1.300], 3 pairs | - | - |" in text
    assert "Nothing else than the default was worth a second look." in text
    assert "did not run again: ended with 1" in page([{**FOUND, "name": "zero2", "not_again": "Both did not run again: ended with 1."}])
