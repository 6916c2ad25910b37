"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from autoscout.backends.llamacpp import engine, machine
from autoscout.backends.llamacpp.export import export_files
from autoscout.backends.llamacpp.outcome import outcome
from autoscout.backends.llamacpp.space import SERVER, build_space
from autoscout.backends.llamacpp.stages import INPUT, RESULT, STAGE
from autoscout.backends.llamacpp.workload import METRICS, Workload, natural_direction, read_workload
from autoscout.common.fields import read_blocks, read_fields, read_objective, refuse_if
from autoscout.core.config import Config, Value
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.protocols import Backend, once_per_task
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.space import Space

NOT_SETTINGS = ("weights", "omp_wait_policy", "context_size")
"""Knobs that are no parameter of the engine by themselves: a model file, an environment variable, the rule for its context."""
FROM_MODEL = 0
"""The context size that means the model's own, for the engine and its `--ctx-size`."""


class Hardware(BaseModel):
    """The facts of the machine that the knobs depend on; others may be given and are kept."""

    model_config = ConfigDict(strict=True)

    cores: int = Field(ge=1)
    physical_cores: int = Field(ge=1)
    numa_nodes: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    lockable_gb: float = Field(0.0, ge=0)


class LlamaCppBackend(Backend):
    """llama.cpp's server through the xllamacpp wheel: any GGUF model, or a random one that needs no download.

    `task` reads facts of the machine (cores, memory) unless they are given, the header of the model file, and the wheel's own
    defaults. Knobs that change what the model answers are offered only with `workload.allow_lossy`.
    """

    requires: ClassVar = ("xllamacpp", "gguf")
    extra: ClassVar = "llamacpp"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        load = {"prompt_tokens": 16, "output_tokens": 8, "concurrency": 2, "repeats": 1}
        return {"workload": {"model": "random-tiny", **load}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        workload, wrong = read_workload(blocks.workload)
        objective, more = read_objective(blocks.objective, metrics=METRICS, default="output_throughput", direction=natural_direction)
        hardware = {**machine.detect(), **blocks.hardware}
        refuse_if([*blocks.faults, *wrong, *more, *read_fields(Hardware, hardware, "hardware")[1]])
        build = engine.installed()
        own = {"xllamacpp": build.version, "openmp": build.openmp, "gpu_build": build.gpu}
        return Task(
            system="llamacpp",
            workload=workload.to_json(),
            hardware=hardware,
            software={**own, **blocks.software},
            objective=objective,
            budget=blocks.budget,
        )

    def load(self, task: Task) -> str:
        workload = Workload.from_json(task.workload)
        return (
            f"{workload.concurrency} clients on the same machine, each sending its next request over HTTP when the last is answered: "
            f"prompts of {workload.prompt_tokens} random tokens, answers of {workload.output_tokens}."
        )

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(Workload.from_json(task.workload), task.hardware, task.software, engine.installed().defaults)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Configurations worth measuring right after the default.

        The other of the two ways in which llama.cpp is started without settings, as a library (one slot) or as `llama-server` (four), and
        a slot for every client, which often does well.
        """
        space, workload = self.space(task), Workload.from_json(task.workload)
        library = {"parallel": engine.installed().defaults["parallel"]}
        other = library if workload.engine_defaults == "llama-server" else SERVER
        wanted = [Config(other), Config(parallel=workload.concurrency)]
        offered = [some for some in wanted if some["parallel"] in space.knobs["parallel"]]
        found = [space.project({**space.default(), **some}, some) for some in offered]
        return tuple(config for config in dict.fromkeys(found) if config != space.default())

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        workload = Workload.from_json(task.workload)
        return Launch(
            argv=(sys.executable, "-m", "autoscout.backends.llamacpp.bench", INPUT),
            files={INPUT: self._bench_input(config, task, workload, seed)},
            env={"GGML_NO_BACKTRACE": "1", **_environment(config)},
            resources=Resources(cpus=int(task.hardware["cores"]), gpus=_gpus(config, task), memory_gb=workload.memory_gb or None),
            limit_s=workload.limit_s,
            outputs=(RESULT, STAGE),
            name=Names(self.space(task).knobs).name(config),
        )

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, Workload.from_json(task.workload))

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload = Workload.from_json(task.workload)
        bench = self._bench_input(config, task, workload, seed=0)
        return export_files(workload, _settings(config, workload), _weights(config, workload), _environment(config), bench)

    def _bench_input(self, config: Config, task: Task, workload: Workload, seed: int) -> str:
        default = self.space(task).default()
        reference = {"settings": _settings(default, workload), "weights": _weights(default, workload)}
        known = json.dumps([workload.facts.fingerprint, dict(task.software), reference], sort_keys=True)
        data = {
            "settings": _settings(config, workload),
            "weights": _weights(config, workload),
            "workload": workload.to_json(),
            "reference": {**reference, "key": hashlib.sha256(known.encode()).hexdigest()[:16]},
            "seed": seed,
        }
        return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _settings(config: Config, workload: Workload) -> dict[str, Value]:
    """What the engine is told; the context is the model's own, or that of one request times the slots."""
    slots = config["parallel"]
    assert isinstance(slots, int)
    context = FROM_MODEL if config.get("context_size") == "model" else workload.context * slots
    return {"context": context, **{name: value for name, value in config.items() if name not in NOT_SETTINGS}}


def _weights(config: Config, workload: Workload) -> str:
    return str(config.get("weights", workload.facts.weights))


def _gpus(config: Config, task: Task) -> int:
    return int(task.hardware.get("gpus", 0)) if config.get("gpu_layers", 0) != 0 else 0


def _environment(config: Config) -> dict[str, str]:
    policy = config.get("omp_wait_policy", "default")
    return {} if policy == "default" else {"OMP_WAIT_POLICY": str(policy)}
