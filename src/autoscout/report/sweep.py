"""Trials in the layout of vLLM's sweeps (`vllm bench sweep serve`), so that its `plot` and `plot_pareto` read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from autoscout.core.config import Config
from autoscout.core.names import Names
from autoscout.core.secrecy import without_secrets
from autoscout.core.trial import Fidelity, Trial
from autoscout.space import Knob

SUMMARY = "summary.json"


def sweep_files(trials: Iterable[Trial], knobs: Iterable[Knob]) -> dict[str, str]:
    """Relative path -> text: per configuration a folder with `run=N.json` for each measurement and all of them in `summary.json`.

    Each run holds the metrics next to the settings, as a sweep merges them. Failed and simulated trials are left out.
    """
    runs: dict[Config, list[dict[str, Any]]] = {}
    for trial in trials:
        if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED:
            rows = runs.setdefault(trial.config, [])
            rows.append({**trial.measurement.metrics, "run_number": len(rows), **trial.config.to_json()})
    chosen = [knob.name for knob in knobs if len(knob.values) > 1]
    names, files = Names(chosen), {}
    for config, rows in runs.items():
        folder = f"SERVE--{names.name(config.only(chosen))}"
        for number, run in enumerate(rows):
            files[f"{folder}/run={number}.json"] = json.dumps(without_secrets(run), indent=4) + "\n"
        files[f"{folder}/{SUMMARY}"] = json.dumps(without_secrets(rows), indent=4) + "\n"
    return files


__all__ = ["sweep_files"]
