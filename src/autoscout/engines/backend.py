"""The backend of an engine: task, space, launch, outcome, hand-over. `vllm` and `sglang` give it an `Engine`."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

from autoscout.catalog.hardware import NODE_GPUS, chip_family, counted_gpus, gpu_memory, hardware_faults, present_hardware
from autoscout.common.fields import read_blocks, read_objective, refuse_if
from autoscout.common.machine import usable_cores
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.log import NOTICES, logger
from autoscout.core.names import Names
from autoscout.core.protocols import Asked, Backend, once_per_task
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.core.user import UserLaunch
from autoscout.engines import command
from autoscout.engines.command import as_listed
from autoscout.engines.deploy import EngineDeployment
from autoscout.engines.engine import Engine, missing_flags
from autoscout.engines.export import export_files
from autoscout.engines.hints import hints_for
from autoscout.engines.launches import read_launch
from autoscout.engines.model import draft_kind
from autoscout.engines.space import ALL, broken, build_space, resting, unconditional
from autoscout.engines.table import EngineTable, KnobRow, plain, table_for
from autoscout.engines.widening import KNOB_KEYS, Widening, carried_knobs, consent_of, uncarried
from autoscout.engines.workload import (
    EngineWorkload,
    check_names,
    facts_of,
    read_workload,
)
from autoscout.load.goals import description, fill, goal_kind, slo_of, usual_metric
from autoscout.load.outcome import outcome
from autoscout.load.plan import COMMAND, METRICS, MIXED, OUTPUTS, PLAN, Load, TrialPlan
from autoscout.load.text import title
from autoscout.space import Space

ROOM = 0.88  # share of GPU memory that weights may take when a number of GPUs is chosen for a model; the rest is for the cache
GB_PER_GIB = 2**30 / 1e9
SIZES = (1, 2, 4, 8, 16, 32, 64)
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size", "pp_size", "dp_size")
"""Knobs whose product is the number of GPUs, in the words of all engines."""
MARGIN_S = 120.0  # for stopping, on top of the limits for starting and for the load

notices = logger(NOTICES)


def hardware_of(description: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """The facts that were given, filled up with those of this machine where they speak of it, and all that is wrong with them."""
    facts = counted_gpus(description)
    if "gpu" not in facts:  # another kind was named: this machine's GPUs say nothing about it
        facts = {**present_hardware(), **facts}
    facts.setdefault("gpus", 1)
    facts.setdefault("cores", usable_cores())
    unknown: list[Fault] = []
    if not facts.get("gpu_memory_gb"):
        memory_gb, faults = gpu_memory(facts)
        facts |= {"gpu_memory_gb": memory_gb} if memory_gb else {}
        unknown = [replace(fault, fix=f"Defaults depend on its memory: give gpu_memory_gb. {fault.fix}") for fault in faults]
    return facts, [*hardware_faults(facts), *unknown]


class EngineBackend(Backend):
    """An inference engine with an OpenAI API: started, loaded and stopped for every trial.

    `task` looks at the GPUs of this machine unless they are named, at the model's folder, and at the engine's version. Knobs that seldom
    matter, and those that change the answers, stay as the engine has them unless the workload frees them (`free`, `allow_lossy`).
    """

    engine: ClassVar[Engine]
    takes_traffic: ClassVar = True
    knob_keys: ClassVar = KNOB_KEYS
    rows: Mapping[str, KnobRow] = MappingProxyType({})  # knobs that a campaign has added or given more values
    own_choice: Mapping[str, Value] = MappingProxyType({})  # values of the baseline that change answers: they hold in every configuration
    fixed: Mapping[str, Value] = MappingProxyType({})  # all that holds in every configuration
    waived: Collection[str] = ()  # rules that what the user runs today does not keep, and that the engine does not have
    compares: bool = False  # whether a campaign names values that change answers

    @classmethod
    def example(cls) -> Mapping[str, object]:
        command = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]  # speaks the API and computes nothing
        load = {"input_tokens": 32, "output_tokens": 8, "concurrency": 4, "requests": 16}
        return {"workload": {"model": "llama-3.1-8b", "engine_command": command, **load}, "hardware": {"gpus": 0, "cores": 2}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        workload, facts, wrong = read_workload(blocks.workload)
        hardware, unfit = hardware_of(blocks.hardware)
        limits = bool(blocks.objective.get("limits") or blocks.objective.get("slo"))
        usual = usual_metric(workload, limits) if workload is not None else METRICS[0]
        objective, more = read_objective(blocks.objective, metrics=METRICS, default=usual)
        faults = [*blocks.faults, *wrong, *unfit]
        refuse_if([*faults, *more] if faults else [])  # whose names are wrong is known only of a workload and a machine that are right
        assert workload is not None
        workload = fill(workload, objective)
        if not facts.vocab:
            rule = "nothing is known of the model %s: no predictions, prompts from a small vocabulary; `hf download %s config.json` helps"
            notices.warning(rule, workload.model, workload.model)
        software = {**self._software(workload, blocks.software), **blocks.software}
        task = Task(
            system=self.engine.name,
            workload=workload.to_json(facts),
            hardware=hardware,
            software=software,
            objective=objective,
            budget=blocks.budget,
        )
        refuse_if([*more, *check_names(workload, self.table(task), self.space(task).knobs)])
        self.plan(self.space(task).default(), task, seed=0)
        return task

    def read_launch(self, text: str, name: str) -> UserLaunch:
        return read_launch(self.engine, text, name)

    def _software(self, workload: EngineWorkload, description: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's version, and the flags of its table that it does not know."""
        name = self.engine.name
        if description.get(name):
            return {name: str(description[name])}
        start = self.engine.command(workload.engine_command)
        version = workload.engine_version or self.engine.installed()
        if not version:
            version = table_for(name, "").version
            if shutil.which(start[0]) is not None:
                rule = "no version of %s is installed next to AutoScout: taken to be %s; -w engine_version=... says another"
                notices.warning(rule, self.engine.title, version)
        missing = missing_flags(self.engine, version, start)
        return {name: version, **({"missing_flags": ",".join(sorted(missing))} if missing else {})}

    def table(self, task: Task) -> EngineTable:
        """The table of the task's version of the engine, less what that does not know."""
        missing = frozenset(filter(None, str(task.software.get("missing_flags", "")).split(",")))
        return (
            table_for(self.engine.name, str(task.software[self.engine.name]), missing)
            .with_knobs(self.rows.values())
            .without_rules(self.waived)
        )

    def widened(self, task: Task, asked: Asked) -> Self:
        workload = EngineWorkload.from_json(task.workload)
        reader = Widening(
            table=self.table(task),
            offered={name: knob.values for name, knob in self.space(task).knobs.items()},
            own=self._defaults(task),
            facts=self._facts(task),
            variables=workload.env,
            consent=consent_of(workload.free, workload.allow_lossy),
        )
        pinned = {plain(name): value for name, value in asked.pinned.items()}
        carried = carried_knobs(workload.engine_args, self.table(task), pinned)
        free: dict[str, Any] = {str(name): {} for name in workload.free if name not in self.space(task).knobs and name != ALL}
        reader.read(replace(asked, knobs={**free, **asked.knobs}), carried)
        refuse_if(reader.faults)
        wider = copy.copy(self)
        vars(wider).pop("_spaces_by_task", None)
        wider.rows, wider.own_choice, wider.compares = reader.rows, {**carried, **reader.lossy}, reader.is_lossy
        wider.fixed = {**wider.own_choice, **pinned}
        if asked.baseline:
            baseline = {plain(name): value for name, value in asked.baseline.items()}
            values = {**self._facts(task), **self.space(task).default(), **baseline, **pinned}
            wider.waived = broken(wider.table(task), values)
            wider.rows = {**reader.rows, **unconditional(reader.rows, baseline, values)}
        wider._tell_text(workload, task)
        return wider

    def _tell_text(self, workload: EngineWorkload, task: Task) -> None:
        """Say that prompts are text where nobody asked for that, because it changes what is measured."""
        if self._with_text(workload, task).text != workload.text:
            rule = "speculative decoding is measured on text: prompts are cut from %s; -w text=FILE takes your own, text=none random tokens"
            notices.warning(rule, title(MIXED))

    def pinned(self, task: Task) -> Mapping[str, Value]:  # noqa: ARG002 - read from the task when the space was widened
        return self.own_choice

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(self.table(task), self._facts(task), self._defaults(task))

    def resting(self, task: Task) -> tuple[str, ...]:
        """Knobs that a study leaves at their default unless they are set."""
        workload = EngineWorkload.from_json(task.workload)
        free = tuple(map(str, workload.free))
        facts, lossy = self._facts(task), workload.allow_lossy
        return resting(self.table(task), self.space(task), facts, free=free, allow_lossy=lossy, named=self.rows.keys())

    def _facts(self, task: Task) -> dict[str, Value]:
        """What knobs and rules may read; what is not known is left out."""
        model, workload = facts_of(task.workload), EngineWorkload.from_json(task.workload)
        model_facts: dict[str, Value] = {
            "heads": model.heads,
            "layers": model.layers,
            "vocab": model.vocab,
            "max_model_len": workload.max_model_len or model.max_len,
        }
        always: dict[str, Value] = {
            "gpus": int(task.hardware["gpus"]),
            "cores": int(task.hardware["cores"]),
            "gpu_memory_gb": float(task.hardware.get("gpu_memory_gb") or 0.0),
            "gpu": str(task.hardware.get("gpu", "")),
            "experts": model.experts,
            "quantized": model.quantized,
            "latent": model.latent,
            "hybrid": model.hybrid,
            "encoder": model.encoder,
            "draft_layers": model.draft_layers,
            "draft": draft_kind(workload.draft),
            "chip": chip_family(str(task.hardware.get("gpu", ""))),
            "weights_gb": model.weights_gb,
        }
        return {**always, **{name: value for name, value in model_facts.items() if value}}

    def _own(self, task: Task) -> dict[str, Value]:
        """What the engine does when a flag is left out, in the environment that the workload gives it."""
        env = EngineWorkload.from_json(task.workload).env
        variables = {row.name: as_listed(env[row.env], row) for row in self.table(task).knobs.values() if row.env in env}
        return {**self.engine.own(self._facts(task), str(task.software[self.engine.name])), **variables}

    def _defaults(self, task: Task) -> dict[str, Value]:
        """The engine's own values; a model too large for one GPU is spread over as few as hold it, because one would not start."""
        own, facts = self._own(task), self._facts(task)
        (name, engine_own) = next(item for item in own.items() if item[0] in ("tensor_parallel_size", "tp_size"))
        room, heads = ROOM * float(facts["gpu_memory_gb"] or 0.0), int(facts.get("heads") or 0)
        need, most = float(facts["weights_gb"] or 0.0) / GB_PER_GIB, int(facts["gpus"] or 0)
        sizes = [size for size in SIZES if size <= most and (not heads or heads % size == 0)]
        fits = [size for size in sizes if size * room >= need]
        return {**own, name: (fits or sizes[-1:])[0] if room and sizes else engine_own}

    def load(self, task: Task) -> str:
        workload = EngineWorkload.from_json(task.workload)
        return description(self._with_text(workload, task), goal_kind(workload, task.objective))

    def _with_text(self, workload: EngineWorkload, task: Task) -> EngineWorkload:
        """The load with prompts of text where tokens are guessed: what follows random tokens cannot be."""
        is_open = workload.may_take_text and facts_of(task.workload).tokenizer
        return workload.model_copy(update={"text": MIXED}) if is_open and any(self._speculation(task)) else workload

    def _speculation(self, task: Task) -> tuple[bool, bool]:
        """Whether tokens are guessed in every configuration, and whether that is searched."""
        rows = [row for row in self.table(task).knobs.values() if row.speculates and row.name in self.space(task).knobs]
        always = any(self.fixed.get(row.name, row.left_out) != row.left_out for row in rows)
        names = {row.name for row in rows} - self.fixed.keys()
        return always, bool(names - set(self.resting(task)) or names & self.rows.keys())

    def hints(self, task: Task) -> tuple[Config, ...]:
        return hints_for(self.space(task), task, self.table(task), self.resting(task))

    def settings(self, config: Config, task: Task) -> command.Settings:
        """What the engine is told besides the model, host and port."""
        workload, facts, table = EngineWorkload.from_json(task.workload), facts_of(task.workload), self.table(task)
        settings = uncarried(workload.engine_args, table, config)
        if workload.max_model_len:
            settings[self.engine.length] = workload.max_model_len
        if facts.dummy:
            settings["load_format"] = "dummy"
        if not facts.tokenizer:
            settings |= self.engine.no_tokenizer
        command.lay_over(settings, command.settings(config, table, self._own(task)))
        if (nodes := nodes_of(config, task)) > 1:
            settings["nnodes"] = nodes
        self.engine.finish(settings, workload.draft_model, draft_kind(workload.draft_model))
        return settings

    def serve(self, config: Config, task: Task) -> tuple[str, ...]:
        """The command line of the server; `{port}` stands for its port."""
        workload, table = EngineWorkload.from_json(task.workload), self.table(task)
        line = command.words(self.settings(config, task), table)
        start = self.engine.command(tuple(map(str, workload.engine_command)))
        words = [word for word in self.engine.told if word not in line]
        return (*start, *self.engine.model, workload.model, *line, *words, "--host", "127.0.0.1", "--port", "{port}")

    def env(self, config: Config, task: Task) -> dict[str, str]:
        """The variables of the engine's environment."""
        knobs = command.variables(config, self.table(task), self._own(task))
        return {**self.engine.env, **EngineWorkload.from_json(task.workload).env, **knobs}

    def _default(self, task: Task) -> Config:
        """The engine's default with what holds in every configuration: the answers that are right."""
        space = self.space(task)
        knobs = ((space.knobs[name], value) for name, value in self.fixed.items() if name in space.knobs)
        fixed = Config({knob.name: value if knob.position(value) is not None else knob.parse(str(value)) for knob, value in knobs})
        return space.project({**space.default(), **fixed}, fixed) if fixed else space.default()

    def plan(self, config: Config, task: Task, seed: int) -> TrialPlan:
        """The trial that measures a configuration.

        Raises:
            ConfigError: load and goal do not fit each other.
        """
        workload, facts = EngineWorkload.from_json(task.workload), facts_of(task.workload)
        env, load = self.env(config, task), {**task.workload, "text": self._with_text(workload, task).text}
        room = workload.max_model_len or facts.max_len
        goal = {
            "kind": goal_kind(workload, task.objective),
            "metric": task.objective.metric,
            "slo": slo_of(task.objective),
            "search_limit_s": workload.search_limit_s,
        }
        check: dict[str, Any] = {"max_logprob_error": workload.max_logprob_error}
        if self._compares(workload, task):
            default = self._default(task)
            serve, usual = self.serve(default, task), self.env(default, task)
            identity = json.dumps([serve, usual, dict(task.software), facts.weights_gb], sort_keys=True)
            check["reference"] = {"key": hashlib.sha256(identity.encode()).hexdigest()[:16], "serve": serve, "env": usual}
        data = {
            "serve": self.serve(config, task),
            "env": env,
            "model": workload.model,
            **({"vocab_size": facts.vocab} if facts.vocab else {}),
            "tokenizer": workload.model,
            "load": {"context": room, **{name: value for name, value in load.items() if name in Load.model_fields}},
            "goal": goal,
            "check": check,
            "seed": seed,
            "start_limit_s": workload.start_limit_s,
            "limit_s": workload.limit_s,
        }
        return TrialPlan.of(data, "workload")

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        workload = EngineWorkload.from_json(task.workload)
        return Launch(
            argv=COMMAND,
            files={PLAN: self.plan(config, task, seed).text()},
            resources=Resources(cpus=int(task.hardware["cores"]), gpus=gpus_of(config, task)),
            limit_s=workload.start_limit_s * (2 if self._compares(workload, task) else 1) + workload.limit_s + MARGIN_S,
            outputs=OUTPUTS,
            name=Names(self.space(task).knobs).changed(config, self.space(task).default()),
        )

    def _compares(self, workload: EngineWorkload, task: Task) -> bool:
        """Whether knobs that change the answers, or should not and might, may be searched: answers are compared with the default's."""
        knobs = self.table(task).knobs
        if self._speculation(task)[1]:
            return True
        return self.compares or workload.allow_lossy or any(knobs[str(name)].lossy for name in workload.free if name in knobs)

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002 - whoever calls it looks for the goals
        return outcome(completed)

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        deployment = EngineDeployment(
            engine=self.engine,
            version=str(task.software[self.engine.name]).split("+")[0],
            command=self.engine.command(tuple(map(str, task.workload.get("engine_command", ())))),
            model=str(task.workload["model"]),
            settings=self.settings(config, task),
            table=self.table(task),
            env=self.env(config, task),
            gpus=gpus_of(config, task),
            nodes=nodes_of(config, task),
            draft_model=str(task.workload.get("draft_model", "")),
            weights_gb=facts_of(task.workload).weights_gb,
            cores=int(task.hardware["cores"]),
        )
        return export_files(deployment, self.plan(config, task, seed=0).text())


def gpus_of(config: Config, task: Task) -> int:
    """GPUs that a configuration takes; none on a machine without."""
    if not int(task.hardware["gpus"]):
        return 0
    sizes = [config.get(name) for name in PARALLEL]
    return math.prod(size for size in sizes if isinstance(size, int))


def nodes_of(config: Config, task: Task) -> int:
    """Machines that a configuration takes."""
    return -(-max(1, gpus_of(config, task)) // int(task.hardware.get("node_gpus") or NODE_GPUS))


__all__ = ["EngineBackend", "gpus_of", "nodes_of"]
