"""Backend `command`: tunes any program, from a command template and a rule for reading the number it prints."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from autoscout.backends.command.check import check, missing
from autoscout.backends.command.driver import RESULT
from autoscout.backends.command.export import script
from autoscout.backends.command.files import mentioned, write_file
from autoscout.backends.command.goal import read_objective
from autoscout.backends.command.outcome import outcome
from autoscout.backends.command.sources import calculate
from autoscout.backends.command.template import Scope, plain
from autoscout.backends.command.vllm_bench import completed
from autoscout.backends.command.workload import IN_FOLDER, Command, Workload, fault, read_workload, try_workload
from autoscout.common.fields import read_blocks, refuse_if
from autoscout.common.templates import canonical
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement
from autoscout.space import Space
from autoscout.space.interchange.vllm_sweep import LABEL
from autoscout.space.yaml import read_space

PLAN = "autoscout-plan.json"
GRACE_S = 10.0  # what a server gets between the request to stop and the kill


class CommandBackend(Backend):
    """Any program: a command with {knob} slots, and a metric from JSON, a regular expression or the clock.

    The knobs come from outside: as a `Space`, as the `space:` block of a campaign, or with the task, as `workload.space`; the
    first two leave the task alone, so that a study may continue with a changed space. A task is refused when a slot names no knob, a
    knob is used nowhere, or a slot would stay empty because its knob is inactive.

    Args:
        space: The knobs, as a space or as the block that declares one; None when tasks bring them.
    """

    takes_space: ClassVar[bool] = True

    def __init__(self, space: Space | Mapping[str, Any] | None = None) -> None:
        self._space = space if isinstance(space, Space) else None
        self._block = space if isinstance(space, Mapping) else None
        self._read: dict[str, Workload] = {}  # by the text of the workload; both are caches and change nothing
        self._spaces: dict[str, Space] = {}

    @classmethod
    def example(cls) -> Mapping[str, object]:
        show = "import sys, json; print(json.dumps(dict(time_s=1 / int(sys.argv[1]), arguments=sys.argv[2:])))"
        command = [sys.executable, "-c", show, "{batch}", "{fast:flag}", ["--bucket", "{bucket_mb}"]]
        knobs = {
            "batch": {"values": [1, 2, 4], "help": "samples at once"},
            "fast": {"type": "bool", "help": "take the short cut"},
            "bucket_mb": {"range": [1, 64], "log": True, "when": "fast", "help": "size of the pieces"},
        }
        workload = {"command": command, "metrics": {"time_s": "json:time_s"}}
        return {"workload": workload, "objective": {"metric": "time_s"}, "space": {"knobs": knobs}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given, also=("space",))
        written = completed({name: value for name, value in blocks.workload.items() if name != "facts"})
        if given.get("space") is not None:
            written["space"] = given["space"]
        workload, wrong = try_workload(written)
        objective, workload, more = read_objective(blocks.objective, workload)
        faults = [*blocks.faults, *wrong, *more, *missing(workload)]
        facts = blocks.workload.get("facts") or {}
        if not isinstance(facts, Mapping):
            faults.append(fault("facts", "must be a mapping", facts))
            facts = {}
        task = Task(
            system="command",
            workload=workload.to_json(),
            hardware={**facts, **blocks.hardware},
            software=blocks.software,
            objective=objective,
            budget=blocks.budget,
        )
        space = self._known_space(task, workload)
        if space is not None and not mentioned(workload, {*space.knobs, "flags"}):
            workload = workload.with_flags()
            task = replace(task, workload=workload.to_json())
        if space is not None and workload.run.raw:
            faults += check(workload, space, _facts(task))
        refuse_if(faults)
        return task

    def load(self, task: Task) -> str:
        workload = self._workload(task)
        if workload.serve is None:
            return f"The program itself, started anew for every measurement: {workload.run.raw}"
        return f"A server started anew for every measurement, with a benchmark that runs on the same machine: {workload.run.raw}"

    def space(self, task: Task) -> Space:
        workload = self._workload(task)
        space = self._known_space(task, workload)
        if space is None:
            fix = "Add a `space:` block to the campaign, or build the backend with CommandBackend(space=Space([...]))"
            raise ConfigError(Fault(where="space", rule="the knobs of a command must be declared", fix=fix))
        refuse_if(check(workload, space, _facts(task)))
        return space

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        workload = self._workload(task)
        scope = self._scope(config, task, workload, seed)
        env = {name: text for name, template in workload.env.items() if (text := template.text_or_none(scope)) is not None}
        env = {"AUTOSCOUT_FOLDER": IN_FOLDER, "AUTOSCOUT_SEED": str(seed), **env}
        files = self._files(config, task, workload, scope)
        argv, shell = _argv(workload, scope), workload.run.line is not None
        if workload.driven:
            files[PLAN] = json.dumps(_plan(workload, scope, env), indent=2)
            argv, shell = (sys.executable, "-m", "autoscout.backends.command.driver", PLAN), False
        return Launch(
            argv=argv,
            shell=shell,
            files=files,
            env=env,
            resources=_resources(workload, scope),
            limit_s=workload.limit_s,
            outputs=(*workload.outputs, *((RESULT,) if workload.driven else ())),
            name=Names(self._knobs(config, task, workload)).name(config),
        )

    def lost_after_s(self, task: Task, to_beat: ToBeat) -> float | None:
        """The time to beat, where the wall time of the only run is what counts; a driver stops by itself."""
        workload = self._workload(task)
        source = workload.metrics.get(to_beat.metric)
        wall = source.wall if source is not None else to_beat.metric == "wall_s"
        if workload.driven or not wall or to_beat.value is None or to_beat.direction is not Direction.MINIMIZE:
            return None
        return to_beat.value / (source.scale if source is not None else 1.0)

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, self._workload(task))

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload = self._workload(task)
        scope = self._scope(config, task, workload, seed=0)
        files = self._files(config, task, workload, scope)
        if workload.serve is None:
            return {**files, "run.sh": script(workload, workload.run, scope)}
        return {**files, "run.sh": script(workload, workload.serve, scope), "bench_run.sh": script(workload, workload.run, scope)}

    def _workload(self, task: Task) -> Workload:
        text = canonical(task.workload)
        if text not in self._read:
            self._read[text] = read_workload(task.workload)
        return self._read[text]

    def _known_space(self, task: Task, workload: Workload) -> Space | None:
        block = workload.space if workload.space is not None else self._block
        if self._space is not None or block is None:
            return self._space
        text = canonical([block, _facts(task)])
        if text not in self._spaces:
            self._spaces[text] = read_space(block, _facts(task))
        return self._spaces[text]

    def _knobs(self, config: Config, task: Task, workload: Workload) -> tuple[str, ...]:
        """All knobs there are, also those that are inactive in `config`."""
        space = self._known_space(task, workload)
        return tuple(space.knobs) if space is not None else tuple(config)

    def _scope(self, config: Config, task: Task, workload: Workload, seed: int) -> Scope:
        space = self._known_space(task, workload)
        knobs = self._knobs(config, task, workload)
        used = mentioned(workload, knobs)
        facts = {**(space.facts if space is not None else {}), **_facts(task)}
        given = {name: value for name, value in config.items() if value is not None}  # null: the program's own default
        return Scope(values={**facts, "seed": seed, **given}, flags=tuple(name for name in knobs if name not in used and name != LABEL))

    def _files(self, config: Config, task: Task, workload: Workload, scope: Scope) -> dict[str, str]:
        known = {*self._knobs(config, task, workload), *scope.values}
        return {name: write_file(name, content, scope.values, known) for name, content in workload.files.items()}


def _facts(task: Task) -> dict[str, Value]:
    """What templates and constraints may read besides knobs: scalars of hardware and software, not the fields of the workload."""
    merged = {**task.software, **task.hardware}
    return {name: value for name, value in merged.items() if isinstance(value, (bool, int, float, str))}


def _argv(workload: Workload, scope: Scope) -> tuple[str, ...]:
    if workload.run.line is not None:
        line = workload.run.line.shell(scope)
        return (line if workload.cwd == IN_FOLDER else f"cd {shlex.quote(workload.cwd)} || exit 126\n{line}",)
    words = tuple(plain(word) for word in workload.run.words(scope))
    return words if workload.cwd == IN_FOLDER else ("/bin/sh", "-c", 'cd "$0" && exec "$@"', workload.cwd, *words)


def _plan(workload: Workload, scope: Scope, env: Mapping[str, str]) -> dict[str, Any]:
    """What the driver does, as data."""
    url = workload.health.url.text_or_none(scope) if workload.health.url else None
    return {
        "serve": _plain_command(workload.serve, scope) if workload.serve else None,
        "run": _plain_command(workload.run, scope),
        "repeats": workload.repeats,
        "warmups": workload.warmups,
        "cwd": "" if workload.cwd == IN_FOLDER else workload.cwd,
        "health_url": url or "",
        "health_log": workload.health.log.pattern if workload.health.log else "",
        "start_limit_s": workload.start_limit_s,
        "grace_s": GRACE_S,
        "outputs": list(workload.outputs),
        "metrics": workload.to_json().get("metrics", {}),
        "port_variables": [name for name, text in env.items() if "{port}" in text],
    }


def _plain_command(command: Command, scope: Scope) -> dict[str, Any]:
    if command.line is not None:
        return {"shell": command.line.shell(scope)}
    return {"argv": [plain(word) for word in command.words(scope)]}


def _resources(workload: Workload, scope: Scope) -> Resources:
    found: dict[str, Any] = {}
    for name, amount in workload.resources.given.items():
        try:
            number = calculate(amount, scope.values) if isinstance(amount, str) else amount
        except SpaceError:
            continue  # it reads a knob that has no value
        if number is not None:
            found[name] = number if name == "memory_gb" else int(number)
    return Resources(**found)


__all__ = ["CommandBackend"]
