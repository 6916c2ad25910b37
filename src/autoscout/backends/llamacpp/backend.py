"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.llamacpp import engine, machine
from autoscout.backends.llamacpp.export import export_files
from autoscout.backends.llamacpp.outcome import outcome
from autoscout.backends.llamacpp.space import build_space
from autoscout.backends.llamacpp.stages import INPUT, RESULT, STAGE
from autoscout.backends.llamacpp.workload import Workload, read_objective, read_workload, suggest
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.task import Budget, Task
from autoscout.core.trial import Measurement
from autoscout.space import Space

NOT_SETTINGS = ("weights", "omp_wait_policy")
"""Knobs that are no parameter of the engine: a model file, an environment variable."""

_PARTS = ("workload", "hardware", "software", "objective", "budget")


class LlamaCppBackend:
    """llama.cpp's server through the xllamacpp wheel: any GGUF model, or a random one that needs no download.

    `task` reads facts of the machine (cores, memory) unless they are given, the header of the model file, and the wheel's own
    defaults. Knobs that change what the model answers are offered only with `workload.allow_lossy`.
    """

    requires: ClassVar = ("xllamacpp", "gguf")
    extra: ClassVar = "llamacpp"

    def task(self, given: Mapping[str, object]) -> Task:
        faults: list[Fault] = []
        parts = _parts(given, faults)
        workload, found = read_workload(parts["workload"])
        objective, more = read_objective(parts["objective"])
        hardware = {**machine.detect(), **parts["hardware"]}
        faults += [*found, *more, *_hardware_faults(hardware)]
        if faults or workload is None:
            raise ConfigError(faults)
        build = engine.installed()
        own = {"xllamacpp": build.version, "openmp": build.openmp, "gpu_build": build.gpu}
        return Task(
            system="llamacpp",
            workload=workload.to_json(),
            hardware=hardware,
            software={**own, **parts["software"]},
            objective=objective,
            budget=Budget(**parts["budget"]),
        )

    def space(self, task: Task) -> Space:
        return build_space(Workload.from_json(task.workload), task.hardware, task.software, engine.installed().defaults)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Configurations that often do well, worth trying right after the default: a slot for every client."""
        space, workload = self.space(task), Workload.from_json(task.workload)
        slots = space.project({**space.default(), "parallel": workload.concurrency}, Config(parallel=workload.concurrency))
        return (slots,) if slots != space.default() else ()

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
    """What the engine is told; the context is that of one request times the slots."""
    slots = config["parallel"]
    assert isinstance(slots, int)
    return {"context": workload.context * slots, **{name: value for name, value in config.items() if name not in NOT_SETTINGS}}


def _weights(config: Config, workload: Workload) -> str:
    return str(config.get("weights", workload.facts.weights))


def _gpus(config: Config, task: Task) -> int:
    return int(task.hardware.get("gpus", 0)) if config.get("gpu_layers", 0) != 0 else 0


def _environment(config: Config) -> dict[str, str]:
    policy = config.get("omp_wait_policy", "default")
    return {} if policy == "default" else {"OMP_WAIT_POLICY": str(policy)}


def _parts(given: Mapping[str, object], faults: list[Fault]) -> dict[str, dict[str, Any]]:
    """The blocks of a task description; a campaign says `goal` for the objective."""
    blocks = {("objective" if name == "goal" else name): block for name, block in given.items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for name, block in blocks.items():
        if name == "system":
            continue
        if name not in _PARTS:
            faults.append(Fault(field=str(name), rule="unknown part of a task", fix=suggest(str(name), _PARTS)))
        elif name == "objective" and isinstance(block, str):
            found[name] = {"metric": block}
        elif block is not None and not isinstance(block, Mapping):
            faults.append(Fault(field=name, value=repr(block)[:80], rule="must be a mapping"))
        else:
            found[name] = dict(block or {})
    return found


def _hardware_faults(hardware: Mapping[str, Any]) -> list[Fault]:
    rules: dict[str, tuple[Any, int]] = {
        "cores": (int, 1),
        "physical_cores": (int, 1),
        "numa_nodes": (int, 1),
        "gpus": (int, 0),
        "lockable_gb": ((int, float), 0),
    }
    return [
        Fault(where="hardware", field=name, value=repr(hardware[name])[:80], rule=f"must be a number from {least} on")
        for name, (kind, least) in rules.items()
        if name in hardware and (isinstance(hardware[name], bool) or not isinstance(hardware[name], kind) or hardware[name] < least)
    ]
