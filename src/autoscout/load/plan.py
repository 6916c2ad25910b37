"""The plan of one trial of a server: what is started, which load it gets, and what is looked for.

A backend's `render` writes a plan as a file of its launch; `python -m autoscout.load.trial plan.json` carries it out.
A backend reads the block `Load` from a task too, so that both have the same words and the same rules.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, FiniteFloat, field_validator, model_validator

from autoscout.common.fields import Block, Refused, read_fields, refuse_if
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Limit
from autoscout.traffic.description import Traffic
from autoscout.traffic.sessions import SessionShape

NONE, MIXED = "none", "mixed"
"""Texts: none, so that prompts are random tokens; and all that come with AutoScout."""
PLAN = "plan.json"
RESULT = "result.json"
STAGE = "stage.txt"  # the step under way, so that a kill can be dated
LOG = "server.log"
STAGES = ("preparing", "starting", "checking", "warming", "measuring", "stopping", "done")
MODULE = "autoscout.load.trial"
COMMAND = (sys.executable, "-m", MODULE, PLAN)
"""What a launch runs in the folder that holds `PLAN`."""
OUTPUTS = (RESULT, STAGE, LOG)
"""The files that a launch brings back, for `outcome`."""

BREAKS = "breaks"
"""Note that says which requests are above a limit."""
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
STATISTICS = ("mean", "median", "p50", "p90", "p95", "p99")
CAPACITIES = ("capacity_rps", "capacity_sessions")
THROUGHPUTS = ("output_throughput", "total_token_throughput", "request_throughput", "goodput")
_LONGER = re.compile(rf"({'|'.join(STATISTICS)})_tpot([1-9]\d{{0,5}})_ms")


class _MetricNames(tuple[str, ...]):
    """Names of metrics; also those of the time per token of answers of at least N tokens, such as `p95_tpot64_ms`."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _LONGER.fullmatch(name) is not None)


def split_metric(name: str) -> tuple[str, str, int]:
    """Statistic and latency of a metric, and the tokens that an answer must have to count for it.

    >>> split_metric("p95_tpot64_ms"), split_metric("median_ttft_ms"), split_metric("goodput")
    (('p95', 'tpot_ms', 64), ('median', 'ttft_ms', 0), ('goodput', '', 0))
    """
    if longer := _LONGER.fullmatch(name):
        return longer[1], "tpot_ms", int(longer[2])
    statistic, _, latency = name.partition("_")
    return statistic, latency, 0


METRICS = _MetricNames(
    (
        *CAPACITIES,
        "capacity_low_rps",
        "capacity_high_rps",
        "capacity_confirmed",
        "offered_rps",
        "sessions_under_way",
        *THROUGHPUTS,
        *(f"{statistic}_{latency}" for latency in LATENCIES for statistic in STATISTICS),
        "completed",
        "failed",
        "input_tokens",
        "output_tokens",
        "token_agreement",
        "mean_logprob_error",
        "divergence",
        "preemptions",
        "prefix_hit_share",
        "acceptance_rate",
        "acceptance_length",
        "start_s",
        "peak_mem_gib",
    )
)
"""Every metric that a trial may report. Throughputs are per second; `goodput` and `capacity_rps` count requests."""


class Load(Block):
    """Which requests, and when. What is 0 or empty when left out is chosen to suit the rest.

    Attributes:
        workload: `random` lengths, those of a `traffic` description, conversations of a `sharegpt` file, `multi_turn` with a growing
            shared prefix, or a `trace` of requests (arrival times and lengths).
        arrival: `closed` (each client sends its next request when the last is answered), `constant` gaps, `poisson`, or `burst` (gamma).
            A trace without a rate keeps its own times.
        client: What produces the load: the `builtin` client, or another program where it is installed.
        client_command: How another program is started, where that is not its own name: `[venv/bin/vllm, bench, serve]`.
        client_tokenizer: Folder or name of the tokenizer with which another program makes prompts, where that is not the model's own: none
            of them reads that of a GGUF file.
        concurrency: Clients of a closed loop; with other arrivals, the most requests in flight (0: no bound).
        request_rate: Requests a second, for arrivals that are not a closed loop.
        burstiness: Shape of the gamma distribution of gaps for `burst`: 1 is Poisson, below 1 burstier.
        requests: Requests in one measurement.
        repeats: How often they are sent, with new prompts, in one start of the server; the metrics are medians. Up to twice as often while
            the throughputs differ by more than 15 %.
        enough_s: No further repeat, and no further request of a closed loop, begins after this long; 0: no bound.
        input_tokens: Mean length of a prompt.
        output_tokens: Mean length of an answer; the model is not allowed to stop earlier.
        input_spread: Lengths of prompts are uniform within the mean plus or minus this.
        output_spread: The same for answers.
        prefix_tokens: Tokens that all prompts begin with, the same within one measurement (a system prompt).
        turns: Requests of one conversation of `multi_turn`.
        think_s: Median pause between an answer and the next request of its conversation.
        branches: Requests of `multi_turn` that are sent together in every turn, as agents do that work at the same time.
        text: What prompts are cut from: `prose`, `code`, `mixed` (both), a file of UTF-8 text, or `none` for random tokens. Left out, it is
            `mixed` where words are sent (`chat`) or speculative decoding is searched, else `none`.
        file: The conversations or the trace.
        traffic: A traffic description, which `--traffic` makes; of a file, what it says to simulators.
        context: Longest request that the server takes, prompt and answer together; longer ones of a file are cut. 0: no bound.
        warmup: Requests before the measurement; -1 for as many as suit the load.
        warmup_tokens: Longest answer of these; 0 for answers as in the load.
        endpoint: `completions` with token numbers as prompts, or `chat` with words; `chat` needs a tokenizer in the server.
        request_limit_s: A request without its last token after this long counts as failed.
    """

    workload: Literal["random", "traffic", "sharegpt", "multi_turn", "trace"] = "random"
    arrival: Literal["closed", "constant", "poisson", "burst"] = "closed"
    client: Literal["builtin", "vllm", "sglang", "guidellm", "aiperf"] = "builtin"
    client_command: tuple[str, ...] = Field((), strict=False)
    client_tokenizer: str = ""
    concurrency: int = Field(0, ge=0)
    request_rate: FiniteFloat = Field(0.0, ge=0)
    burstiness: FiniteFloat = Field(0.5, gt=0)
    requests: int = Field(0, ge=0)
    repeats: int = Field(1, ge=1)
    enough_s: FiniteFloat = Field(0.0, ge=0)
    input_tokens: int = Field(1024, ge=1)
    output_tokens: int = Field(128, ge=1)
    input_spread: int = Field(0, ge=0)
    output_spread: int = Field(0, ge=0)
    prefix_tokens: int = Field(0, ge=0)
    turns: int = Field(4, ge=1)
    think_s: FiniteFloat = Field(0.0, ge=0)
    branches: int = Field(1, ge=1, le=64)
    text: str = ""
    file: str = ""
    traffic: dict[str, Any] = Field(default_factory=dict)
    context: int = Field(0, ge=0)
    warmup: int = Field(-1, ge=-1)
    warmup_tokens: int = Field(0, ge=0)
    endpoint: Literal["completions", "chat"] = "completions"
    request_limit_s: FiniteFloat = Field(300.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        rules = [
            ("input_spread", self.input_spread >= self.input_tokens, "must be below input_tokens, or some prompts would be empty"),
            ("output_spread", self.output_spread >= self.output_tokens, "must be below output_tokens, or some answers would be empty"),
            ("file", self.workload in ("sharegpt", "trace") and not self.file, f"a load of kind {self.workload} is read from a file"),
            ("traffic", self.workload == "traffic" and not self.traffic, "such a load is drawn from a description: give --traffic SOURCE"),
            (
                "file",
                self.workload in ("random", "traffic", "multi_turn") and self.file,
                f"{self.workload} reads none: workload=sharegpt or trace do",
            ),
            ("text", self.workload == "sharegpt" and self.text not in ("", NONE), "the conversations are the text"),
            ("text", self.client != "builtin" and self.text not in ("", NONE), "only builtin cuts prompts from a text"),
            ("text", self.endpoint == "chat" and self.text == NONE, "chat sends words: give a text, or leave it out"),
            (
                "client",
                self.client != "builtin" and self.workload in ("multi_turn", "traffic", "trace"),
                f"only builtin produces {self.workload}",
            ),
        ]
        faults = [Fault(field=name, value=repr(getattr(self, name)), rule=rule) for name, wrong, rule in rules if wrong]
        try:
            _ = self.description
        except ConfigError as error:
            faults += [replace(fault, where="", field=f"traffic.{fault.field}") for fault in error.faults]
        if faults:
            raise Refused(faults)
        return self

    @property
    def description(self) -> Traffic | None:
        """The traffic that is asked for; None where other fields say it."""
        return Traffic.from_json(self.traffic) if self.traffic else None

    @property
    def session(self) -> SessionShape:
        """How a session asks, where no window of a traffic says so."""
        return SessionShape(self.turns, self.branches, self.think_s) if self.workload == "multi_turn" else SessionShape()

    @property
    def sessions(self) -> tuple[SessionShape, ...]:
        """How those of each window ask."""
        traffic = self.description if self.workload == "traffic" else None
        return tuple(window.session for window in traffic.judged) if traffic is not None else (self.session,)

    @property
    def sends_text(self) -> bool:
        """Whether the server needs a tokenizer for the prompts."""
        return self.client != "builtin" or self.workload == "sharegpt" or self.endpoint == "chat" or bool(self.text_name)

    @property
    def may_take_text(self) -> bool:
        """Whether prompts could be cut from a text, and nothing was said about that."""
        return not self.text and self.workload != "sharegpt" and self.client == "builtin"

    @property
    def text_name(self) -> str:
        """The text that prompts are cut from; empty for random tokens and conversations."""
        if self.endpoint == "chat" and self.may_take_text:
            return MIXED
        return "" if self.text == NONE else self.text

    @property
    def longest(self) -> int:
        """The most tokens, prompt and answer together, that one request of random lengths may have, the last of a conversation included."""
        if self.workload == "traffic" and (traffic := self.description) is not None:
            return traffic.longest
        turn = self.input_tokens + self.input_spread + self.output_tokens + self.output_spread
        return self.prefix_tokens + turn * (self.turns if self.workload == "multi_turn" else 1)


class TrialGoal(Block):
    """What a trial looks for.

    Attributes:
        kind: `capacity`, the highest request rate that keeps the SLO; `goodput`, requests a second that keep it at the given rate;
            `latency` at the given concurrency or rate; `offline`, all requests sent at once.
        metric: The objective, so that there are enough requests for it; may be empty.
        slo: Limits such as `p95_ttft_ms<=500`. Percentiles of ttft, tpot and e2el are over requests, those of itl over tokens.
        first_rate: Where the search for the capacity begins; 0 for a guess by a short closed loop.
        search_limit_s: How long rates are tried in the search for the capacity; confirming the last may take up to a minute more.
        precision: The search for the capacity ends when the rate that holds and the one that does not differ by less than this share.
    """

    kind: Literal["capacity", "goodput", "latency", "offline"] = "latency"
    metric: str = ""
    slo: tuple[str, ...] = Field((), strict=False)
    first_rate: FiniteFloat = Field(0.0, ge=0)
    search_limit_s: FiniteFloat = Field(90.0, gt=0)
    precision: FiniteFloat = Field(0.04, gt=0, lt=1)

    @field_validator("slo")
    @classmethod
    def _limits(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        faults: list[Fault] = []
        for text in texts:
            try:
                limit = Limit.parse(text)
            except ConfigError as error:
                faults += error.faults
                continue
            if limit.metric not in METRICS:
                faults.append(Fault(value=repr(text), rule=f"no metric {limit.metric} is reported", fix="Example: p95_ttft_ms<=500"))
            elif split_metric(limit.metric)[1] in LATENCIES and (">" in limit.op or limit.value <= 0):
                rule = "a latency is to stay below a number above zero"
                faults.append(Fault(value=repr(text), rule=rule, fix="Example: p95_ttft_ms<=500"))
        if faults:
            raise Refused(faults)
        return texts

    @model_validator(mode="after")
    def _has_slo(self) -> Self:
        if self.kind in ("capacity", "goodput") and not self.slo:
            raise Refused(Fault(field="slo", rule=f"{self.kind} needs limits to keep", fix="Example: p95_ttft_ms<=500"))
        return self

    @property
    def limits(self) -> tuple[Limit, ...]:
        return tuple(map(Limit.parse, self.slo))


class AnswerReference(Block):
    """How the default's answers are made, once: by the first trial of the default, else by a server of its own.

    Attributes:
        key: Names the answers; everything they depend on (model, engine, default settings) must be part of it.
        serve: The command line of the server with default settings, as in `TrialPlan`.
        env: Its environment, as in `TrialPlan`.
        prepare: What must run before it, as in `TrialPlan`.
        folder: Where answers are kept; the user's cache folder when empty.
    """

    key: str = Field(min_length=1, pattern=r"^[\w.-]+$")
    serve: tuple[str, ...] = Field(min_length=1, strict=False)
    env: dict[str, str] = Field(default_factory=dict)
    prepare: tuple[str, ...] = Field((), strict=False)
    folder: str = ""


class AnswerCheck(Block):
    """Whether the answers are right: compared with the default's on fixed prompts where there is a reference.

    Without a reference only what no healthy model does is noticed: no tokens, too few, probabilities that are not numbers, the same
    token to every prompt.

    Attributes:
        prompts: Fixed prompts; 0 checks nothing.
        input_tokens: Length of each.
        output_tokens: Length of each answer.
        logprobs: Ask for log-probabilities.
        top: Of how many tokens at each place.
        readable: Every answer, also those of the load, must hold text that can be read.
        uncached: No prompt of the load may be served from a cache.
        reference: The default's answers; None compares with nothing.
        min_token_agreement: Share of tokens that must be the default's, given the same tokens before them; 0 is no bound.
        max_logprob_error: Mean absolute difference of log-probabilities of the same tokens, in nats; 0 is no bound.
        max_divergence: Mean Kullback-Leibler divergence of next-token probabilities from the reference's, in nats; 0 is no bound.
    """

    prompts: int = Field(8, ge=0)
    input_tokens: int = Field(32, ge=1)
    output_tokens: int = Field(16, ge=1)
    logprobs: bool = True
    top: int = Field(10, ge=1)
    readable: bool = False
    uncached: bool = False
    reference: AnswerReference | None = None
    min_token_agreement: FiniteFloat = Field(0.0, ge=0, le=1)
    max_logprob_error: FiniteFloat = Field(0.2, ge=0)
    max_divergence: FiniteFloat = Field(0.0, ge=0)


class TrialPlan(Block):
    """One trial.

    Attributes:
        serve: The command line of the server; `{port}` and `{folder}` stand for a free port of 127.0.0.1 and the folder of the trial.
        env: Added to the environment of the server, with the same two words replaced.
        prepare: A command that makes what the server needs, such as a converted model; empty for none.
        model: The name under which the server offers the model.
        tokenizer: Folder or name of the tokenizer, for clients other than the built-in one; the model's name when empty.
        vocab_size: Number of tokens the model knows; prompts are random token numbers below it.
        request: More fields of every request.
        keep_alive: Use a connection for several requests. A server that gives each connection a thread until it is closed wants false.
        ready: The path that answers with 200 when the server is up.
        metrics_path: Where the server tells its own metrics; empty when it does not.
        tokenize_path: Where the server turns text into tokens.
        load: Which requests.
        goal: What is looked for.
        check: Whether the answers are right.
        seed: Picks the prompts; another seed gives prompts that no cache has seen.
        start_limit_s: The server must be up by then.
        limit_s: The load must have ended this long after the server was up.
        stall_s: A server that sends no token for this long, although requests are under way, hangs.
        grace_s: What the server gets for ending when told to, before it is killed.
    """

    serve: tuple[str, ...] = Field(min_length=1, strict=False)
    env: dict[str, str] = Field(default_factory=dict)
    prepare: tuple[str, ...] = Field((), strict=False)
    model: str = Field(min_length=1)
    tokenizer: str = ""
    request: dict[str, Any] = Field(default_factory=dict)
    keep_alive: bool = True
    vocab_size: int = Field(32000, ge=16)
    ready: str = "/health"
    metrics_path: str = "/metrics"
    tokenize_path: str = "/tokenize"
    load: Load = Load()
    goal: TrialGoal = TrialGoal()
    check: AnswerCheck = AnswerCheck()
    seed: int = 0
    start_limit_s: FiniteFloat = Field(900.0, gt=0)
    limit_s: FiniteFloat = Field(900.0, gt=0)
    stall_s: FiniteFloat = Field(120.0, gt=0)
    grace_s: FiniteFloat = Field(10.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        faults = []
        if not any("{port}" in word for word in (*self.serve, *self.env.values())):
            faults.append(Fault(field="serve", rule="no argument holds {port}", fix="Example: --port {port}"))
        if self.goal.kind != "capacity" and self.load.arrival != "closed" and not self.load.request_rate:
            rule = f"arrivals that are {self.load.arrival} have a rate"
            faults.append(Fault(field="load.request_rate", rule=rule, fix="Example: request_rate=8, requests a second"))
        if self.goal.kind == "capacity" and self.load.client != "builtin":
            rule, fix = "capacity is found by the built-in client only", "Give concurrency or request_rate, or leave client out"
            faults.append(Fault(field="load.client", value=repr(self.load.client), rule=rule, fix=fix))
        if faults:
            raise Refused(faults)
        return self

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str = PLAN) -> TrialPlan:
        """Read a plan.

        Raises:
            ConfigError: with everything that is wrong with it.
        """
        fields, faults = read_fields(cls, data, where)
        refuse_if(faults)
        assert fields is not None
        return fields

    @classmethod
    def read(cls, path: Path) -> TrialPlan:
        """Read a plan from its file.

        Raises:
            ConfigError: it cannot be read, or something is wrong with it.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {error}", fix="Give the file of a plan")) from error
        if not isinstance(data, dict):
            raise ConfigError(Fault(where=str(path), rule="a plan is a mapping"))
        return cls.of(data, str(path))

    def text(self) -> str:
        """The file; equal plans give equal text."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"


__all__ = [
    "BREAKS",
    "CAPACITIES",
    "COMMAND",
    "LATENCIES",
    "LOG",
    "METRICS",
    "MODULE",
    "OUTPUTS",
    "PLAN",
    "RESULT",
    "STAGE",
    "STAGES",
    "STATISTICS",
    "THROUGHPUTS",
    "AnswerCheck",
    "AnswerReference",
    "Load",
    "TrialGoal",
    "TrialPlan",
    "split_metric",
]
