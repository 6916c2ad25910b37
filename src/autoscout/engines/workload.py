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
from autoscout.core.errors import Fault
from autoscout.engines.model import EngineModelFacts, model_facts
from autoscout.engines.space import ALL
from autoscout.engines.table import EngineTable, plain
from autoscout.engines.widening import Refusal, as_object, converted
from autoscout.load.goals import absolute, file_faults
from autoscout.load.plan import Load
from autoscout.load.text import text_path
from autoscout.load.workload import traffic_in

WHERE = "workload"
FACTS = tuple(f"model_{name}" for name in EngineModelFacts.__dataclass_fields__)


def _variable(value: Any) -> Any:
    """The value of a variable as text: `-w env.HF_HUB_OFFLINE=1` gives a number."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if isinstance(value, (bool, int, float)) else value


class EngineWorkload(Load):
    """What is asked of the engine. The fields of the load are those of `Load`.

    Attributes:
        model: A folder with a `config.json`, or the name of a remote model. Without weights in the folder random ones are used.
        engine_command: How the engine is started, in words; its installed program when empty.
        engine_version: Whose table of flags is used; found out when empty.
        engine_args: More settings of the engine, by their names; a knob among them is held fixed.
        env: More variables for the engine's environment.
        max_model_len: Longest request in tokens, prompt and answer; the model's own when 0.
        draft_model: What guesses for speculative decoding: a small model, or one made for it (EAGLE, DFlash, ...).
        free: Knobs to search besides the usual ones; `all` for every one.
        allow_lossy: Search knobs that change the answers too: quantised weights and cache.
        max_logprob_error: With those, how far log-probabilities of the default's answers may move, in nats.
        start_limit_s: The engine must be up by then.
        limit_s: The load must have ended by then.
        search_limit_s: As in `TrialGoal`.
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

    @property
    def draft(self) -> str:
        """What guesses, from its field or from the engine's own settings; empty for nothing."""
        args = {plain(name): value for name, value in self.engine_args.items()}
        speculation = as_object(args.get("speculative_config"))
        named = (self.draft_model, speculation.get("model"), args.get("speculative_draft_model_path"))
        return next((str(name) for name in named if name), "")

    @field_validator("engine_version", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, (int, float)):  # YAML has read it
            raise Refused("a number has lost its zeros: 0.10 is read as 0.1", fix="Write all three parts, such as 0.24.0")
        return value

    def to_json(self, facts: EngineModelFacts) -> dict[str, Any]:
        """Plain data for a task; reading it gives this workload again. What is at its default is left out, but for the lengths."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        lengths: dict[str, Any] = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        if (traffic := traffic_in(self)) is not None:  # simulators are told what will be asked, not the lengths of another load
            lengths = traffic.to_load()
        model = {f"model_{name}": value for name, value in asdict(facts).items()}
        return {**data, **lengths, **model}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineWorkload:
        """Of a task that the backend made."""
        return cls.model_construct(**{name: value for name, value in data.items() if name not in FACTS})


def facts_of(data: Mapping[str, Any]) -> EngineModelFacts:
    """The facts of the model in a task; what a task of an older version does not hold is not known."""
    names = EngineModelFacts.__dataclass_fields__
    return EngineModelFacts(**{name: data[f"model_{name}"] for name in names if f"model_{name}" in data})


def read_workload(data: Mapping[str, Any]) -> tuple[EngineWorkload | None, EngineModelFacts, list[Fault]]:
    """The workload as it was given, the facts of its model, and all that is wrong."""
    workload, faults = read_fields(EngineWorkload, {name: value for name, value in data.items() if name not in FACTS}, WHERE)
    model = data.get("model")
    facts, unknown = model_facts(model) if isinstance(model, str) and model else (EngineModelFacts(), [])
    if workload is None:
        return None, facts, [*faults, *unknown]
    room = workload.max_model_len or facts.max_len
    if workload.workload == "random" and 0 < room < workload.longest:
        rule = f"a request needs up to {workload.longest} tokens (prefix, prompt and answer), but the engine takes {room}"
        name = "max_model_len" if workload.max_model_len else "input_tokens"
        fix = f"Give smaller input_tokens and output_tokens{', or a larger max_model_len' if workload.max_model_len else ''}"
        unknown.append(Fault(where=WHERE, field=name, value=str(getattr(workload, name)), rule=rule, fix=fix))
    sends_text = {"sharegpt": workload.workload == "sharegpt", "endpoint=chat": workload.endpoint == "chat"}
    sends_text |= {workload.client: workload.client != "builtin", f"text={workload.text}": bool(workload.text_name)}
    if not facts.tokenizer and (senders := [name for name, sends in sends_text.items() if sends]):
        rule = f"its folder holds no tokenizer, which {senders[0]} needs: it sends text"
        fix = "Copy the model's tokenizer.json there"
        unknown.append(Fault(where=WHERE, field="model", value=repr(workload.model), rule=rule, fix=fix))
    return _with_absolute_paths(workload), facts, [*faults, *unknown, *file_faults(workload)]


def _with_absolute_paths(workload: EngineWorkload) -> EngineWorkload:
    """With absolute paths, because engines and clients run in the folders of their trials; a command in one word is split."""
    engine = [str(word) for word in workload.engine_command]
    engine = shlex.split(engine[0]) if len(engine) == 1 else engine
    changed = {
        "model": absolute(workload.model),
        "draft_model": absolute(workload.draft_model),
        "file": str(Path(workload.file).expanduser().absolute()) if workload.file else "",
        "text": text_path(workload.text),
        "engine_command": [absolute(word) if "/" in word else word for word in engine],
        "client_command": tuple(absolute(word) if "/" in word else word for word in workload.client_command),
        "client_tokenizer": absolute(workload.client_tokenizer),
    }
    return workload.model_copy(update={name: value for name, value in changed.items() if value})


def check_names(workload: EngineWorkload, table: EngineTable, knobs: Collection[str]) -> list[Fault]:
    """What is wrong with the names of knobs and settings, which depend on the engine's version, the model and the machine."""
    faults = [
        Fault(where=WHERE, field="free", value=shown(name), rule="there is no such knob", fix=suggestion(str(name), knobs))
        for name in workload.free
        if name not in knobs and name not in table.flags and name != ALL
    ]
    for written, value in workload.engine_args.items():
        name = plain(written)
        if name not in table.flags:
            rule = f"{table.engine} {table.version} has no such flag"
            faults.append(Fault(where=WHERE, field=f"engine_args.{name}", rule=rule, fix=suggestion(name, table.flags)))
            continue
        try:
            converted(value, table.flags[name])
        except Refusal as refusal:
            faults.append(Fault(where=WHERE, field=f"engine_args.{name}", value=shown(value), rule=str(refusal)))
    return faults


__all__ = ["FACTS", "EngineWorkload", "check_names", "facts_of", "read_workload"]
