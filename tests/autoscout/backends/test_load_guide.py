"""What docs/guides/load.md names exists, and its campaign is accepted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from autoscout.backends.vllm import VllmBackend
from autoscout.core.trial import Status
from autoscout.load.plan import METRICS, Load
from autoscout.testing.openai_server.settings import FAULTS

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "load.md").read_text()
TABLES = re.findall(r"(?:^\|.*\n)+", GUIDE, re.MULTILINE)


def first_words(table: str) -> set[str]:
    rows = table.splitlines()[2:]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_kinds_of_requests_and_arrivals_are_those_of_the_load() -> None:
    workloads, arrivals = (set(get_args(Load.model_fields[name].annotation)) for name in ("workload", "arrival"))
    assert first_words(TABLES[0]) == workloads
    assert first_words(TABLES[1]) == arrivals
    named = {word for row in TABLES[0].splitlines()[2:] for word in re.findall(r"`([a-z_]+)`", row.split("|")[3])}
    assert named <= set(Load.model_fields)


def test_clients_and_metrics_exist() -> None:
    for client in get_args(Load.model_fields["client"].annotation):
        assert client == "builtin" or f"`{client}`" in GUIDE or f"client={client}" in GUIDE
    for name in ("capacity_rps", "capacity_low_rps", "capacity_confirmed", "goodput", "token_agreement", "mean_logprob_error"):
        assert name in GUIDE
        assert name in METRICS


def test_statuses_exist() -> None:
    named = {re.findall(r"`(\w+)`", row)[-1] for row in TABLES[-1].splitlines()[2:]}
    assert named <= {status.value for status in Status}


def test_the_campaign_is_accepted(tmp_path: Path) -> None:
    given = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[0])
    given["workload"] |= {"model": "llama-3.1-8b", "engine_command": [sys.executable, "-m", "autoscout.testing.openai_server"]}
    task = VllmBackend().task({**given, "hardware": {"gpus": 0, "cores": 2}})
    assert task.objective.metric == "capacity_rps"


@pytest.mark.slow
def test_the_server_explains_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "autoscout.testing.openai_server", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(fault in done.stdout for fault in FAULTS)
