"""SGLang: how it is started, and what it does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.core.config import Value
from autoscout.engines.backend import EngineBackend
from autoscout.engines.engine import Engine

MEMORY_TIERS = ((20, 2048, 8), (35, 4096, 48), (60, 4096, 32), (160, 8192, 256), (float("inf"), 16384, 512))
"""GiB of GPU memory below which: tokens of a prompt in one step, and the largest batch with a CUDA graph."""
WITHOUT_GPU = (4096, 160)
MANY = 2048  # requests at once that SGLang allows itself at least, where memory does not bound it earlier
FLOOR_MIB, PER_TOKEN_MIB, LARGE_FLOOR_MIB, LARGE_GIB = 512, 1.5, 10 * 1024, 60
"""Memory that is kept from weights and cache: a floor, per token of a step, and at least this on GPUs above `LARGE_GIB`."""


GUESS_WITH_MODEL = ("STANDALONE", "EAGLE3", "DFLASH", "DSPARK")
OWN_LAYERS = ("EAGLE", "NEXTN")
"""Algorithms that guess with a model of their own, and those that may guess with layers of the model itself."""


def own_defaults(facts: Mapping[str, Value], version: str) -> dict[str, Value]:  # noqa: ARG001 - there is one table so far
    """What SGLang does when a flag is left out.

    The rules are those of `handle_gpu_memory_settings` in `sglang/srt/arg_groups/memory_hook.py`. Its share of memory also depends on what
    it measures while it starts, so the value here is near and not exact; at the default the flag is left out and SGLang decides.
    """
    memory, gpus = float(facts.get("gpu_memory_gb") or 0.0), int(facts.get("gpus") or 0)
    tokens, graphs = next((chunk, batch) for bound, chunk, batch in MEMORY_TIERS if memory < bound) if gpus and memory else WITHOUT_GPU
    reserve_mib = FLOOR_MIB + PER_TOKEN_MIB * max(tokens, 2048) + 2.0 * graphs
    reserve_mib = max(reserve_mib, LARGE_FLOOR_MIB) if memory > LARGE_GIB else reserve_mib
    share = round(1.0 - reserve_mib / 1024 / memory, 2) if memory else 0.88
    return {
        "tp_size": 1,
        "chunked_prefill_size": tokens,
        "max_running_requests": MANY,
        "mem_fraction_static": min(0.95, max(0.5, share)),
    }


def settle(settings: dict[str, Any]) -> list[str]:
    """As `handle_deprecated_dp_attention` in `sglang/srt/arg_groups/parallel_hook.py`: the old way to ask for groups that attend apart."""
    if not settings.pop("enable_dp_attention", False) or "attn_dp_size" in settings or "dp_size" not in settings:
        return []
    settings["attn_dp_size"] = settings.pop("dp_size")
    return ["--dp-size with --enable-dp-attention is read as --attn-dp-size, which SGLang makes of it."]


def finish(settings: dict[str, Any], draft_model: str, kind: str) -> None:
    """The draft model goes with the kinds of speculation that guess with one; layers of the model itself need none."""
    algorithm = settings.get("speculative_algorithm")
    if draft_model and (algorithm in GUESS_WITH_MODEL or (algorithm in OWN_LAYERS and kind not in ("", "draft_model"))):
        settings.setdefault("speculative_draft_model_path", draft_model)


SGLANG = Engine(
    name="sglang",
    title="SGLang",
    packages=("sglang",),
    program=(),
    module=("sglang.launch_server",),
    model=("--model-path",),
    help="--help",
    own=own_defaults,
    image=lambda version: f"lmsysorg/sglang:v{version}",
    env={},
    length="context_length",
    no_tokenizer={"skip_tokenizer_init": True},
    settle=settle,
    finish=finish,
    told=("--enable-metrics",),
    across=('--node-rank "$NODE_RANK" --dist-init-addr "$MASTER_ADDR:20000"', ""),
)


class SglangBackend(EngineBackend):
    """SGLang's OpenAI server: any model it serves, from a folder or by its remote name.

    Needs `sglang` next to AutoScout, or the words that start it in `workload.engine_command`.
    """

    engine: ClassVar = SGLANG


__all__ = ["SGLANG", "SglangBackend", "own_defaults"]
