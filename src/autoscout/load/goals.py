"""From an objective to a load and a kind of trial: what is left out is chosen the same way for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Objective
from autoscout.load.plan import CAPACITIES, LATENCIES, THROUGHPUTS, Load, split_metric
from autoscout.load.text import read_text, title
from autoscout.load.workload import read_files
from autoscout.traffic.words import summary

OFFLINE_REQUESTS = 512  # sent at once where nothing is said

AnyLoad = TypeVar("AnyLoad", bound=Load)


def usual_metric(load: Load, has_limits: bool) -> str:
    """What to improve when nothing is named: with limits the capacity, or what a given load achieves; without them the throughput."""
    if has_limits and (load.request_rate or (load.workload == "trace" and not load.concurrency)):
        return "goodput"
    return "capacity_rps" if has_limits and not load.concurrency else THROUGHPUTS[0]


def goal_kind(load: Load, objective: Objective) -> str:
    """The kind of trial that measures an objective; throughput and cost under limits on latencies are those at the capacity."""
    if objective.metric in CAPACITIES:
        return "capacity"
    if objective.metric == "goodput":
        return "goodput"
    if load.concurrency or load.request_rate or load.workload == "trace":
        return "latency"
    is_bounded = any(_is_latency(limit.metric) and not limit.guard for limit in objective.limits) and not _is_latency(objective.metric)
    return "capacity" if is_bounded else "offline"


def fill(load: AnyLoad, objective: Objective) -> AnyLoad:
    """The load with arrivals and clients that suit the goal, where they were left out.

    Raises:
        ConfigError: a latency is to be improved, and nothing says at which load; or sessions, and there are none.
    """
    kind = goal_kind(load, objective)
    if objective.metric == CAPACITIES[1] and any(session.turns == 1 for session in load.sessions):
        rule, fix = (
            "counts sessions that ask more than once, and this load has none",
            "Give -w workload=multi_turn, or a traffic with sessions",
        )
        raise ConfigError(Fault(where="goal", value=objective.metric, rule=rule, fix=fix))
    latencies = [goal.metric for goal in objective.goals if _is_latency(goal.metric)]
    if kind == "offline" and latencies:
        fix = "Give -w concurrency=8 or -w request_rate=4"
        raise ConfigError(Fault(where="goal", value=latencies[0], rule="depends on the load: how many requests are under way?", fix=fix))
    is_timed = (kind in ("capacity", "goodput") or load.request_rate > 0) and load.workload != "trace"  # which has arrivals of its own
    if is_timed and "arrival" not in load.model_fields_set:
        traffic = load.description if load.workload == "traffic" else None
        bursts = traffic is not None and any(window.gap_variation is not None for window in traffic.judged)
        return load.model_copy(update={"arrival": "burst" if bursts else "poisson", **({"burstiness": 1.0} if bursts else {})})
    if kind == "offline" and not load.requests:
        return load.model_copy(update={"requests": OFFLINE_REQUESTS})
    return load


def slo_of(objective: Objective) -> tuple[str, ...]:
    """The limits that a trial keeps in mind; guards are relative to the default, which it does not know."""
    return tuple(str(limit) for limit in objective.limits if not limit.guard)


def description(load: Load, kind: str) -> str:
    """Where the load comes from and what it is, in one sentence."""
    prompt, answer = _about(load.input_tokens, load.input_spread), _about(load.output_tokens, load.output_spread)
    lengths = f"lengths of {Path(load.file).name}" if load.file else f"prompts of {prompt} tokens, answers of {answer}"
    if load.workload == "traffic" and (traffic := load.description) is not None:
        lengths = summary(traffic)
    if words := title(load.text_name):
        lengths += f", cut from {words}"
    keeps_times = load.workload == "trace" and load.arrival == "closed"
    arrivals = "arrivals of the trace" if keeps_times else f"{load.arrival} arrivals"
    if kind == "capacity":
        how = f"request rates are searched within one start of the server, {arrivals}"
    elif kind == "offline":
        how = "all requests at once"
    elif load.request_rate:
        how = f"{load.request_rate:g} requests/s, {arrivals}"
    else:
        how = f"{load.concurrency} requests in flight" if load.concurrency else arrivals
    return f"{load.client} client on the same machine over HTTP, {load.workload} requests: {lengths}; {how}."


def file_faults(load: Load) -> list[Fault]:
    """What is wrong with the file of a load; read now, because the trials would start a server before they read it."""
    path = Path(load.file).expanduser()
    if load.file and not path.is_file():
        return [Fault(where="workload", field="file", value=repr(load.file), rule="there is no such file", fix="Check the path")]
    if load.client == "builtin":
        try:
            if load.text_name:
                read_text(load.text_name)
            read_files(load, path)
        except ConfigError as error:
            return list(error.faults)
    return []


def absolute(word: str) -> str:
    """The absolute path of a word that names something here, else the word: trials run in folders of their own."""
    path = Path(word).expanduser()
    try:
        return str(path.absolute()) if word and path.exists() else word
    except (OSError, ValueError):  # too long for the name of a file; holds a zero byte
        return word


def _is_latency(metric: str) -> bool:
    return split_metric(metric)[1] in LATENCIES


def _about(mean: int, spread: int) -> str:
    return f"{mean}±{spread}" if spread else str(mean)
