"""The spaces and jobs of the AutoScout paper's evaluation (section 4, appendix A) on virtual clusters. Nothing here was measured.

The truth is not what searchers may be told. Searchers that take a simulator get the shipped model of training. The truth is another model:
its constants are drawn around the shipped ones, it has effects that the shipped one lacks (`extras`), and every structure has an error
of its own that no model knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import cluster
from autoscout.common.stats import kendall
from autoscout.core.config import Config
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Proposal, Trial
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions
from autoscout.simulators.training import TrainingModel
from autoscout.simulators.training.calibration import TrainingCalibration, save_calibration
from autoscout.simulators.training.model import TrainingOptions
from autoscout.space import Choice, Flag, Grid, Knob, Space
from benchmarks.synthetic import Written, write_tables

GPUS = "8xA100-80+4xA40"
FAST, SLOW = 8, 4
SEQUENCE, GLOBAL_BATCH = 2048, 192
MODELS = {"llama": "llama-3.2-3b", "nemotron": "llama-3.1-nemotron-nano-vl-8b-v1", "qwen": "qwen3-30b-a3b"}
"""Short name -> the model of the paper; of Nemotron VL the language model, which is what its layouts are about."""

_THREE = ("a100", "a40", "tp", "pp", "dp", "mbs", "a40_share", "stages_inner")
_FIVE = (*_THREE, "cp", "ep", "sp")
SPACES = {"3dp": _THREE, "5dp": _FIVE, "full": (*_FIVE, "ar", "tp_comm", "ddp", "ddp_bucket")}
"""Name -> the knobs that are free, as in the paper's Figure 10; the others stay at their default."""

DENSE = ("tp_comm", "ddp", "ddp_bucket")
"""Knobs of the full space that change no kernel's shape."""
SPREAD = 0.4
"""Standard deviation of the logarithm of the truth's constants, and half of it of the rates of its GPUs, around the shipped ones.

Chosen so that the shipped model errs about as much as on measured tables that its constants were not fitted to."""
MEMORY_SPREAD = 0.2
"""The same of activations and of what every process takes: published peaks of memory are predicted to about 18 %."""
SURPRISE = 0.08
"""The same of a lasting error that every structure has of its own: kernels differ by shape. Along dense knobs times are smooth."""
OPTIONS = VirtualOptions(surprise=0.0, noise=0.01, start_s=90.0, steps=20)
"""Noise, and what a profile takes: 90 s until the first step of a launch over nodes, then 20 steps."""


def knobs(*, moe: bool) -> list[Knob]:
    """Table 1 of the paper, its ranges coarser where they are dense, and what layouts on two kinds of GPU need besides."""
    found: list[Knob] = [
        Choice("a100", [FAST], help="A100 GPUs in use"),
        Choice("a40", [0, SLOW], default=SLOW, help="A40 GPUs in use"),
        Choice("tp", [1, 2, 4, 8], help="tensor parallel degree"),
        Choice("pp", [1, 2, 3, 4, 6, 8, 12], help="pipeline parallel degree"),
        Choice("cp", [1, 2, 4], help="context parallel degree"),
        Choice("dp", [1, 2, 3, 4, 6, 8, 12], default=FAST + SLOW, help="data parallel degree"),
        Choice("ep", [1, 2, 4, 8] if moe else [1], help="expert parallel degree"),
        Flag("sp", when="tp > 1", help="sequence parallelism"),
        Flag("ar", default=True, help="activation recomputation"),
        Choice("mbs", [1, 2, 4, 8], help="micro batch size", sparse=False),
        Grid("a40_share", values=[0.3, 0.4, 0.5, 1.0], default=1.0, when="a40 > 0", help="work of an A40, of an A100's"),
        Flag("stages_inner", when="a40 > 0", help="stages next to each other, replicas far apart"),
        Grid("tp_comm", values=[12, 16, 20], default=16, when="tp > 1", help="SMs for tensor parallel communication"),
        Grid("ddp", values=[1, 4, 12], default=4, when="dp > 1", help="gradient buckets"),
        Grid("ddp_bucket", values=[1, 4, 8], default=4, when="dp > 1", unit="MB", help="bucket size"),
    ]
    return found


RULES = (
    "tp * pp * cp * dp == a100 + a40",
    "global_batch % mbs == 0",
    "dp * mbs <= global_batch",
    "global_batch % (dp * mbs) == 0 or (a40 > 0 and a40_share < 1)",
    "ep <= dp * cp * tp",
    "(dp * cp * tp) % ep == 0",
    "a100 % (tp * cp) == 0 and a40 % (tp * cp) == 0",
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model in one space on one virtual cluster."""

    model: str
    space: str
    cluster: int

    @property
    def title(self) -> str:
        """The job wherever it runs."""
        return f"{self.model}-{self.space}"

    @property
    def name(self) -> str:
        return f"{self.title}-{self.cluster}"

    @property
    def workload(self) -> dict[str, Any]:
        """What `tasks.json` of the tables says."""
        return {
            "synthetic": True,
            "model": MODELS[self.model],
            "gpus": GPUS,
            "sequence": SEQUENCE,
            "seq_len": SEQUENCE,
            "global_batch": GLOBAL_BATCH,
            "stack": "megatron",
        }

    @property
    def task(self) -> Task:
        return Task(system="megatron", objective=Objective(metric="step_s"), workload=self.workload)

    def declared(self) -> Space:
        """The space with all knobs, those that are not free at their default."""
        free = SPACES[self.space]
        fixed = [knob if knob.name in free else _pinned(knob) for knob in knobs(moe=self.model == "qwen")]
        return Space(fixed, RULES, {"global_batch": GLOBAL_BATCH})


def _pinned(knob: Knob) -> Knob:
    return Choice(knob.name, [knob.default], default=knob.default, when=str(knob.when) if knob.when else None)


def jobs(number: int) -> tuple[Job, ...]:
    """All models in all spaces on one cluster."""
    return tuple(Job(model=model, space=space, cluster=number) for model in MODELS for space in SPACES)


class Truth(Simulator):
    """The model that stands for the real cluster: drawn constants and GPUs, and effects that the shipped model does not have.

    Args:
        folder: Keeps the files of the drawn constants and GPUs.
        seed: Names the cluster.
    """

    needs_no_trials = True

    def __init__(self, folder: Path, seed: int) -> None:
        constants, self._gpus = folder / "truth.yaml", folder / "truth-gpus.json"
        save_calibration(drawn_constants(seed), constants)
        self._gpus.write_text(json.dumps({"gpus": drawn_gpus(seed)}), encoding="utf-8")
        self._model = TrainingModel(TrainingOptions(calibration=str(constants)))
        self._seed = seed
        self._errors: dict[Config, float] = {}

    @property
    def knobs(self) -> frozenset[str]:
        return self._model.knobs

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        found = self._model.predict(configs, replace(task, hardware={**task.hardware, "hardware_file": str(self._gpus)}))
        return replace(found, value=found.value * np.array([extras(config) * self._own(config) for config in configs]))

    def _own(self, config: Config) -> float:
        """The error of a structure, which all settings of the dense knobs share."""
        structure = config.only(name for name in config if name not in DENSE)
        if structure not in self._errors:
            self._errors[structure] = math.exp(SURPRISE * float(stream(self._seed, "paper", structure.key).standard_normal()))
        return self._errors[structure]

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """The truth does not learn."""


def drawn_constants(seed: int, task: Task | None = None) -> TrainingCalibration:
    """What the shipped model uses for a task (the paper's jobs), each constant times a factor drawn once; shares stay below 1."""
    base = TrainingModel().calibration(task or jobs(seed)[0].task)
    rng = stream(seed, "paper", "constants")

    def off(spread: float) -> float:
        return math.exp(spread * float(rng.standard_normal()))

    found = {name: getattr(base.constants, name) * off(SPREAD) for name in base.constants.names()}
    shares = ("attention_share", "nic_share", "dp_overlap", "tp_overlap", "shard_overlap", "expert_share", "reduced_share")
    found |= {name: min(0.95, found[name]) for name in shares}
    memory = replace(
        base.memory,
        activation_scale=base.memory.activation_scale * off(MEMORY_SPREAD),
        fixed_bytes=base.memory.fixed_bytes * off(MEMORY_SPREAD),
    )
    constants = replace(base.constants, **found)
    return replace(base, name="virtual cluster", constants=constants, memory=memory, made_from="drawn, never measured")


def drawn_gpus(seed: int) -> dict[str, dict[str, Any]]:
    """The GPUs of the cluster, each rate times a factor of its own."""
    rng = stream(seed, "paper", "gpus")
    found = {}
    for kind, _ in cluster(GPUS).groups:
        fields = {name: value for name, value in asdict(kind).items() if value and name not in ("name", "measured")}
        for rate in ("bf16_tflops", "memory_gbps", "scaleup_gbps", "nic_gbps"):
            fields[rate] *= math.exp(SPREAD / 2 * float(rng.standard_normal()))
        found[kind.name] = fields
    return found


def extras(config: Config) -> float:
    """How many times longer a step takes for reasons that the shipped model does not have."""
    tp, dp, ep, mbs = (float(config.get(name, 1) or 1) for name in ("tp", "dp", "ep", "mbs"))
    factor = 1.0
    if tp > 1:  # SMs that talk: too few starve the links, too many the kernels; larger micro-batches can spare more
        best = 12.0 + 2.0 * math.log2(tp) + math.log2(mbs)
        factor *= 1.0 + 0.003 * (float(config["tp_comm"]) - best) ** 2
    if dp > 1:  # few large buckets begin late, many small ones pay for each launch
        asked = math.log2(float(config["ddp"]) * float(config["ddp_bucket"]))
        factor *= 1.0 + 0.012 * (asked - math.log2(2.0 + dp)) ** 2
    if ep > 1:  # the busiest experts' ranks are waited for
        factor *= 1.0 + 0.04 * math.log2(ep)
    if config["a40"] and config["pp"] == 1:  # replicas of two kinds drift apart and meet at every step
        factor *= 1.04
    if config.get("sp") and mbs == 1:  # small pieces
        factor *= 1.03
    return factor


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All configurations of a job, their seconds per step (NaN: out of memory), and what the shipped model thinks of them."""

    configs: tuple[Config, ...]
    step_s: NDArray[np.float64]
    told: Prediction


def answers(job: Job, folder: Path) -> Answers:
    """Measure everything on the virtual cluster."""
    configs = tuple(job.declared().enumerate())
    machines = VirtualEvaluator(Truth(folder, job.cluster), job.task, replace(OPTIONS, seed=job.cluster))
    measured = machines.evaluate([Proposal(config=config) for config in configs])
    step_s = np.array([one.metrics["step_s"] if one.ok else math.nan for one in measured])
    return Answers(configs=configs, step_s=step_s, told=TrainingModel().predict(configs, job.task))


def write(folder: Path, job: Job) -> dict[str, Any]:
    """Write a job as a table that `autoscout_lab.bench` reads, unless the folder has it already; what is worth knowing of it."""
    kept = folder / "about.json"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        found = answers(job, folder)
        values = [None if math.isnan(step_s) else float(step_s) for step_s in found.step_s]
        rows = list(zip(found.configs, values, strict=True))
        write_tables(folder, [Written(name=job.name, space=job.declared(), rows=rows, unit="s/step", workload=job.workload)])
        kept.write_text(json.dumps(_about(found)), encoding="utf-8")
    about: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return about


def _about(found: Answers) -> dict[str, Any]:
    """Sizes, the optimum, what Megatron's guidance gives, and how far the shipped model is from the truth."""
    worked = np.isfinite(found.step_s)
    step_s, told_s = found.step_s[worked], found.told.value[worked]
    sample = stream(0, "paper", "ranks").permutation(len(step_s))[:2000]
    errors = np.log(told_s / step_s)
    likely = np.where(found.told.feasible >= 0.5, found.told.value, np.inf)
    trusted = next((row for row in np.argsort(likely, kind="stable") if worked[row]), int(np.nanargmin(found.step_s)))
    ways = guidance(found)
    guided = min(ways.values(), key=lambda row: float(found.step_s[row]))
    return {
        "configurations": len(found.configs),
        "feasible": int(worked.sum()),
        "best_s": float(step_s.min()),
        "best": found.configs[int(np.nanargmin(found.step_s))].to_json(),
        "median_s": float(np.median(step_s)),
        "worst_s": float(step_s.max()),
        "megatron_s": float(found.step_s[guided]),
        "megatron": found.configs[guided].to_json(),
        "megatron_all_s": float(found.step_s[ways.get(SLOW, guided)]),
        "told_error": float(np.mean(np.abs(np.exp(errors - np.median(errors)) - 1.0))),
        "told_rank": kendall(told_s[sample], step_s[sample]),
        "told_first_s": float(found.step_s[trusted]),
        "told_fits_failed": float(np.mean(~worked[found.told.feasible >= 0.5])),
        "told_not_ran": float(np.mean(found.told.feasible[worked] < 0.5)),
    }


def guidance(found: Answers) -> dict[int, int]:
    """Number of A40s in use, none or all -> the row that Megatron's guidance leads to, in equal shares; what never fits is left out.

    As little tensor, then pipeline parallelism as memory allows, tensor parallelism within a node before pipelines and with sequence
    parallelism, experts spread before layers are cut; full recomputation, micro-batches of one, everything else at its default.
    """
    usual = {"a40_share": 1.0, "stages_inner": False, "ar": True, "mbs": 1, "cp": 1, "sp": True, "tp_comm": 16, "ddp": 4, "ddp_bucket": 4}

    def order(row: int) -> tuple[Any, ...]:
        config = found.configs[row]
        unusual = [config.get(name, value) != value for name, value in usual.items()]
        return (*unusual, config["tp"] * config["pp"], config["pp"], config["ep"])

    worked = [int(row) for row in np.flatnonzero(np.isfinite(found.step_s))]
    ways = {count: [row for row in worked if found.configs[row]["a40"] == count] for count in (0, SLOW)}
    return {count: min(rows, key=order) for count, rows in ways.items() if rows}
