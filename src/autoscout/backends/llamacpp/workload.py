"""The workload of the `llamacpp` backend: which model, which requests; read from plain data, all faults at once."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, FiniteFloat

from autoscout.backends.llamacpp.engine import usual_command
from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFacts
from autoscout.backends.llamacpp.model import RANDOM_MODELS, facts_from, facts_to, model_facts
from autoscout.common.fields import Listed, read_fields, shown
from autoscout.common.text import nearest, suggestion
from autoscout.core.errors import Fault
from autoscout.core.task import Objective
from autoscout.engines.table import plain
from autoscout.load.goals import absolute, file_faults, fill, goal_kind, usual_metric
from autoscout.load.plan import CAPACITIES, MIXED, Load
from autoscout.load.text import text_path
from autoscout.load.workload import read_trace, traffic_in

WHERE = "workload"
DEFAULT_MODEL = "random"
CLIENTS = 8  # of a closed loop, where nothing is said
LARGE_GB = 0.5  # above it a request takes seconds, so fewer are measured
CONTEXT_STEP = 256  # llama.cpp rounds the context of a slot up to it
MOST_SLOTS = 256  # compiled into llama.cpp
TALK_CONTEXT = 2048  # tokens of a slot for conversations of a file, whose lengths only the server counts
WARM_TOKENS = 8  # enough to touch all weights and buffers
ENOUGH_S = 10.0  # by then the configuration, or the machine, is slow beyond interest
REQUEST_LIMIT_S = 1800.0  # a large model on a processor takes minutes for a request
MOST_REQUESTS = 500  # at a rate, unless the load says how many: those of a p99
SEARCH_MARGIN_S = 300.0  # on top of the search for a capacity: to fill the server, and to confirm
TRAFFIC_REQUESTS = 48  # of a traffic, whose lengths differ, unless the load says how many
ALIASES = {"prompt_tokens": "input_tokens"}
"""Former name of a field -> its name."""
ALWAYS = ("model", "input_tokens", "output_tokens", "concurrency")
"""Fields that a task holds even where they are at their default."""


class LlamaCppWorkload(Load):
    """What is asked of the server, and how carefully; the fields of the load are those of `Load`. What is left out suits the model.

    Attributes:
        model: A GGUF file, or the name of a random model.
        server: The `llama-server` program to measure, with words before it where it needs them; the wheel when empty.
        engine_args: More flags of that program, by their names; not for knobs.
        env: Variables for the server.
        draft_model: A small GGUF model that guesses for speculative decoding.
        context: Longest request, prompt and answer together, that every slot must be able to take.
        allow_lossy: Offer knobs that change the answers: quantised weights and KV cache.
        max_divergence: Mean KL divergence (nats per token) from the default's answers above which a configuration is wrong.
        engine_defaults: Whose settings are the default: those of the `llama-server` program, or the library's.
        cache_dir: Folder of the model files that are made; the user's cache folder when empty.
        limit_s: Wall-clock limit of one measurement.
        search_limit_s: How long rates are tried in the search for the capacity.
        memory_gb: Memory limit of one measurement; none when 0.
        facts: What the header of the model file says.
    """

    model: str = DEFAULT_MODEL
    server: Listed = Field(default_factory=list)
    engine_args: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    draft_model: str = ""
    input_tokens: int = Field(64, ge=1)
    output_tokens: int = Field(48, ge=2)
    concurrency: int = Field(0, ge=0, le=MOST_SLOTS)
    repeats: int = Field(3, ge=1)
    enough_s: FiniteFloat = Field(ENOUGH_S, ge=0)
    warmup_tokens: int = Field(WARM_TOKENS, ge=0)
    request_limit_s: FiniteFloat = Field(REQUEST_LIMIT_S, gt=0)
    allow_lossy: bool = False
    max_divergence: FiniteFloat = Field(0.05, gt=0)
    engine_defaults: Literal["llama-server", "xllamacpp"] = "llama-server"
    cache_dir: str = ""
    limit_s: FiniteFloat = Field(0.0, gt=0)
    search_limit_s: FiniteFloat = Field(90.0, gt=0)
    memory_gb: FiniteFloat = Field(0.0, ge=0)
    facts: GgufFacts = Field(RANDOM_MODELS[DEFAULT_MODEL].facts, exclude=True)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a task; reading it gives this workload again."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        lengths = traffic.to_load() if (traffic := traffic_in(self)) is not None else {}
        return {**{name: getattr(self, name) for name in ALWAYS}, **data, **lengths, **facts_to(self.facts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LlamaCppWorkload:
        """Of a task that this backend made."""
        given = {name: data[name] for name in cls.model_fields if name in data}
        command = tuple(data.get("client_command", ()))  # JSON knows lists only
        return cls.model_construct(**{**given, "client_command": command}, facts=facts_from(data))

    @property
    def load(self) -> Load:
        """The part that the load generator reads."""
        return Load.model_construct(**{name: getattr(self, name) for name in Load.model_fields})

    @property
    def has_fresh_prompts(self) -> bool:
        """Whether no prompt shares a beginning with another, so that a cache has nothing to offer."""
        if self.workload == "traffic" and (traffic := self.description) is not None:
            return not any(window.prefix_share or (window.turns or 1) > 1 for window in traffic.judged)
        return self.workload in ("random", "sharegpt") and not self.prefix_tokens

    @property
    def has_text(self) -> bool:
        """Whether prompts are text that people wrote, in which earlier words say something of the next."""
        return self.workload == "sharegpt" or bool(self.text_name)

    @property
    def command(self) -> tuple[str, ...]:
        """How the program is started; empty for the wheel."""
        return tuple(map(str, self.server))

    @property
    def is_closed(self) -> bool:
        """Whether clients wait for an answer before they ask again."""
        return self.arrival == "closed" and not self.request_rate and (self.workload != "trace" or self.concurrency > 0)

    @property
    def is_large(self) -> bool:
        return self.facts.size_gb > LARGE_GB

    def usual_metric(self, has_limits: bool) -> str:
        """What to improve when nothing is named: the throughput of a closed loop, also under limits; at a rate what keeps them."""
        load = self.model_copy(update={"concurrency": self.concurrency or CLIENTS}) if self.is_closed else self
        return usual_metric(load, has_limits)


DERIVED = tuple(f"model_{name}" for name in GgufFacts.__dataclass_fields__)


def read_workload(data: Mapping[str, Any]) -> tuple[LlamaCppWorkload, list[Fault]]:
    """The workload as it was given, the facts of its model, and all that is wrong with it."""
    repeated = [(old, new) for old, new in ALIASES.items() if {old, new} <= data.keys()]
    twice = [Fault(where=WHERE, field=old, rule=f"is the former name of {new}, which is there too") for old, new in repeated]
    fields = {ALIASES.get(name, name): value for name, value in data.items() if name not in DERIVED}
    workload, faults = read_fields(LlamaCppWorkload, fields, WHERE)
    workload = workload or LlamaCppWorkload()
    model, facts, unreadable = _model(workload.model)
    files = file_faults(workload)
    workload = workload.model_copy(
        update={
            "model": model,
            "facts": facts or workload.facts,
            "file": str(Path(workload.file).expanduser().absolute()) if workload.file else "",
            "text": text_path(workload.text),
            "client_command": tuple(absolute(word) if "/" in word else word for word in workload.client_command),
            "client_tokenizer": absolute(workload.client_tokenizer),
            "server": _command(workload.server),
            "engine_args": {plain(name): value for name, value in workload.engine_args.items()},
            "draft_model": absolute(workload.draft_model),
            "cache_dir": str(Path(workload.cache_dir).expanduser().absolute()) if workload.cache_dir else "",
        }
    )
    needed = 0 if files else _longest(workload)
    made_for = facts.context if facts is not None else 0
    context = math.ceil((workload.context or needed) / CONTEXT_STEP) * CONTEXT_STEP
    if workload.workload != "random":  # whose longest requests are cut
        needed, context = 0, min(context, made_for or context)
    clients = workload.concurrency or CLIENTS
    rules = [
        (
            "requests",
            workload.is_closed and 0 < workload.requests < clients,
            f"must be at least the concurrency ({clients}), or some clients have nothing to ask",
        ),
        ("context", context < needed, f"must hold a prompt and its answer: {needed} tokens"),
        (
            "context" if workload.context else "input_tokens",
            0 < made_for < needed <= context,
            f"a request takes {needed} tokens (prefix, prompt and answer), but the model was made for {made_for}",
        ),
    ]
    workload = workload.model_copy(update={"context": context})
    broken = [
        Fault(where=WHERE, field=name, value=shown(getattr(workload, name)), rule=rule) for name, is_broken, rule in rules if is_broken
    ]
    return workload, [*twice, *faults, *unreadable, *files, *broken]


def _command(words: Sequence[Any]) -> list[str]:
    """The words of a command, split where it was given in one, with absolute paths, because trials run elsewhere."""
    texts = [str(word) for word in words]
    texts = shlex.split(texts[0]) if len(texts) == 1 else texts
    texts = texts or list(usual_command())
    return [absolute(word) if "/" in word else word for word in texts]


def suited(workload: LlamaCppWorkload, objective: Objective) -> LlamaCppWorkload:
    """The workload filled up to suit the model and the goal."""
    fields = workload.model_fields_set
    is_capacity = objective.metric in CAPACITIES
    if workload.is_closed and not is_capacity:
        workload = workload.model_copy(update={"concurrency": workload.concurrency or CLIENTS})
    workload = fill(workload, objective)
    if workload.may_take_text and (workload.draft_model or workload.facts.mtp_layers):  # which guess, and could not after random tokens
        workload = workload.model_copy(update={"text": MIXED})
    clients = workload.concurrency or CLIENTS
    usual: dict[str, Any] = {
        "repeats": 2 if workload.is_large else 3,
        "warmup": 1 if workload.is_large else clients,
        "limit_s": (1800.0 if workload.is_large else 180.0)
        + len(workload.sessions) * _arrivals_s(workload, goal_kind(workload, objective)),
    }
    if workload.is_closed and not is_capacity and not workload.requests and not any(session.pauses for session in workload.sessions):
        turns = workload.session.requests
        least = TRAFFIC_REQUESTS if workload.workload == "traffic" and not workload.is_large else 0
        workload = workload.model_copy(update={"requests": max(least, clients * turns * (1 if workload.is_large else 2))})
    return workload.model_copy(update={name: value for name, value in usual.items() if name not in fields})


def _arrivals_s(workload: LlamaCppWorkload, kind: str) -> float:
    """Time that a measurement of one window takes however fast the server is."""
    if kind == "capacity":
        return workload.search_limit_s + SEARCH_MARGIN_S
    if workload.request_rate:
        return (workload.requests or MOST_REQUESTS) / workload.request_rate
    if workload.workload == "trace" and not workload.is_closed:
        rows = read_trace(Path(workload.file))[: workload.requests or None]
        return rows[-1].time_s - rows[0].time_s
    return 0.0


def _longest(workload: LlamaCppWorkload) -> int:
    """Tokens of the longest request, prompt and answer together."""
    if workload.workload == "trace":
        return max(row.input_tokens + row.output_tokens for row in read_trace(Path(workload.file)))
    if workload.workload == "sharegpt":
        return TALK_CONTEXT
    return workload.longest


def _model(name: str) -> tuple[str, GgufFacts | None, list[Fault]]:
    if name in RANDOM_MODELS:
        return name, RANDOM_MODELS[name].facts, []
    path = str(Path(name).expanduser().absolute())
    try:
        return path, model_facts(path), []
    except GgufError as error:
        other = f"Give the path of a GGUF file, or one of {', '.join(RANDOM_MODELS)} for a model that AutoScout writes"
        fix = suggestion(name, RANDOM_MODELS) if nearest(name, RANDOM_MODELS) else other
        return path, None, [Fault(where=WHERE, field="model", value=repr(name), rule=f"the model file {error}", fix=fix)]
