"""The tools that a client of the Model Context Protocol sees: names, arguments, and what each answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Annotated, Any, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from autoscout import __version__
from autoscout.agent.program import PATIENCE_S, Program
from autoscout.agent.studies import Studies
from autoscout.agent.words import Subject, bounded, flags
from autoscout.cli.documents import ResultDocument
from autoscout.core.errors import AutoScoutError
from autoscout.core.secrecy import without_secrets

Arguments = ParamSpec("Arguments")
Document = dict[str, Any]
Tool = Callable[..., Any]

INSTRUCTIONS = """AutoScout finds which settings to run an ML system with, by few real measurements.
Look before you measure: `doctor`, `space`, `estimate` and `render` run nothing. A study (`tune`) needs a budget. It runs in the background
and outlives this session: follow it with `status`, read it with `report`. Claim a gain only where `verdict` is `gain`; where it is
`not decided`, `next` names what would decide. `answer` is the configuration to run, and the folder `best/` holds files that run it."""

Name = Annotated[str, Field(description="name of the study, as in `studies`")]
Budget = Annotated[str, Field(description="time on the clock, the final included: 90s, 20m, 2h")]
Trials = Annotated[int, Field(description="configurations to measure in all; 0: as many as the time allows", ge=0)]
Limits = Annotated[list[str], Field(description="limits to keep, such as p95_ttft_ms<=500")]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)


def refusable(tool: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
    """The tool, whose refusals are documents with every fault; what it answers has no secrets."""

    @wraps(tool)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Any:
        try:
            return without_secrets(tool(*args, **kwargs))
        except AutoScoutError as error:
            faults = [{name: value for name, value in asdict(fault).items() if value} for fault in error.faults]
            raise ToolError(json.dumps(without_secrets({"error": type(error).__name__, "faults": faults}))) from error

    return call


def make_server(studies: Studies, program: Program, *, may_run: bool, most_s: float) -> MCPServer[Any]:
    """A server with the tools that read, and with those that run where that is allowed.

    Args:
        studies: The studies that may be read, started and stopped.
        program: Runs verbs.
        may_run: Whether tools may start programs of the user's: trials, and so servers and training jobs.
        most_s: The longest budget that a call may ask for.
    """
    server: MCPServer[Any] = MCPServer(name="autoscout", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in reading(studies, program):
        server.add_tool(refusable(tool), annotations=READS)
    for tool in running(studies, program, most_s) if may_run else ():
        server.add_tool(refusable(tool), annotations=RUNS)
    return server


def reading(studies: Studies, program: Program) -> tuple[Tool, ...]:
    """Tools that start no trial."""

    def doctor() -> Document:
        """Which backends, searchers and executors work here, what is missing, and what this machine offers."""
        return program.document(["doctor"])

    def space(subject: Subject) -> Document:
        """What may be chosen: knobs with their values and defaults, conditions, constraints."""
        with subject.words() as words:
            return program.document(["space", "show", *words])

    def render(subject: Subject) -> Document:
        """The command, variables and files of one configuration; nothing is started."""
        with subject.words() as words:
            return program.document(["render", *words])

    def estimate(
        system: Annotated[str, Field(description="megatron, fsdp, deepspeed for training; vllm, sglang, trtllm for serving")] = "",
        model: Annotated[str, Field(description="a known model, a Hugging Face path, or a config.json")] = "",
        gpus: Annotated[str, Field(description="COUNTxGPU, such as 8xH100 or 8xA100-80+4xA40")] = "",
        launch: Annotated[str, Field(description="the launch that runs today: a row of its own")] = "",
        input_tokens: Annotated[int | None, Field(description="serving: tokens per prompt")] = None,
        output_tokens: Annotated[int | None, Field(description="serving: tokens per answer")] = None,
        rate: Annotated[float | None, Field(description="serving: requests per second")] = None,
        slo: Limits = [],  # noqa: B006 - never changed
        sequence: Annotated[int | None, Field(description="training: tokens per sequence")] = None,
        batch: Annotated[int | None, Field(description="training: sequences per step")] = None,
        settings: Annotated[dict[str, Any], Field(description="knobs to pin")] = {},  # noqa: B006 - never changed
        top: Annotated[int, Field(description="how many configurations", ge=1, le=50)] = 5,
    ) -> Document:
        """Predict the best configurations with their time and memory, on any GPUs. Simulated, with its error; runs nothing."""
        asked = flags(
            model=model,
            gpus=gpus,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            rate=rate,
            slo=slo,
            sequence=sequence,
            batch=batch,
        )
        named = flags(set=[f"{name}={value}" for name, value in settings.items()], top=top) + (["--from", launch] if launch else [])
        return program.document(["estimate", *([system] if system else []), *asked, *named])

    def list_studies() -> Document:
        """All studies of the folder: state, trials, verdict and headline, the newest first."""
        return studies.rows()

    def status(
        name: Name,
        wait_s: Annotated[float, Field(description="wait this long for it to end, at most 600", ge=0)] = 0.0,
        trials: Annotated[int, Field(description="or until it has this many trials", ge=0)] = 0,
    ) -> Document:
        """How a study stands: state, trials so far, what looks best, and the end of its output."""
        return studies.status(name, wait_s, trials)

    def report(name: Name) -> ResultDocument:
        """The result of a study, also of one under way: verdict, gain with its interval, answer, changes, costs."""
        return ResultDocument.model_validate(program.document(["report", studies.folder(name)]))

    def explain(name: Name, trial: Annotated[int | None, Field(description="only this trial")] = None) -> Document:
        """Who proposed what, and the steps by which the best was found."""
        return program.document(["explain", studies.folder(name), *flags(trial=str(trial) if trial is not None else "")])

    def compare(names: Annotated[list[str], Field(description="studies of one system under several loads", min_length=2)]) -> Document:
        """What several studies hand over, next to each other by what sets their loads apart."""
        return program.document(["compare", *(studies.folder(name) for name in names)])

    def drift(
        name: Name,
        traffic: Annotated[str, Field(description="what users ask today: an address, a log, a trace, a description")],
    ) -> Document:
        """Whether a new study would pay on today's traffic, by prediction. It changes nothing."""
        return program.document(["drift", studies.folder(name), *flags(traffic=traffic)])

    list_studies.__name__ = "studies"
    return doctor, space, render, estimate, list_studies, status, report, explain, compare, drift


def running(studies: Studies, program: Program, most_s: float) -> tuple[Tool, ...]:
    """Tools that start trials, or end them."""

    def bounds(budget: str, trials: int) -> Document:
        bounded(budget, most_s, "budget")
        return {"budget": budget, "max_trials": trials or None}

    def profile(
        subject: Subject,
        limit: Annotated[str, Field(description="time for one measurement: 90s, 10m")],
        slo: Limits = [],  # noqa: B006 - never changed
        repeats: Annotated[int, Field(description="how often to measure it", ge=1, le=20)] = 1,
    ) -> Document:
        """Measure one configuration for real and wait for its metrics; nothing is stored."""
        seconds = bounded(limit, most_s, "limit")
        with subject.words() as words:
            asked = ["profile", *words, *flags(slo=slo, limit=limit, repeats=repeats)]
            return program.document(asked, limit_s=repeats * seconds + PATIENCE_S)

    def tune(
        subject: Subject,
        name: Annotated[str, Field(description="name of the study and its folder; one that exists is resumed", pattern=r"^[\w][\w.-]*$")],
        budget: Budget,
        max_trials: Trials = 0,
        metric: Annotated[str, Field(description="the metric to improve; empty: the backend's own")] = "",
        direction: Annotated[str, Field(description="minimize or maximize; empty: as usual for the metric")] = "",
        slo: Limits = [],  # noqa: B006 - never changed
        allow_lossy: Annotated[bool, Field(description="also search knobs that change the answers, guarded")] = False,
    ) -> Document:
        """Start a study that looks for a better configuration by measuring. Answers once it runs; follow it with `status`."""
        options = flags(metric=metric, direction=direction, slo=slo, allow_lossy=allow_lossy)
        return studies.start(name, subject, bounds(budget, max_trials), options)

    def resume(name: Name, budget: Budget, max_trials: Trials = 0) -> Document:
        """Continue a study; the budget counts in all, what was spent before included."""
        return studies.resume(name, bounds(budget, max_trials))

    def stop(name: Name, reason: Annotated[str, Field(description="why, kept with the study", max_length=500)] = "") -> Document:
        """Ask a study to end when the trials under way are done. Everything measured is kept, and `resume` continues it."""
        return studies.stop(name, reason)

    def check(
        subject: Subject,
        limit: Annotated[str, Field(description="time for one measurement: 90s, 10m")],
        against: Annotated[str, Field(description="KNOB=VALUE,..., a campaign file, or a document; empty: the default")] = "",
        rounds: Annotated[int, Field(description="how often each is measured; an interval needs three", ge=1, le=20)] = 5,
        tolerance: Annotated[float, Field(description="per cent by which it may be worse", ge=0, le=90)] = 2.0,
    ) -> Document:
        """Measure a configuration or version in turn with another, and wait for the verdict: better, as good, worse, not decided."""
        seconds = bounded(limit, most_s, "limit")
        with subject.words() as words:
            asked = ["check", *words, *flags(against=against, limit=limit, rounds=rounds), "--tolerance", str(tolerance)]
            return program.document(asked, limit_s=2 * rounds * seconds + PATIENCE_S)

    def curve(
        name: Name,
        limit: Annotated[str, Field(description="time for the whole curve: 30m, 2h")],
        concurrency: Annotated[str, Field(description="requests in flight, one after another: 1,4,16,64")] = "",
        rates: Annotated[str, Field(description="requests a second instead: 1,2,4")] = "",
        rounds: Annotated[int, Field(description="how often each point is measured", ge=1, le=20)] = 3,
    ) -> Document:
        """Tokens/s per GPU against tokens/s per user over loads, for the default and the best of a study of a server."""
        asked = ["curve", studies.folder(name), *flags(concurrency=concurrency, rates=rates, rounds=rounds)]
        return program.document(asked, limit_s=bounded(limit, most_s, "limit"))

    return profile, check, curve, tune, resume, stop
