"""Reads a serving job, its limits and its load from a task and a config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoscout.catalog.gpus import MOST_RATE, Cluster, gpu_fields
from autoscout.catalog.models import ModelShape
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Task
from autoscout.simulators._shared.task import first_given, number, read_cluster, read_model
from autoscout.simulators.serving.job import (
    ENGINES,
    KEPT_SHARE,
    PROMPTS_FIRST,
    ServingJob,
    bytes_per_weight,
    model_serving_fields,
    precision_named,
)
from autoscout.simulators.serving.loop import EngineLimits
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.sessions import SessionShape

KNOBS: dict[str, tuple[str, ...]] = {
    "tp": ("tp", "tensor_parallel_size", "tensor_parallel", "tp_size"),
    "pp": ("pp", "pipeline_parallel_size", "pipeline_parallel", "pp_size"),
    "dp": ("dp", "data_parallel_size", "data_parallel", "dp_size"),
    "prefill_gpus": ("prefill_gpus",),
    "prefill_tp": ("prefill_tp",),
    "expert_parallel": ("enable_expert_parallel", "expert_parallel", "ep"),
    "max_requests": ("max_num_seqs", "max_running_requests", "max_batch_size"),
    "max_step_tokens": ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens"),
    "memory_share": ("gpu_memory_utilization", "mem_fraction_static", "kv_cache_free_gpu_mem_fraction"),
    "eager": ("enforce_eager", "disable_cuda_graph"),
    "chunked": ("enable_chunked_prefill", "chunked_prefill"),
    "mixed": ("enable_mixed_chunk",),
    "kept_share": ("schedule_conservativeness",),
    "kv_dtype": ("kv_cache_dtype", "kv_dtype"),
    "precision": ("quantization", "precision", "dtype"),
}
"""What the serving model reads -> the knob names it is known by."""


@dataclass(frozen=True, kw_only=True)
class ServingTask:
    """What a task says about serving besides the knobs."""

    shape: ModelShape
    cluster: Cluster
    input_tokens: int
    output_tokens: int
    concurrency: int | None
    request_rate: float | None
    requests: int
    engine: int
    fixed: Mapping[str, Any]
    limits: Mapping[str, float]  # in the unit of the metric, by its name
    capacity: bool = False  # whether the highest rate within the limits is asked for
    windows: tuple[TrafficWindow, ...] = ()  # of the traffic that is asked for; none of lengths around the two means
    session: SessionShape  # where no window says how sessions ask
    bursts: bool = False  # whether requests come in the bursts of the traffic


CAPACITY = "capacity_rps"
SESSIONS = "capacity_sessions"
"""The metrics for which a rate is looked for instead of given: requests a second, and the sessions that send them."""
MOST_REQUESTS = 1_000_000  # of one simulated benchmark
MOST_DEGREE = 1e6  # of any parallelism


def read_serving_task(task: Task) -> ServingTask:
    """Read model, GPUs, lengths and load; all faults at once."""
    load = dict(task.workload)
    facts = {**task.software, **task.hardware, **load}
    faults: list[Fault] = []

    shape, machines, traffic = None, None, None
    try:
        shape = read_model(load.get("model"))
    except ConfigError as error:
        faults.extend(error.faults)
    try:
        machines = read_cluster(facts, count=1)
    except ConfigError as error:
        faults.extend(error.faults)
    lengths = {
        "input_tokens": first_given(facts, "input_tokens", "isl", "input_len", "random_input_len", "prompt_tokens"),
        "output_tokens": first_given(facts, "output_tokens", "osl", "output_len", "random_output_len"),
    }
    for name, value in lengths.items():
        if value is None or not 1 <= number(value) <= MOST_RATE:
            faults.append(Fault(where="task", field=f"workload.{name}", value=repr(value), rule="must be a number of tokens"))
    rate, concurrency = first_given(facts, "request_rate", "qps"), first_given(facts, "concurrency", "max_concurrency")
    for name, value in (("request_rate", rate), ("concurrency", concurrency)):
        if value is not None and not number(value) > 0:
            faults.append(Fault(where="task", field=f"workload.{name}", value=repr(value), rule="must be above 0"))
    try:
        traffic = Traffic.from_json(load["traffic"]) if load.get("traffic") else None
    except ConfigError as error:
        faults.extend(error.faults)
    count = first_given(facts, "requests", "num_prompts")
    for name, value in (("concurrency", concurrency), ("requests", count)):
        if value is not None and number(value) > MOST_REQUESTS:
            rule = f"at most {MOST_REQUESTS:,} requests are simulated"
            faults.append(Fault(where="task", field=f"workload.{name}", value=repr(value), rule=rule))
    if machines is not None and len(machines.groups) > 1:
        kinds = " and ".join(one.name for one, _ in machines.groups)
        rule = "the serving model knows replicas on one kind of GPU"
        faults.append(Fault(where="task", field="hardware.gpus", value=kinds, rule=rule, fix="Ask for each kind on its own"))
    capacity = task.objective.metric in (CAPACITY, SESSIONS)
    if rate is None and concurrency is None and count is not None:
        concurrency = count  # all at once
    if rate is None and concurrency is None and not capacity:
        faults.append(Fault(where="task", field="workload.concurrency", rule="give concurrency, or request_rate in requests per second"))
    if faults or shape is None or machines is None:
        raise ConfigError(faults)
    rounds = 4 * min(2048, int(number(concurrency))) if concurrency is not None else 0  # enough to see the steady state
    requests = int(number(count)) if count is not None else max(200, rounds)
    if rate is not None and number(rate) == float("inf") and concurrency is None:
        concurrency = requests  # all at once
    engine = str(first_given(facts, "engine") or task.system).lower().replace("-", "").replace("tensorrt", "trt")
    return ServingTask(
        shape=shape,
        cluster=machines,
        input_tokens=int(number(lengths["input_tokens"])),
        output_tokens=int(number(lengths["output_tokens"])),
        concurrency=int(number(concurrency)) if concurrency is not None else None,
        request_rate=number(rate) if rate is not None and number(rate) != float("inf") else None,
        requests=requests,
        engine=ENGINES.index(engine) if engine in ENGINES else 0,
        fixed={name: facts[name] for names in KNOBS.values() for name in names if name in facts},
        limits={limit.metric: limit.value for limit in task.objective.limits if limit.op.startswith("<")},
        capacity=capacity,
        windows=traffic.judged if traffic is not None else (),
        session=_session(load),
        bursts=load.get("arrival", "burst") == "burst",
    )


def _session(load: Mapping[str, Any]) -> SessionShape:
    if load.get("workload") != "multi_turn":
        return SessionShape()
    turns, branches = (max(1, int(min(number(load.get(name) or 1), MOST_DEGREE))) for name in ("turns", "branches"))
    return SessionShape(turns, branches, number(load.get("think_s") or 0))


@dataclass(frozen=True, kw_only=True)
class SimulatedDeployment:
    """One config: the job of a replica, its engine limits, and how many replicas share the load."""

    job: ServingJob
    limits: EngineLimits
    memory_share: float
    replicas: int
    fits: bool
    prompts: SimulatedDeployment | None = None  # replicas that compute prompts only, on GPUs of their own

    @property
    def alike(self) -> int:
        """Equal parts that the whole can be cut into."""
        return self.replicas if self.prompts is None else math.gcd(self.replicas, self.prompts.replicas)


SPECULATION = ("speculative_method", "speculative_algorithm", "spec_type")
"""Knobs that switch speculative decoding on, which this model does not know: it depends on what the texts say."""


def guesses_ahead(config: Mapping[str, Any]) -> bool:
    """Whether tokens are guessed ahead, so that predictions are a guess themselves."""
    return any(config.get(name) not in (None, "none") for name in SPECULATION)


def read_deployment(config: Mapping[str, Any], reading: ServingTask) -> SimulatedDeployment:
    """Read a config's knobs; those it leaves out take the engine's usual values."""
    values = {**reading.fixed, **config}
    apart = int(min(number(values.get("prefill_gpus")), MOST_DEGREE))
    if apart < 1:
        return _deployment(values, reading, reading.cluster.gpus)
    ranks = number(values.get("prefill_tp") or 1)
    rest = {name: value for name, value in values.items() if name not in KNOBS["dp"] or apart >= reading.cluster.gpus}
    names = {name for field in ("tp", "pp", "dp") for name in KNOBS[field]}
    prompts = _deployment({**{name: value for name, value in values.items() if name not in names}, "tp": ranks}, reading, apart)
    answers = _deployment(rest, reading, max(1, reading.cluster.gpus - apart))
    return replace(answers, prompts=prompts, fits=answers.fits and prompts.fits and apart < reading.cluster.gpus)


def _deployment(values: Mapping[str, Any], reading: ServingTask, gpus: int) -> SimulatedDeployment:

    def knob(name: str, default: Any) -> Any:
        return next((values[alias] for alias in KNOBS[name] if values.get(alias) not in (None, "")), default)

    shape, gpu = reading.shape, reading.cluster.groups[0][0]
    asked = [int(min(number(knob(name, 1)), MOST_DEGREE)) for name in ("tp", "pp")]
    tp, pp = (max(1, degree) for degree in asked)
    world = max(1, gpus // (tp * pp))
    asked.append(int(min(number(knob("dp", world)), MOST_DEGREE)))
    replicas = max(1, asked[-1])
    spread_experts = bool(shape.experts) and number(knob("expert_parallel", 0)) > 0
    format_name = str(knob("precision", "auto")).lower()  # `auto`: as the weights are published
    precision = precision_named(shape.stored if format_name == "auto" else format_name) or "bf16"
    weight = bytes_per_weight(precision)
    together = replicas if spread_experts else 1  # attention replicas that share one set of experts
    load = reading.concurrency or 64
    job = ServingJob(
        **model_serving_fields(shape),
        **gpu_fields(gpu, reading.cluster, precision),
        weight_bytes=weight,
        expert_bytes=weight,
        kv_bytes=1.0 if "fp8" in str(knob("kv_dtype", "")).lower() else 2.0,
        tp=float(tp),
        pp=float(pp),
        attention_dp=float(together),
        moe_tp=1.0 if spread_experts else float(tp),
        moe_ep=float(tp * together) if spread_experts else 1.0,
        engine=float(reading.engine),
        eager=float(number(knob("eager", 0)) > 0),
        input_tokens=float(reading.input_tokens),
        output_tokens=float(reading.output_tokens),
        batch=float(max(1, -(-load // replicas))),
    )
    limits = EngineLimits(
        max_requests=max(1, int(min(number(knob("max_requests", 256)), MOST_REQUESTS))),
        max_step_tokens=max(1, int(min(number(knob("max_step_tokens", 8192)), MOST_RATE))),
        kept_share=min(1.0, max(0.0, KEPT_SHARE[reading.engine] * number(knob("kept_share", 1)))),
        chunked=number(knob("chunked", 1)) > 0,
        mixed=number(knob("mixed", not PROMPTS_FIRST[reading.engine])) > 0,
    )
    fits = tp * pp * replicas <= gpus and shape.heads % tp == 0 and min(asked) >= 1
    return SimulatedDeployment(job=job, limits=limits, memory_share=number(knob("memory_share", 0.9)), replicas=replicas, fits=fits)


__all__ = ["CAPACITY", "KNOBS", "SESSIONS", "ServingTask", "SimulatedDeployment", "guesses_ahead", "read_deployment", "read_serving_task"]
