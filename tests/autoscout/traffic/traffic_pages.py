"""Pages of metrics as vLLM, SGLang and llama.cpp write them, of requests that a test draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ONE_TWO_FIVE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000]
"""Buckets of vLLM for a model of 32k tokens."""
SGLANG_BUCKETS = [100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12000, 15000, 20000]


def lengths(count: int, mean: float, spread: float, seed: int) -> list[int]:
    """Log-normal numbers of tokens."""
    random = np.random.default_rng(seed)
    return [max(1, int(value)) for value in random.lognormal(np.log(mean) - spread**2 / 2, spread, count)]


def histogram(name: str, values: Sequence[int], buckets: Sequence[int], labels: str) -> str:
    """In Prometheus' text format."""
    lines = [f"# HELP {name} Number of tokens.", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{labels},le="{float(edge)}"}} {float((np.asarray(values) <= edge).sum())}' for edge in buckets]
    lines += [f'{name}_bucket{{{labels},le="+Inf"}} {float(len(values))}']
    lines += [f"{name}_count{{{labels}}} {float(len(values))}", f"{name}_sum{{{labels}}} {float(sum(values))}"]
    return "\n".join(lines) + "\n"


def vllm_page(inputs: Sequence[int], outputs: Sequence[int], *, version: str = "0.24", hits: float = 0.0) -> str:
    """vLLM 0.6 has no engine label and tells the hit rate as a gauge; from 0.8 on there are counters, without a prefix of the GPU later."""
    labels = 'model_name="m"' if version == "0.6" else 'engine="0",model_name="m"'
    page = histogram("vllm:request_prompt_tokens", inputs, ONE_TWO_FIVE, labels)
    page += histogram("vllm:request_generation_tokens", outputs, ONE_TWO_FIVE, labels)
    page += f'vllm:request_success_total{{finished_reason="stop",{labels}}} {len(inputs)}.0\n'
    page += f"vllm:prompt_tokens_total{{{labels}}} {sum(inputs)}.0\nvllm:generation_tokens_total{{{labels}}} {sum(outputs)}.0\n"
    if version == "0.6":
        return page + f"vllm:gpu_prefix_cache_hit_rate{{{labels}}} 0.3\nvllm:num_requests_swapped{{{labels}}} 0.0\n"
    counters = "vllm:gpu_prefix_cache" if version == "0.8" else "vllm:prefix_cache"
    return page + f"{counters}_queries_total{{{labels}}} {sum(inputs)}.0\n{counters}_hits_total{{{labels}}} {hits * sum(inputs)}\n"


def sglang_page(inputs: Sequence[int], outputs: Sequence[int], *, with_histograms: bool = True, hits: float = 0.0) -> str:
    """SGLang counts always, and has histograms where it was started with --collect-tokens-histogram."""
    labels = 'model_name="m"'
    page = f"sglang:prompt_tokens_total{{{labels}}} {sum(inputs)}.0\nsglang:generation_tokens_total{{{labels}}} {sum(outputs)}.0\n"
    page += f"sglang:num_requests_total{{{labels}}} {len(inputs)}.0\nsglang:cached_tokens_total{{{labels}}} {hits * sum(inputs)}\n"
    if with_histograms:
        page += histogram("sglang:prompt_tokens_histogram", inputs, SGLANG_BUCKETS, labels)
        page += histogram("sglang:generation_tokens_histogram", outputs, [100, 300, 500, 1000, 1200, 1500, 2000, 3000], labels)
    return page


def llamacpp_page(inputs: int, outputs: int, cached: float = 0.0) -> str:
    """llama.cpp tells totals only; what it remembers of prompts it counts apart."""
    text = "# HELP llamacpp:{0} Number of tokens.\n# TYPE llamacpp:{0} counter\nllamacpp:{0} {1}\n"
    totals = {
        "prompt_tokens_total": inputs * (1 - cached),
        "prompt_tokens_cached_total": inputs * cached,
        "tokens_predicted_total": outputs,
    }
    return "".join(text.format(name, value) for name, value in totals.items())
