"""The workload of an engine: which model, which requests, what may change; read from plain data, all faults at once."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, FiniteFloat, field_validator

from autoscout.common.fields import Listed, Refused, read_fields, shown
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Objective
from autoscout.engines.model import ModelFacts, model_facts
from autoscout.engines.space import ALL
from autoscout.engines.table import EngineTable
from autoscout.load.plan import LATENCIES, THROUGHPUTS, Load
from autoscout.load.workload import read_files

WHERE = "workload"
OFFLINE_REQUESTS = 512  # sent at once where nothing is said
FACTS = tuple(f"model_{name}" for name in ModelFacts.__dataclass_fields__)


def _variable(value: Any) -> Any:
    """The value of a variable as text: `-w env.HF_HUB_OFFLINE=1` gives a number."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if isinstance(value, (bool, int, float)) else value


class Workload(Load):
    """What is asked of the engine. The fields of the load are those of `Load`.

    Attributes:
        model: A folder with a `config.json`, or the name of a remote model. Without weights in the folder random ones are used.
        engine_command: How the engine is started, in words; its installed program when empty.
        engine_version: Whose table of flags is used; found out when empty.
        engine_args: More settings of the engine, by their names; not for knobs.
        env: More variables for the engine's environment.
        max_model_len: Longest request in tokens, prompt and answer; the model's own when 0.
        draft_model: A small model that guesses for speculative decoding.
        free: Knobs to search besides the usual ones; `all` for every one.
        allow_lossy: Search knobs that change the answers too: quantised weights and cache, speculative decoding.
        max_logprob_error: With those, how far log-probabilities of the default's answers may move, in nats.
        start_limit_s: The engine must be up by then.
        limit_s: The load must have ended by then.
        search_limit_s: As in `Goal`.
    """

    model: str = Field(min_length=1)
    engine_command: Listed = Field(default_factory=list)
    engine_version: str = ""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, Annotated[str, BeforeValidator(_variable)]] = Field(default_factory=dict)
    max_model_len: int = Field(0, ge=0)
    draft_model: str = ""
    free: Listed = Field(default_factory=list)
    allow_lossy: bool = False
    max_logprob_error: FiniteFloat = Field(0.2, gt=0)
    start_limit_s: FiniteFloat = Field(900.0, gt=0)
    limit_s: FiniteFloat = Field(900.0, gt=0)
    search_limit_s: FiniteFloat = Field(90.0, gt=0)

    @field_validator("engine_version", mode="before")
    @classmethod
    def _is_text(cls, given: object) -> object:
        if isinstance(given, (int, float)):  # YAML has read it
            raise Refused("a number has lost its zeros: 0.10 is read as 0.1", fix="Write all three parts, such as 0.24.0")
        return given

    def to_json(self, facts: ModelFacts) -> dict[str, Any]:
        """Plain data for a task; reading it gives this workload again. What is at its default is left out, but for the lengths."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        lengths = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        known = {f"model_{name}": value for name, value in asdict(facts).items()}
        return {**data, **lengths, **known}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """Of a task that the backend made."""
        return cls.model_construct(**{name: value for name, value in data.items() if name not in FACTS})


def facts_of(data: Mapping[str, Any]) -> ModelFacts:
    """The facts of the model in a task."""
    return ModelFacts(**{name: data[f"model_{name}"] for name in ModelFacts.__dataclass_fields__})


def read_workload(data: Mapping[str, Any]) -> tuple[Workload | None, ModelFacts, list[Fault]]:
    """The workload as it was given, the facts of its model, and all that is wrong."""
    given, faults = read_fields(Workload, {name: value for name, value in data.items() if name not in FACTS}, WHERE)
    named = data.get("model")
    facts, unknown = model_facts(named) if isinstance(named, str) and named else (ModelFacts(), [])
    if given is None:
        return None, facts, [*faults, *unknown]
    room = given.max_model_len or facts.max_len
    if given.workload == "random" and 0 < room < given.longest:
        rule = f"a request needs up to {given.longest} tokens (prefix, prompt and answer), but the engine takes {room}"
        name = "max_model_len" if given.max_model_len else "input_tokens"
        fix = f"Give smaller input_tokens and output_tokens{', or a larger max_model_len' if given.max_model_len else ''}"
        unknown.append(Fault(where=WHERE, field=name, value=str(getattr(given, name)), rule=rule, fix=fix))
    told = {"sharegpt": given.workload == "sharegpt", "endpoint=chat": given.endpoint == "chat", given.client: given.client != "builtin"}
    if not facts.tokenizer and (need := [name for name, wanted in told.items() if wanted]):
        rule = f"its folder holds no tokenizer, which {need[0]} needs: it sends text"
        unknown.append(Fault(where=WHERE, field="model", value=repr(given.model), rule=rule, fix="Copy the model's tokenizer.json there"))
    return _placed(given), facts, [*faults, *unknown, *_file_faults(given)]


def _file_faults(given: Workload) -> list[Fault]:
    """What is wrong with the file of the load; read now, because the trials would start a server before they read it."""
    path = Path(given.file).expanduser()
    if given.file and not path.is_file():
        return [Fault(where=WHERE, field="file", value=repr(given.file), rule="there is no such file", fix="Check the path")]
    if given.client == "builtin":
        try:
            read_files(given, path)
        except ConfigError as error:
            return list(error.faults)
    return []


def _placed(given: Workload) -> Workload:
    """With absolute paths, because engines and clients run in the folders of their trials; a command in one word is split."""
    engine = [str(word) for word in given.engine_command]
    engine = shlex.split(engine[0]) if len(engine) == 1 else engine
    changed = {
        "model": _absolute(given.model),
        "draft_model": _absolute(given.draft_model),
        "file": str(Path(given.file).expanduser().absolute()) if given.file else "",
        "engine_command": [_absolute(word) if "/" in word else word for word in engine],
        "client_command": tuple(_absolute(word) if "/" in word else word for word in given.client_command),
    }
    return given.model_copy(update={name: value for name, value in changed.items() if value})


def _absolute(word: str) -> str:
    """The absolute path of a word that names something here, else the word."""
    path = Path(word).expanduser()
    try:
        return str(path.absolute()) if word and path.exists() else word
    except (OSError, ValueError):  # too long for the name of a file; holds a zero byte
        return word


def check_names(given: Workload, table: EngineTable, knobs: Collection[str]) -> list[Fault]:
    """What is wrong with the names of knobs and settings, which depend on the engine's version, the model and the machine."""
    faults = [
        Fault(where=WHERE, field="free", value=shown(name), rule="there is no such knob", fix=suggestion(str(name), knobs))
        for name in given.free
        if name not in knobs and name != ALL
    ]
    carried = {table.knobs[name].setting for name in knobs}
    for name in map(plain, given.engine_args):
        if name in carried:
            fix = f"Pin it: --set {name}=..." if name in knobs else "Pin its knobs"
            faults.append(Fault(where=WHERE, field=f"engine_args.{name}", rule="is a knob", fix=fix))
        elif name not in table.flags:
            rule = f"{table.engine} {table.version} has no such flag"
            faults.append(Fault(where=WHERE, field=f"engine_args.{name}", rule=rule, fix=suggestion(name, table.flags)))
    return faults


def plain(name: str) -> str:
    """The name of a setting as the table has it, for one written like a flag."""
    return name.removeprefix("--").replace("-", "_")


def usual_metric(given: Workload, limits: bool) -> str:
    """What to improve when nothing is named: with limits the capacity, or what a given load achieves; without them the throughput."""
    if limits and (given.request_rate or (given.workload == "trace" and not given.concurrency)):
        return "goodput"
    return "capacity_rps" if limits and not given.concurrency else THROUGHPUTS[0]


def filled(given: Workload, objective: Objective) -> Workload:
    """The workload with arrivals and clients that suit the goal, where they were left out.

    Raises:
        ConfigError: a latency is to be improved, and nothing says at which load.
    """
    kind = goal_kind(given, objective)
    late = [goal.metric for goal in objective.goals if _latency(goal.metric)]
    if kind == "offline" and late:
        fix = "Give -w concurrency=8 or -w request_rate=4"
        raise ConfigError(Fault(where="goal", value=late[0], rule="depends on the load: how many requests are under way?", fix=fix))
    timed = (kind in ("capacity", "goodput") or given.request_rate > 0) and given.workload != "trace"  # which has arrivals of its own
    if timed and "arrival" not in given.model_fields_set:
        return given.model_copy(update={"arrival": "poisson"})
    if kind == "offline" and not given.requests:
        return given.model_copy(update={"requests": OFFLINE_REQUESTS})
    return given


def goal_kind(given: Workload, objective: Objective) -> str:
    """The kind of trial that measures an objective; throughput and cost under limits on latencies are those at the capacity."""
    if objective.metric == "capacity_rps":
        return "capacity"
    if objective.metric == "goodput":
        return "goodput"
    if given.concurrency or given.request_rate or given.workload == "trace":
        return "latency"
    bounded = any(_latency(limit.metric) and not limit.guard for limit in objective.limits) and not _latency(objective.metric)
    return "capacity" if bounded else "offline"


def _latency(metric: str) -> bool:
    return metric.partition("_")[2] in LATENCIES


__all__ = ["FACTS", "Workload", "check_names", "facts_of", "filled", "goal_kind", "plain", "read_workload", "usual_metric"]
