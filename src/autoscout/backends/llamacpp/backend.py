"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.llamacpp import engine, serve
from autoscout.backends.llamacpp.export import export_files
from autoscout.backends.llamacpp.model import cache_folder, model_path
from autoscout.backends.llamacpp.outcome import SIGNS
from autoscout.backends.llamacpp.space import SERVER, build_space
from autoscout.backends.llamacpp.workload import LlamaCppWorkload, read_workload, suited
from autoscout.catalog.hardware import hardware_faults
from autoscout.common.fields import read_blocks, read_objective, refuse_if
from autoscout.common.machine import lockable_gb, machine_memory_gb, numa_nodes, physical_cores, usable_cores
from autoscout.core.config import Config, Value
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.protocols import Backend, once_per_task
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.load.goals import description, goal_kind, slo_of
from autoscout.load.outcome import outcome
from autoscout.load.plan import COMMAND, METRICS, OUTPUTS, PLAN, TrialPlan
from autoscout.space import Space

NOT_SETTINGS = ("weights", "omp_wait_policy", "context_size")
"""Knobs that are no parameter of the engine by themselves: a model file, an environment variable, the rule for its context."""
FROM_MODEL = 0
"""The context size that means the model's own, for the engine and its `--ctx-size`."""
PREPARE = "autoscout.backends.llamacpp.prepare"
CHECK: Mapping[str, Any] = {"prompts": 6, "output_tokens": 1, "top": 40, "max_logprob_error": 0.0, "readable": True}
"""One token after each of a few prompts: on a processor longer answers take long, and its whole distribution is compared."""
CHECK_TOKENS = 24  # of these prompts


def hardware_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of this machine that decide which settings make sense, and those that were given in their place."""
    return {
        "cores": usable_cores(),
        "physical_cores": physical_cores(),
        "memory_gb": round(machine_memory_gb(), 1),
        "lockable_gb": round(lockable_gb(), 3),
        "pinnable": hasattr(os, "sched_getaffinity"),
        "numa_nodes": numa_nodes(),
        **description,
    }


class LlamaCppBackend(Backend):
    """llama.cpp's server through the xllamacpp wheel: any GGUF model, or a random one that needs no download.

    `task` reads facts of the machine (cores, memory) unless they are given, the header of the model file, and the wheel's own
    defaults. Knobs that change what the model answers are offered only with `workload.allow_lossy`.
    """

    requires: ClassVar = ("xllamacpp", "gguf")
    extra: ClassVar = "llamacpp"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        load = {"input_tokens": 16, "output_tokens": 8, "concurrency": 2, "repeats": 1}
        return {"workload": {"model": "random-tiny", **load}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        workload, faults = read_workload(blocks.workload)
        usual = workload.usual_metric(bool(blocks.objective.get("limits") or blocks.objective.get("slo")))
        objective, more = read_objective(blocks.objective, metrics=METRICS, default=usual)
        hardware = hardware_of(blocks.hardware)
        refuse_if([*blocks.faults, *faults, *more, *hardware_faults(hardware)])
        build = engine.installed()
        own = {"xllamacpp": build.version, "openmp": build.openmp, "gpu_build": build.gpu}
        task = Task(
            system="llamacpp",
            workload=suited(workload, objective).to_json(),
            hardware=hardware,
            software={**own, **blocks.software},
            objective=objective,
            budget=blocks.budget,
        )
        self.plan(self.space(task).default(), task, seed=0)
        return task

    def load(self, task: Task) -> str:
        workload = LlamaCppWorkload.from_json(task.workload)
        return description(workload, goal_kind(workload, task.objective))

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(LlamaCppWorkload.from_json(task.workload), task.hardware, task.software, engine.installed().defaults)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Configurations worth measuring right after the default.

        The other of the two ways in which llama.cpp is started without settings, as a library (one slot) or as `llama-server` (four), and
        a slot for every client, which often does well.
        """
        space, workload = self.space(task), LlamaCppWorkload.from_json(task.workload)
        library = {"parallel": engine.installed().defaults["parallel"]}
        other = library if workload.engine_defaults == "llama-server" else SERVER
        changes = [Config(other), Config(parallel=workload.concurrency)]
        offered = [change for change in changes if change["parallel"] in space.knobs["parallel"]]
        configs = [space.project({**space.default(), **change}, change) for change in offered]
        return tuple(config for config in dict.fromkeys(configs) if config != space.default())

    def hints_after(self, default: Measurement, task: Task) -> tuple[Config, ...]:
        """On a busy machine, threads that sleep while they wait: those that spin take the cores from the ones that they wait for."""
        space = self.space(task)
        change = Config(omp_wait_policy="passive") if "omp_wait_policy" in space.knobs else Config(poll=0)
        return (space.project({**space.default(), **change}, change),) if default.is_disturbed else ()

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        workload = LlamaCppWorkload.from_json(task.workload)
        return Launch(
            argv=COMMAND,
            files={PLAN: self.plan(config, task, seed).text()},
            resources=Resources(cpus=int(task.hardware["cores"]), gpus=_gpus(config, task), memory_gb=workload.memory_gb or None),
            limit_s=workload.limit_s,
            outputs=OUTPUTS,
            name=Names(self.space(task).knobs).name(config),
        )

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002 - whoever calls it looks for the goals
        return outcome(completed, SIGNS)

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload = LlamaCppWorkload.from_json(task.workload)
        plan = self.plan(config, task, seed=0).text()
        return export_files(workload, _settings(config, workload), _weights(config, workload), _environment(config), plan)

    def plan(self, config: Config, task: Task, seed: int) -> TrialPlan:
        """The trial that measures a configuration.

        Raises:
            ConfigError: load and goal do not fit each other.
        """
        workload = LlamaCppWorkload.from_json(task.workload)
        server, default = _server(config, workload), _server(self.space(task).default(), workload)
        key = hashlib.sha256(json.dumps([workload.facts.fingerprint, dict(task.software), default], sort_keys=True).encode()).hexdigest()
        data = {
            **server,
            "model": workload.model,
            **({"vocab_size": workload.facts.vocab} if workload.facts.vocab else {}),
            "request": {"cache_prompt": False} if workload.has_fresh_prompts else {},
            "keep_alive": False,
            "metrics_path": "",
            "load": workload.load.model_dump(),
            "goal": {
                "kind": goal_kind(workload, task.objective),
                "metric": task.objective.metric,
                "slo": slo_of(task.objective),
                "search_limit_s": workload.search_limit_s,
            },
            "check": {
                **CHECK,
                "uncached": workload.has_fresh_prompts,
                "input_tokens": min(CHECK_TOKENS, workload.context - 2),
                "max_divergence": workload.max_divergence,
                "reference": {**default, "key": key[:16], "folder": str(cache_folder(workload.cache_dir))},
            },
            "seed": seed,
            "start_limit_s": workload.limit_s,
            "limit_s": workload.limit_s,
            "stall_s": workload.limit_s,
        }
        return TrialPlan.of(data, "workload")


def _server(config: Config, workload: LlamaCppWorkload) -> dict[str, Any]:
    """How the server is started with a configuration: the program that is handed over."""
    weights, folder = _weights(config, workload), cache_folder(workload.cache_dir)
    path = str(model_path(workload.model, workload.facts, weights, folder))
    settings = json.dumps({"model_path": path, **_settings(config, workload)}, sort_keys=True)
    arguments = ("-m", PREPARE, workload.model, weights, str(folder), workload.facts.fingerprint)
    return {
        "prepare": (sys.executable, *arguments),
        "serve": (sys.executable, serve.__file__, settings, "--host", "127.0.0.1", "--port", "{port}"),
        "env": {"GGML_NO_BACKTRACE": "1", "LLAMA_API_KEY": "", **_environment(config)},
    }


def _settings(config: Config, workload: LlamaCppWorkload) -> dict[str, Value]:
    """What the engine is told; the context is the model's own, or that of one request times the slots."""
    slots = config["parallel"]
    assert isinstance(slots, int)
    context = FROM_MODEL if config.get("context_size") == "model" else workload.context * slots
    return {"context": context, **{name: value for name, value in config.items() if name not in NOT_SETTINGS}}


def _weights(config: Config, workload: LlamaCppWorkload) -> str:
    return str(config.get("weights", workload.facts.weights))


def _gpus(config: Config, task: Task) -> int:
    return int(task.hardware.get("gpus", 0)) if config.get("gpu_layers", 0) != 0 else 0


def _environment(config: Config) -> dict[str, str]:
    policy = config.get("omp_wait_policy", "default")
    return {} if policy == "default" else {"OMP_WAIT_POLICY": str(policy)}
