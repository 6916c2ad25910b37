"""What the metrics mean, in words, and their units: for the reference and for pages that show them."""

from __future__ import annotations

import re
from collections.abc import Mapping

LATENCIES = {
    "ttft_ms": "from sending a request to its first token",
    "tpot_ms": "per further token of a request: (end - first token) / (tokens - 1)",
    "itl_ms": "between two tokens of a request",
    "e2el_ms": "from sending a request to its last token",
}
"""What is timed of a request, in milliseconds -> what it is."""
STATISTICS = {
    "mean": "mean",
    "median": "median",
    "p50": "median",
    "p90": "90th percentile",
    "p95": "95th percentile",
    "p99": "99th percentile",
}
"""Prefix of a latency -> what it takes of all requests (of `itl_ms`: of all gaps between tokens)."""

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "Serving": {
        "output_throughput": "generated tokens per second",
        "total_token_throughput": "tokens of prompts and answers per second",
        "request_throughput": "answered requests per second",
        "goodput": "requests per second that keep all limits, at a given rate",
        "capacity_rps": "highest rate of requests that keeps all limits",
        "capacity_sessions": "sessions under way at that rate, those that pause between two requests included",
        "capacity_low_rps": "highest rate that was seen to keep them",
        "capacity_high_rps": "lowest rate that was seen to break one",
        "capacity_confirmed": "1 where a longer measurement confirmed the capacity, else 0",
        "offered_rps": "requests per second that were sent where a rate was asked for",
        "sessions_under_way": "conversations that were under way at a time, at a given rate or number",
        "completed": "requests that were answered",
        "failed": "requests that were not",
        "input_tokens": "tokens of all prompts",
        "output_tokens": "tokens of all answers",
        "preemptions": "requests that the engine put back because its cache was full",
        "prefix_hit_share": "share of prompt tokens that the engine had in its cache",
        "acceptance_rate": "share of guessed tokens that were right, with speculative decoding",
        "acceptance_length": "tokens that one step of the model gave with speculative decoding, its own included",
        "token_agreement": "share of tokens equal to the default's, among those that follow equal ones",
        "mean_logprob_error": "how far log-probabilities are from the default's, in nats",
        "divergence": "how far next-token probabilities are from the default's: mean KL divergence, in nats per token",
        "start_s": "until the server answered",
        "peak_mem_gib": "most memory of the server; of all processes of the trial where it has several",
    },
    "Training": {
        "tokens_per_s": "tokens trained on per second, by all processes",
        "samples_per_s": "sequences trained on per second, by all processes",
        "step_ms": "mean time of an optimizer step",
        "tflops_per_gpu": "arithmetic of the model per second and GPU, where the program counts it",
        "peak_mem_gib": "most memory that a process held: of its GPU, or of the machine",
        "free_mem_gib": "memory left at that peak, on the fullest GPU",
        "loss_after": "mean loss of the three steps up to `loss_steps`",
    },
    "Any program": {
        "wall_s": "time from the start of the command to its end",
        "peak_mem_gib": "most memory of all its processes",
    },
    "Cost and energy, where they can be worked out": {
        "cost_per_million_tokens": "price of the GPUs for the time that a million output tokens take",
        "energy_j": "joules of the GPUs of the launch, its start included",
        "tokens_per_joule": "tokens per second by watts, while the GPUs worked",
    },
    "Cluster schedulers, simulated": {
        "jobs": "jobs that count",
        "ended": "those of them that ended",
        "mean_jct_s": "time from arrival to end: mean",
        "median_jct_s": "its median",
        "p90_jct_s": "its 90th percentile",
        "p99_jct_s": "its 99th percentile",
        "p999_jct_s": "its 99.9th percentile",
        "gpu_weighted_jct_s": "its mean, each job weighted by its GPUs",
        "charged_jct_s": "its mean, unfinished jobs charged with the work they still have",
        "mean_queue_s": "time without GPUs: mean",
        "p90_queue_s": "its 90th percentile",
        "p99_queue_s": "its 99th percentile",
        "p999_queue_s": "its 99.9th percentile",
        "mean_slowdown": "time from arrival to end, in times the work of the job",
        "makespan_s": "from the first arrival to the last end",
        "utilisation": "share of the GPUs' time that was used",
        "load": "work of all jobs, as a share of what the GPUs could do in the run",
        "fragmentation": "share of the GPUs' time that was idle while somebody waited",
        "preemptions": "how often a running job was stopped",
        "preemptions_per_job": "the same per job",
        "promotions": "how often a job was moved up because it had waited too long",
        "lease_expiries": "how often a lease ended",
        "gpus_per_job": "GPUs that a job asks for, in the mean",
        "run_slowdown": "time on GPUs, in times the work: what spreading, sharing and restarts cost",
        "fair_share": "share of jobs with rho of at most 1; rho is the time to the end, in times what a fair share would have given",
        "fair_share_forgiving": "the same up to 1.1",
        "mean_rho": "mean of rho",
        "p99_rho": "its 99th percentile",
        "packed_share": "share of jobs that ever shared their GPUs, of schedulers that pack",
        "profiler_wait_s": "mean wait for a profiler, of schedulers that profile",
    },
}
"""Kind of system -> metric -> what it is. Latencies are put together from `LATENCIES` and `STATISTICS`."""

_UNITS: Mapping[str, str] = {
    "output_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
    "request_throughput": "requests/s",
    "request_goodput": "requests/s",
    "goodput": "requests/s",
    "tflops_per_gpu": "Tflop/s",
    "acceptance_length": "tokens/step",
    "mean_logprob_error": "nats",
    "divergence": "nats/token",
}
"""Metric -> its unit, where the name does not end with it."""

_LONGER = re.compile(rf"({'|'.join(STATISTICS)})_tpot(\d+)_ms")
_LATENCY = re.compile(rf"({'|'.join(STATISTICS)})_({'|'.join(LATENCIES)})")


def meaning(metric: str) -> str:
    """What a metric is, in words; empty for those that people name themselves.

    >>> meaning("p95_ttft_ms")
    'from sending a request to its first token: 95th percentile'
    """
    if match := _LATENCY.fullmatch(metric):
        return f"{LATENCIES[match[2]]}: {STATISTICS[match[1]]}"
    if match := _LONGER.fullmatch(metric):
        return f"{LATENCIES['tpot_ms']}: {STATISTICS[match[1]]} over answers of at least {match[2]} tokens"
    return next((group[metric] for group in MEANINGS.values() if metric in group), "")


def axis_name(name: str, unit: str = "", *, log: bool = False) -> str:
    """What an axis is called: a metric or a knob with its unit, where the name does not end with it.

    >>> axis_name("output_throughput", log=True)
    'output_throughput (tokens/s, log)'
    >>> axis_name("p95_ttft_ms")
    'p95_ttft_ms'
    """
    unit = unit or _UNITS.get(name, "")
    notes = [*([unit] if unit and not name.endswith(f"_{unit}") else []), *(["log"] if log else [])]
    return f"{name} ({', '.join(notes)})" if notes else name
