"""docs/guides/conversations.md, walked through with a real llama-server."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from _cli_program import run

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guides" / "conversations.md").read_text()
SERVER = Path(os.environ.get("AUTOSCOUT_LLAMA_SERVER", str(ROOT / ".venv-llama-server" / "llama-server")))
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ autoscout (profile .+)$", GUIDE, re.MULTILINE)]
CAMPAIGN = re.findall(r"```yaml\n# chat\.yaml\n(.*?)```", GUIDE, re.DOTALL)[0]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SERVER.exists(), reason=f"no {SERVER}: `make test-llama-server` unpacks it")]


def metrics(folder: Path, words: list[str]) -> dict[str, float]:
    campaign = yaml.safe_load(CAMPAIGN)
    (folder / "chat.yaml").write_text(yaml.dump({**campaign, "measure": {"dirty_repeats": 0}}))
    done = run(folder, *words, "-w", f"server={SERVER}", "--json")
    assert done.returncode == 0, done.stderr
    measured: dict[str, Any] = json.loads(done.stdout)["measurements"][0]
    assert measured["status"] == "ok", measured
    return {name: float(value) for name, value in measured["metrics"].items()}


@pytest.mark.parametrize("words", COMMANDS[:2], ids=["pauses", "agents"])
def test_sessions_that_are_held(tmp_path: Path, words: list[str]) -> None:
    found = metrics(tmp_path, words)
    pause_s, requests = (2 * 2.885, 3) if len(words) == 2 else (0.0, 9)
    lasts_s = 3 * found["mean_e2el_ms"] / 1000 + pause_s
    assert found["capacity_sessions"] == pytest.approx(found["capacity_rps"] / requests * lasts_s, rel=0.01)
    if "offered_rps" in found:  # a busy machine may hold no rate
        assert found["offered_rps"] == pytest.approx(found["capacity_rps"], rel=0.25)  # a few requests more or less, of few
        assert found["capacity_sessions"] > 0


@pytest.mark.parametrize("words", COMMANDS[2:], ids=["sessions", "rate"])
def test_a_given_number_or_rate(tmp_path: Path, words: list[str]) -> None:
    found = metrics(tmp_path, words)
    assert found["failed"] == 0
    if "concurrency=6" in words:
        assert found["sessions_under_way"] == 6
        assert found["completed"] >= 6
    else:
        assert 20 <= found["completed"] <= 40
        assert found["sessions_under_way"] > 1


def test_sessions_need_conversations(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(CAMPAIGN.replace("workload: multi_turn, ", ""))
    done = run(tmp_path, "profile", "chat.yaml", "-w", f"server={SERVER}")
    assert done.returncode == 2
    assert "capacity_sessions" in done.stderr
    assert "counts sessions that ask more than once" in " ".join(done.stderr.split())
