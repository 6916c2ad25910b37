"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from autoscout.backends.llamacpp import engine, serve
from autoscout.backends.llamacpp.engine import LlamaCppBuild
from autoscout.backends.llamacpp.export import export_files, program_arguments
from autoscout.backends.llamacpp.flags import DRAFT_KINDS
from autoscout.backends.llamacpp.launch import read_launch
from autoscout.backends.llamacpp.model import RANDOM_MODELS, cache_folder, model_path
from autoscout.backends.llamacpp.outcome import SIGNS
from autoscout.backends.llamacpp.program import fitted, placement
from autoscout.backends.llamacpp.space import SERVER, build_space, fit_values
from autoscout.backends.llamacpp.workload import LlamaCppWorkload, read_workload, suited
from autoscout.catalog.hardware import hardware_faults
from autoscout.common.fields import read_blocks, read_objective, refuse_if
from autoscout.common.machine import lockable_gb, machine_memory_gb, numa_nodes, physical_cores, usable_cores
from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.protocols import Asked, Backend, once_per_task
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.core.user import UserLaunch
from autoscout.engines.table import plain
from autoscout.load.goals import description, goal_kind, slo_of
from autoscout.load.outcome import outcome
from autoscout.load.plan import COMMAND, METRICS, OUTPUTS, PLAN, TrialPlan
from autoscout.space import Space

NOT_SETTINGS = ("weights", "omp_wait_policy", "context_size")
"""Knobs that are no parameter of the engine by themselves: a model file, an environment variable, the rule for its context."""
LIBRARY_SLOTS = 1
FROM_MODEL = 0
"""The context size that means the model's own, for the engine and its `--ctx-size`."""
PREPARE = "autoscout.backends.llamacpp.prepare"
CHECK: Mapping[str, Any] = {"prompts": 6, "output_tokens": 1, "top": 40, "max_logprob_error": 0.0, "readable": True}
"""One token after each of a few prompts: on a processor longer answers take long, and its whole distribution is compared."""
METRICS_FLAG = "--metrics"  # a program that knows it counts what its guesses came to
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
    """llama.cpp's server, the xllamacpp wheel or a `llama-server` program: any GGUF model, or a random one that needs no download.

    `task` reads facts of the machine (cores, memory) unless they are given, the header of the model file, and the engine's own
    defaults. Knobs that change what the model answers are offered only with `workload.allow_lossy`.
    """

    requires: ClassVar = ("xllamacpp", "gguf")
    takes_traffic: ClassVar = True
    today: Mapping[str, Value] = MappingProxyType({})  # what the user runs, whose values need not be the usual ones
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
        build = engine.build_of(workload.command)
        refuse_if(_unfit(workload, build))
        if build.server and build.server.devices:
            hardware.setdefault("gpus", len(build.server.devices))
        own = _software(workload, build)
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

    def widened(self, task: Task, asked: Asked) -> Self:  # noqa: ARG002 - what the user runs is valid whatever the task
        wider = copy.copy(self)
        vars(wider).pop("_spaces_by_task", None)
        wider.today = {plain(name): value for name, value in asked.baseline.items()}
        return wider

    def read_launch(self, text: str, name: str) -> UserLaunch:
        return read_launch(text, name)

    def load(self, task: Task) -> str:
        workload = LlamaCppWorkload.from_json(task.workload)
        return description(workload, goal_kind(workload, task.objective))

    @once_per_task
    def space(self, task: Task) -> Space:
        workload = LlamaCppWorkload.from_json(task.workload)
        return build_space(workload, task.hardware, task.software, engine.build_of(workload.command), self.today)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Configurations worth measuring right after the default.

        What llama.cpp's own fitting chooses for this load, as a second baseline; the other of the two ways in which llama.cpp is started
        without settings, as a library (one slot) or as `llama-server` (four); a slot for every client, which often does well; and for a
        mixture of experts, all layers on the GPU with the experts in main memory.
        """
        space = self.space(task)
        configs = [space.project({**space.default(), **change}, change) for change in self._offered(space, task)]
        return tuple(config for config in dict.fromkeys(configs) if config != space.default())

    def hints_after(self, default: Measurement, task: Task) -> tuple[Config, ...]:
        """On a busy machine, threads that sleep while they wait: those that spin take the cores from the ones that they wait for.

        First that alone, then with each of the hints, which take many times as long without it.
        """
        if not default.is_disturbed:
            return ()
        space = self.space(task)
        sleep = Config(omp_wait_policy="passive") if "omp_wait_policy" in space.knobs else Config(poll=0)
        changes = [sleep, *(change.extend(**sleep) for change in self._offered(space, task))]
        return tuple(dict.fromkeys(space.project({**space.default(), **change}, change) for change in changes))

    def _offered(self, space: Space, task: Task) -> list[Config]:
        """What the hints change, as far as the space has it."""
        workload = LlamaCppWorkload.from_json(task.workload)
        fit = fit_values(placement(str(task.software.get("fit", ""))), workload.facts.layers)
        other = {"parallel": LIBRARY_SLOTS} if workload.engine_defaults == "llama-server" else SERVER
        changes = [Config(fit, **({"context_size": "load"} if fit and "context_size" in space.knobs else {})), Config(other)]
        changes += [Config(parallel=workload.concurrency), Config(gpu_layers="all", n_cpu_moe=workload.facts.layers)]
        return [
            change
            for change in changes
            if change and all(name in space.knobs and value in space.knobs[name] for name, value in change.items())
        ]

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
        build = engine.build_of(workload.command)
        return export_files(workload, _settings(config, workload), _weights(config, workload), _environment(config, workload), plan, build)

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
            "metrics_path": "/metrics" if METRICS_FLAG in server["serve"] else "",
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


def _unfit(workload: LlamaCppWorkload, build: LlamaCppBuild) -> list[Fault]:
    """What is asked of the engine that this build of it cannot do."""
    where, faults = "workload", []
    if workload.engine_args and not build.server:
        rule, fix = "are flags of the llama-server program, and the wheel has none", "Give the program: server=/path/llama-server"
        faults.append(Fault(where=where, field="engine_args", rule=rule, fix=fix))
    elif build.server:
        flags = {plain(name) for name in build.server.flags if name.startswith("--")}
        rule = f"llama-server {build.version} has no such flag"
        faults += [
            Fault(where=where, field=f"engine_args.{name}", rule=rule, fix=suggestion(plain(name), flags))
            for name in workload.engine_args
            if plain(name) not in flags
        ]
    if workload.draft_model and not any(kind.startswith("draft") for kind in build.speculation):
        rule = "this build of llama.cpp has no speculative decoding with a model"
        faults.append(Fault(where=where, field="draft_model", value=repr(workload.draft_model), rule=rule))
    return faults


def _software(workload: LlamaCppWorkload, build: LlamaCppBuild) -> dict[str, Any]:
    """What is measured, and what its own fitting chooses for the load, where there is a GPU to fit it to."""
    name = "llama_server" if build.server else "xllamacpp"
    facts = {name: build.version, "openmp": build.openmp, "gpu_build": build.gpu}
    is_file = workload.model not in RANDOM_MODELS
    fit = fitted(workload.command, workload.model, workload.context * engine.SERVER_SLOTS) if build.gpu and build.server and is_file else ""
    return {**facts, **({"fit": fit} if fit else {})}


def _server(config: Config, workload: LlamaCppWorkload) -> dict[str, Any]:
    """How the server is started with a configuration: the program that is handed over."""
    weights, folder = _weights(config, workload), cache_folder(workload.cache_dir)
    path = str(model_path(workload.model, workload.facts, weights, folder))
    build, settings = engine.build_of(workload.command), _settings(config, workload)
    arguments = ("-m", PREPARE, workload.model, weights, str(folder), workload.facts.fingerprint)
    address = ("--host", "127.0.0.1", "--port", "{port}")
    text = json.dumps({"model_path": path, **settings}, sort_keys=True)
    own_program = (*workload.command, "--model", path, *program_arguments(settings, workload, build))
    serve_words = own_program if workload.command else (sys.executable, serve.__file__, text)
    counts = bool(workload.command and build.server and METRICS_FLAG in build.server.flags)
    serve_words += (METRICS_FLAG,) if counts and METRICS_FLAG not in own_program else ()
    return {
        "prepare": (sys.executable, *arguments),
        "serve": (*serve_words, *address),
        "env": {"GGML_NO_BACKTRACE": "1", "LLAMA_API_KEY": "", **_environment(config, workload)},
    }


def _settings(config: Config, workload: LlamaCppWorkload) -> dict[str, Value]:
    """What the engine is told; the context is the model's own, or that of one request times the slots."""
    slots = config["parallel"]
    assert isinstance(slots, int)
    context = FROM_MODEL if config.get("context_size") == "model" else workload.context * slots
    guesses = str(config.get("spec_type", "")) in DRAFT_KINDS and workload.draft_model
    draft = {"draft_model": workload.draft_model} if guesses else {}
    return {"context": context, **{name: value for name, value in config.items() if name not in NOT_SETTINGS}, **draft}


def _weights(config: Config, workload: LlamaCppWorkload) -> str:
    return str(config.get("weights", workload.facts.weights))


def _gpus(config: Config, task: Task) -> int:
    return int(task.hardware.get("gpus", 0)) if config.get("gpu_layers", 0) != 0 else 0


def _environment(config: Config, workload: LlamaCppWorkload) -> dict[str, str]:
    policy = config.get("omp_wait_policy", "default")
    return {**workload.env, **({} if policy == "default" else {"OMP_WAIT_POLICY": str(policy)})}
