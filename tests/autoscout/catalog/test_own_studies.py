"""What the trials of a study say of a simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoscout.catalog.own_studies import FILE, LocalFit, fit_local, local_scale
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.simulators.training.model import TrainingModel

TASK = Task(
    system="megatron",
    objective=Objective(metric="step_s"),
    workload={"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 64},
    hardware={"gpus": "8xA100-80"},
)
CONFIGS = [Config(tp=tp, dp=8 // tp, mbs=mbs) for tp in (1, 2, 4) for mbs in (1, 2)]


def trials(factor: float, fidelity: Fidelity = Fidelity.MEASURED) -> list[Trial]:
    values = TrainingModel().predict(CONFIGS, TASK).value * factor
    return [
        Trial(
            number=number,
            proposal=Proposal(config=config),
            measurement=Measurement(status=Status.OK, metrics={"step_s": float(value)}, fidelity=fidelity),
        )
        for number, (config, value) in enumerate(zip(CONFIGS, values, strict=True))
    ]


def test_measured_trials_give_the_factor_of_the_machine() -> None:
    found = fit_local("training", TrainingModel(), trials(1.25), TASK, "mine")
    assert found is not None
    assert np.exp(found.log_factor) == pytest.approx(1.25, rel=1e-3)
    assert (found.gpu, found.system, found.trials) == ("A100-80", "megatron", 6)
    assert fit_local("training", TrainingModel(), trials(1.25, Fidelity.SIMULATED), TASK, "mine") is None
    assert fit_local("training", TrainingModel(), trials(1.25)[:2], TASK, "mine") is None


def test_the_effect_is_judged_on_other_studies(tmp_path: Path) -> None:
    for name, factor in (("a", 1.2), ("b", 1.25), ("c", 1.3)):
        found = fit_local("training", TrainingModel(), trials(factor), TASK, name)
        assert found is not None
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_text(found.to_json())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE).write_text("{")
    scale = local_scale(tmp_path, "training", "A100-80", "megatron")
    assert scale.factor == pytest.approx(1.25 ** (3 / 3.3), rel=1e-3)
    assert "25% without" in scale.sentence
    assert local_scale(tmp_path, "training", "H100", "megatron").factor == 1.0
    assert local_scale(tmp_path / "nowhere", "training", "A100-80", "megatron").sentence == ""
    assert LocalFit.from_file(tmp_path / "broken" / FILE) is None
