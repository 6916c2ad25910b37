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
from autoscout.backends.command.files import mentioned, write_file
from autoscout.backends.command.outcome import outcome
from autoscout.backends.command.sources import calculate
from autoscout.backends.command.workload import IN_FOLDER, Command, CommandWorkload, read_workload, try_workload
from autoscout.commands.check import fault
from autoscout.commands.nodes import node_variables, slurm_script
from autoscout.commands.template import RUNTIME, Piece, Scope, plain, quoted
from autoscout.common import fields
from autoscout.common.fields import read_blocks, refuse_if
from autoscout.common.templates import canonical
from autoscout.common.text import nearest
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.names import Names
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement
from autoscout.space import Space
from autoscout.space.interchange.vllm_sweep import LABEL
from autoscout.space.yaml import read_space

PLAN = "autoscout-plan.json"
GRACE_S = 10.0  # what a server gets between the request to stop and the kill
COMMON_METRICS = ("wall_s", "peak_mem_gib")
"""Metrics that every command has."""
SERVER_PORT = 8000
"""Where a server listens when the caller does not set PORT."""
VLLM_BENCH = ["vllm", "bench", "serve"]
SAVE_FLAGS = "--save-result --result-dir {folder} --result-filename bench.json"
PERCENTILE_FLAGS = "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99"
BENCH_METRICS = {"*": {"json": "", "file": "bench.json"}}
HEALTH_URL = "http://127.0.0.1:{port}/health"


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
        self._read: dict[str, CommandWorkload] = {}  # by the text of the workload; both are caches and change nothing
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
        written = with_saved_result({name: value for name, value in blocks.workload.items() if name != "facts"})
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
        kind = "The program itself" if workload.serve is None else "A server with a benchmark on the same machine"
        lines = workload.run.raw if isinstance(workload.run.raw, str) else shlex.join(map(str, workload.run.raw))
        said = f": {lines.strip()}" if "\n" not in lines.strip() else ""  # a script is shown with what may be run
        return f"{kind}, started anew for every measurement{said}"

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
        if workload.has_driver:
            files[PLAN] = json.dumps(_plan(workload, scope, env), indent=2)
            argv, shell = (sys.executable, "-m", "autoscout.backends.command.driver", PLAN), False
        return Launch(
            argv=argv,
            shell=shell,
            files=files,
            env=env,
            resources=_resources(workload, scope),
            limit_s=workload.limit_s,
            outputs=(*workload.outputs, *((RESULT,) if workload.has_driver else ())),
            name=Names(self._knobs(config, task, workload)).name(config),
        )

    def lost_after_s(self, task: Task, to_beat: ToBeat) -> float | None:
        """The time to beat, where the wall time of the only run is what counts; a driver stops by itself."""
        workload = self._workload(task)
        source = workload.metrics.get(to_beat.metric)
        wall = source.wall if source is not None else to_beat.metric == "wall_s"
        if workload.has_driver or not wall or to_beat.value is None or to_beat.direction is not Direction.MINIMIZE:
            return None
        return to_beat.value / (source.scale if source is not None else 1.0)

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, self._workload(task))

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload = self._workload(task)
        scope = self._scope(config, task, workload, seed=0)
        files = self._files(config, task, workload, scope)
        if workload.serve is None:
            used = _resources(workload, scope)
            job = {"run.sbatch": slurm_script(used.nodes, used.cpus, used.gpus)} if used.nodes > 1 else {}
            return {**files, **job, "run.sh": run_script(workload, workload.run, scope)}
        return {**files, "run.sh": run_script(workload, workload.serve, scope), "bench_run.sh": run_script(workload, workload.run, scope)}

    def _workload(self, task: Task) -> CommandWorkload:
        text = canonical(task.workload)
        if text not in self._read:
            self._read[text] = read_workload(task.workload)
        return self._read[text]

    def _known_space(self, task: Task, workload: CommandWorkload) -> Space | None:
        block = workload.space if workload.space is not None else self._block
        if self._space is not None or block is None:
            return self._space
        text = canonical([block, _facts(task)])
        if text not in self._spaces:
            self._spaces[text] = read_space(block, _facts(task))
        return self._spaces[text]

    def _knobs(self, config: Config, task: Task, workload: CommandWorkload) -> tuple[str, ...]:
        """All knobs there are, also those that are inactive in `config`."""
        space = self._known_space(task, workload)
        return tuple(space.knobs) if space is not None else tuple(config)

    def _scope(self, config: Config, task: Task, workload: CommandWorkload, seed: int) -> Scope:
        space = self._known_space(task, workload)
        knobs = self._knobs(config, task, workload)
        used = mentioned(workload, knobs)
        facts = {**(space.facts if space is not None else {}), **_facts(task)}
        values = {name: value for name, value in config.items() if value is not None}  # null: the program's own default
        return Scope(values={**facts, "seed": seed, **values}, flags=tuple(name for name in knobs if name not in used and name != LABEL))

    def _files(self, config: Config, task: Task, workload: CommandWorkload, scope: Scope) -> dict[str, str]:
        names = {*self._knobs(config, task, workload), *scope.values}
        return {name: write_file(name, content, scope.values, names) for name, content in workload.files.items()}


def _facts(task: Task) -> dict[str, Value]:
    """What templates and constraints may read besides knobs: scalars of hardware and software, not the fields of the workload."""
    merged = {**task.software, **task.hardware}
    return {name: value for name, value in merged.items() if isinstance(value, (bool, int, float, str))}


def _argv(workload: CommandWorkload, scope: Scope) -> tuple[str, ...]:
    if workload.run.line is not None:
        line = workload.run.line.shell(scope)
        return (line if workload.cwd == IN_FOLDER else f"cd {shlex.quote(workload.cwd)} || exit 126\n{line}",)
    words = tuple(plain(word) for word in workload.run.words(scope))
    return words if workload.cwd == IN_FOLDER else ("/bin/sh", "-c", 'cd "$0" && exec "$@"', workload.cwd, *words)


def _plan(workload: CommandWorkload, scope: Scope, env: Mapping[str, str]) -> dict[str, Any]:
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
        "variables": list(env),
    }


def _plain_command(command: Command, scope: Scope) -> dict[str, Any]:
    if command.line is not None:
        return {"shell": command.line.shell(scope)}
    return {"argv": [plain(word) for word in command.words(scope)]}


def _resources(workload: CommandWorkload, scope: Scope) -> Resources:
    amounts: dict[str, Any] = {}
    for name, amount in workload.resources.given.items():
        try:
            number = calculate(amount, scope.values) if isinstance(amount, str) else amount
        except SpaceError:
            continue  # it reads a knob that has no value
        if number is not None:
            amounts[name] = number if name == "memory_gb" else int(number)
    return Resources(**amounts)


def read_objective(data: Mapping[str, Any], workload: CommandWorkload) -> tuple[Objective, CommandWorkload, list[Fault]]:
    """The objective, and the workload with a lone metric given its name.

    Without a goal the only metric counts, or else the wall time.
    """
    faults: list[Fault] = []
    named = [name for name in workload.metrics if name not in ("", "*")]
    first = str(fields.as_list(data.get("metrics") or "")[0]).partition(":")[0].strip()
    metric = str(data.get("metric") or first or (named[0] if len(named) == 1 and "" not in workload.metrics else ""))
    if not metric and (named or "*" in workload.metrics):
        fix = f"There are: {', '.join([*named, *COMMON_METRICS])}"
        faults.append(Fault(where="goal", field="metric", rule="which of the metrics is to be improved?", fix=fix))
    if (lone := workload.metrics.get("")) is not None:
        name = metric or ("wall_s" if lone.wall else "")
        workload = workload.model_copy(update={"metrics": {key or name: source for key, source in workload.metrics.items()}})
        if not name:
            fix = "Write goal: {metric: NAME}, or metrics: {NAME: ...}"
            faults.append(Fault(where="goal", field="metric", rule="what is the number called?", fix=fix))
    names = {*workload.metrics, *COMMON_METRICS} - {""}
    objective, wrong = fields.read_objective(data, metrics=None if "*" in names else names, default=metric or "wall_s")
    return objective, workload, [*faults, *(one if workload.metrics else _with_source(one) for one in wrong)]


def _with_source(fault: Fault) -> Fault:
    """A fault of a command that is not said to print anything: what is missing is where the metric is found."""
    name = fault.value.strip("'")
    if fault.rule != fields.NO_METRIC or nearest(name, COMMON_METRICS):
        return fault
    return replace(fault, fix=f"Say where it is printed, such as -w 'metrics.{name}=regex:{name} ([0-9.]+)'")


def run_script(workload: CommandWorkload, command: Command, scope: Scope) -> str:
    """`run.sh` for one of the workload's commands; its files are next to it, so that the folder may be moved or copied.

    A command that does not run in that folder changes to the one in which it was measured, or to WORKDIR.
    """
    used = _resources(workload, scope)
    meet = [node_variables(used.nodes, max(1, used.gpus)).rstrip()] if used.nodes > 1 else []
    lines = [
        "#!/bin/sh",
        *meet,
        f'{RUNTIME["folder"]}="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)" || exit 1',
        f"export {RUNTIME['folder']}",
    ]
    templates = [*workload.env.values(), *command.templates]
    if any("port" in template.names for template in templates):
        lines += [f'{RUNTIME["port"]}="${{PORT:-{SERVER_PORT}}}"', f"export {RUNTIME['port']}"]
    for name, template in workload.env.items():
        words = template.words(scope)
        if words:
            lines.append(f"export {name}={_value(words)}")
    if workload.cwd == IN_FOLDER:
        lines.append(f'cd "${RUNTIME["folder"]}" || exit 1')
    else:
        lines.append(f'[ -n "${{WORKDIR:-}}" ] || WORKDIR={shlex.quote(workload.cwd)}  # where it was measured')
        lines.append('CDPATH= cd -- "$WORKDIR" || exit 1')
    if command.line is not None:
        lines.append(command.line.shell(scope))
    else:
        lines.append(" ".join(["exec", *(quoted(word) for word in command.words(scope))]))
    return "\n".join(lines) + "\n"


def _value(words: list[tuple[Piece, ...]]) -> str:
    joined: list[Piece] = []
    for position, word in enumerate(words):
        joined += [" ", *word] if position else word
    return quoted(joined)


def with_saved_result(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The workload with what vLLM's own sweep adds to it, so that its strings work here unchanged.

    `vllm bench serve` saves its result, the metrics are read from there, and server and load share a port.

    Anything that is written down already stays as it is; other benchmarks are left alone.
    """
    serve, bench = workload.get("serve"), workload.get("bench")
    if not isinstance(bench, str) or not isinstance(serve, str) or "metrics" in workload:
        return dict(workload)
    try:
        words, started = shlex.split(bench), shlex.split(serve)
    except ValueError:
        return dict(workload)
    if words[:3] != VLLM_BENCH or "--save-result" in words:
        return dict(workload)
    more = [SAVE_FLAGS] if "--metric-percentiles" in words or "--percentile-metrics" in words else [SAVE_FLAGS, PERCENTILE_FLAGS]
    changed = {**workload, "metrics": BENCH_METRICS}
    if not any(word.split("=")[0] in ("--port", "--base-url") for word in (*words, *started)):
        more.append("--port {port}")
        host = "" if any(word.split("=")[0] == "--host" for word in started) else " --host 127.0.0.1"  # vLLM listens to the whole world
        changed["serve"] = f"{serve.strip()}{host} --port {{port}}"
        changed.setdefault("health", HEALTH_URL)
    return {**changed, "bench": " ".join([bench.strip(), *more])}


__all__ = ["CommandBackend"]
