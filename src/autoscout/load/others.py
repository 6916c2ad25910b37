"""Other programs that produce load, where they are installed: their command lines, and their results under our names.

Flags and fields as in vLLM 0.24 and 0.32 (`vllm bench serve`), SGLang 0.5.23 (`sglang.bench_serving`), GuideLLM 0.8 and AIPerf 0.13.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from autoscout.core.task import Limit
from autoscout.load.answers import Reply, summary
from autoscout.load.plan import TrialPlan

HOST = "127.0.0.1"
AIPERF_OWN = "builtin"  # its own tokenizer, which it downloads once: for a model that has none that it can read, such as a GGUF file


class Unreadable(Exception):  # noqa: N818 - a result
    """The program left no result, or one that cannot be read."""


@dataclass(frozen=True)
class LoadProgram:
    """A program that produces load.

    Attributes:
        start: How it is started.
        flags: Its arguments for a plan, a port and a number of requests.
        output: The file in the trial's folder that holds its result.
        read: The metrics in the text of that file.
    """

    start: tuple[str, ...]
    flags: Callable[[TrialPlan, int, int], list[str]]
    output: str
    read: Callable[[str, Sequence[Limit]], dict[str, float]]


def command(plan: TrialPlan, port: int, requests: int) -> list[str]:
    """The command line that produces the load of a plan."""
    program = PROGRAMS[plan.load.client]
    return [*(plan.load.client_command or program.start), *program.flags(plan, port, requests)]


def read(plan: TrialPlan, folder: Path) -> dict[str, float]:
    """The metrics of the program's result.

    Raises:
        Unreadable: there is none.
    """
    program = PROGRAMS[plan.load.client]
    try:
        metrics = program.read((folder / program.output).read_text(), plan.goal.limits)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"{plan.load.client} left no result that can be read in {program.output}: {repr(error)[:300]}") from error
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _given(**flags: object) -> list[str]:
    """Flags with values; those without one are left out."""
    words: list[str] = []
    for name, value in flags.items():
        if value not in (None, "", 0, 0.0):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def _tokenizer(plan: TrialPlan) -> str:
    """Of the prompts; empty where the program is to look for one of the model's name."""
    return plan.load.client_tokenizer or plan.tokenizer


def _vllm(plan: TrialPlan, port: int, requests: int) -> list[str]:
    load = plan.load
    shape: list[str] = _given(dataset_name="sharegpt", dataset_path=load.file, sharegpt_output_len=None)
    if load.workload == "random":
        ratio = json.dumps({"input": load.input_spread / load.input_tokens, "output": load.output_spread / load.output_tokens})
        shape = _given(dataset_name="random", random_input_len=load.input_tokens, random_output_len=load.output_tokens)
        shape += _given(random_prefix_len=load.prefix_tokens, random_range_ratio=ratio)
    endpoint = {"completions": ("openai", "/v1/completions"), "chat": ("openai-chat", "/v1/chat/completions")}[load.endpoint]
    return [
        *_given(backend=endpoint[0], endpoint=endpoint[1], host=HOST, port=port, model=plan.model, tokenizer=_tokenizer(plan)),
        *shape,
        *_given(num_prompts=requests, max_concurrency=load.concurrency, request_rate=load.request_rate),
        *(_given(burstiness=_burstiness(plan)) if load.request_rate else []),
        *("--seed", str(plan.seed), "--ignore-eos", "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl,e2el"),
        *("--save-result", "--save-detailed", "--result-dir", ".", "--result-filename", PROGRAMS["vllm"].output),
    ]


def _sglang(plan: TrialPlan, port: int, requests: int) -> list[str]:
    load = plan.load
    shape = _given(dataset_name="sharegpt", dataset_path=load.file)
    if load.workload == "random":
        # Its lengths are uniform between a share of the longest and the longest; one share for prompts and answers.
        longest = load.input_tokens + load.input_spread
        shape = _given(dataset_name="random-ids", random_input_len=longest, random_output_len=load.output_tokens + load.output_spread)
        shape += _given(random_range_ratio=(load.input_tokens - load.input_spread) / longest)
    backend = {"completions": "sglang-oai", "chat": "sglang-oai-chat"}[load.endpoint]
    return [
        *_given(backend=backend, host=HOST, port=port, model=plan.model, tokenizer=_tokenizer(plan)),
        *shape,
        *_given(num_prompts=requests, max_concurrency=load.concurrency, request_rate=load.request_rate),
        *("--seed", str(plan.seed), "--disable-tqdm", "--output-details", "--output-file", PROGRAMS["sglang"].output),
    ]


def _guidellm(plan: TrialPlan, port: int, requests: int) -> list[str]:
    load = plan.load
    data = f"kind=synthetic_text,prompt_tokens={load.input_tokens},output_tokens={load.output_tokens}"
    for name, mean, spread in (("prompt", load.input_tokens, load.input_spread), ("output", load.output_tokens, load.output_spread)):
        if spread:  # of a uniform distribution as wide as ours
            data += f",{name}_tokens_stdev={max(1, round(spread / math.sqrt(3)))}"
            data += f",{name}_tokens_min={mean - spread},{name}_tokens_max={mean + spread}"
    kind = "constant" if load.arrival == "constant" else "poisson"
    profile = f"kind={kind},rate={load.request_rate}" if load.request_rate else f"kind=concurrent,streams={load.concurrency or 1}"
    path = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}[load.endpoint]
    backend = f"kind=openai_http,target=http://{HOST}:{port},model={plan.model},request_format={path}"
    tokenizer = json.dumps({"kind": "huggingface_auto", "model": _tokenizer(plan) or plan.model})
    return [
        *_given(backend=backend, profile=profile, data=data, tokenizer=tokenizer, constraint=f"kind=max_requests,count={requests}"),
        *_given(seed=f"kind=static,value={plan.seed}", output=f"kind=json,path={PROGRAMS['guidellm'].output}"),
        "--disable-console",
    ]


def _aiperf(plan: TrialPlan, port: int, requests: int) -> list[str]:
    load = plan.load
    shape = _given(input_file=load.file)
    if load.workload == "random":
        means = {"synthetic_input_tokens_mean": load.input_tokens, "output_tokens_mean": load.output_tokens}
        spreads = {"synthetic_input_tokens_stddev": load.input_spread, "output_tokens_stddev": load.output_spread}
        shape = _given(**means, **{name: round(spread / math.sqrt(3)) for name, spread in spreads.items()})
    arrival = {"constant": "constant", "burst": "gamma"}.get(load.arrival, "poisson")
    return [
        *_given(model=plan.model, url=f"http://{HOST}:{port}", endpoint_type=load.endpoint, tokenizer=_tokenizer(plan) or AIPERF_OWN),
        *("--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true", "--ui-type", "none"),
        *shape,
        *_given(request_count=requests, concurrency=load.concurrency, request_rate=load.request_rate),
        *(_given(arrival_pattern=arrival) if load.request_rate else []),
        *(_given(arrival_smoothness=load.burstiness) if load.request_rate and arrival == "gamma" else []),
        *("--random-seed", str(plan.seed), "--output-artifact-dir", "aiperf"),
    ]


def _burstiness(plan: TrialPlan) -> float:
    """vLLM's word for the shape of the gaps; very large for constant ones."""
    return {"burst": plan.load.burstiness, "constant": 1e6}.get(plan.load.arrival, 1.0)


def _detailed(text: str, limits: Sequence[Limit]) -> dict[str, float]:
    """vLLM and SGLang tell every request, so that the metrics are made as ours are."""
    data = json.loads(text.strip().splitlines()[-1] if "\n{" in text.strip() else text)
    answers = []
    details = zip(data["ttfts"], data["itls"], data["input_lens"], data["output_lens"], data["errors"], strict=True)
    for ttft_s, gaps_s, read_tokens, answer_tokens, error in details:
        answer = Reply(answer_tokens, read_tokens)
        answer.times_s = list(accumulate([ttft_s, *gaps_s])) if answer_tokens else []
        answer.output_tokens, answer.ended_s = answer_tokens, max(answer.times_s, default=0.0) or 1e-9
        answer.error = str(error or "") if answer_tokens else str(error or "no tokens")
        answers.append(answer)
    return summary(answers, float(data["duration"]), limits)


def _of_guidellm(text: str, limits: Sequence[Limit]) -> dict[str, float]:  # noqa: ARG001 - it tells no requests to count
    """Percentiles of itl are not told: its inter-token latency is the mean of each request, which is our tpot."""
    metrics = json.loads(text)["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]
    result = {
        "output_throughput": metrics["output_tokens_per_second"]["successful"]["mean"],
        "total_token_throughput": metrics["tokens_per_second"]["successful"]["mean"],
        "request_throughput": metrics["requests_per_second"]["successful"]["mean"],
        "completed": totals["successful"],
        "failed": totals["errored"],
        "input_tokens": metrics["prompt_token_count"]["successful"]["total_sum"],
        "output_tokens": metrics["output_token_count"]["successful"]["total_sum"],
    }
    names = {"ttft_ms": ("time_to_first_token_ms", 1), "tpot_ms": ("inter_token_latency_ms", 1), "e2el_ms": ("request_latency", 1000)}
    for latency, (name, unit) in names.items():
        values = metrics[name]["successful"]
        result |= {f"{statistic}_{latency}": unit * values[statistic] for statistic in ("mean", "median")}
        result |= {f"{statistic}_{latency}": unit * values["percentiles"][statistic] for statistic in ("p50", "p90", "p95", "p99")}
    return {name: float(value) for name, value in result.items()}


def _of_aiperf(text: str, limits: Sequence[Limit]) -> dict[str, float]:  # noqa: ARG001 - it tells no requests to count
    data = json.loads(text)
    metrics: dict[str, Any] = {
        "output_throughput": data["output_token_throughput"]["avg"],
        "request_throughput": data["request_throughput"]["avg"],
        "completed": data["request_count"]["avg"],
        "failed": (data.get("error_request_count") or {}).get("avg") or 0,
        "output_tokens": data["total_osl"]["avg"],
        "input_tokens": data["total_isl"]["avg"],
    }
    metrics["total_token_throughput"] = metrics["output_throughput"] * (1 + metrics["input_tokens"] / max(1, metrics["output_tokens"]))
    names = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "itl": "inter_chunk_latency", "e2el": "request_latency"}
    for latency, name in names.items():
        values: Mapping[str, Any] = data.get(name) or {}
        statistics = {"mean": "avg", "median": "p50", **{percentile: percentile for percentile in ("p50", "p90", "p95", "p99")}}
        metrics |= {f"{ours}_{latency}_ms": values[theirs] for ours, theirs in statistics.items() if values.get(theirs) is not None}
    return {name: float(value) for name, value in metrics.items()}


PROGRAMS = {
    "vllm": LoadProgram(("vllm", "bench", "serve"), _vllm, "vllm-bench.json", _detailed),
    "sglang": LoadProgram(("python3", "-m", "sglang.bench_serving"), _sglang, "sglang-bench.jsonl", _detailed),
    "guidellm": LoadProgram(("guidellm", "run"), _guidellm, "guidellm.json", _of_guidellm),
    "aiperf": LoadProgram(("aiperf", "profile"), _aiperf, "aiperf/profile_export_aiperf.json", _of_aiperf),
}
