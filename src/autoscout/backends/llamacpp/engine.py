"""What the engine is that is measured, the `xllamacpp` wheel or a `llama-server` program, and what it does when nobody sets anything."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from autoscout.backends.llamacpp.flags import LEAST_GUESS, own_values
from autoscout.backends.llamacpp.program import LlamaServer, ask
from autoscout.backends.llamacpp.serve import CACHE_TYPES, FLASH, LOAD_MODES, SPECULATION
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, PluginError

PROGRAM = "llama-server"

SERVER_SLOTS = 4
"""What the `llama-server` program takes for `--parallel -1` (auto), its default, together with a unified KV cache.

llama.cpp's tools/server/server.cpp: "n_parallel is set to auto, using n_parallel = 4 and kv_unified = true".
"""


@dataclass(frozen=True, kw_only=True)
class LlamaCppBuild:
    """A build and its defaults.

    Attributes:
        version: Of the engine.
        openmp: Threads wait as OpenMP lets them, so `poll` has no effect.
        gpu: It can use a GPU.
        defaults: Knob -> what it does by itself; knobs that it does not have are absent.
        speculation: Kinds of speculative decoding, in the words of `--spec-type`.
        server: The program; None for the wheel.
    """

    version: str
    openmp: bool
    gpu: bool
    defaults: dict[str, Value]
    speculation: tuple[str, ...] = ()
    server: LlamaServer | None = None


def usual_command() -> tuple[str, ...]:
    """The program on the search path, where there is no wheel to measure instead; empty for the wheel."""
    return (PROGRAM,) if find_spec("xllamacpp") is None and shutil.which(PROGRAM) else ()


def build_of(command: Sequence[str]) -> LlamaCppBuild:
    """The engine that a command starts, or the wheel where that is empty.

    Raises:
        ConfigError: the program cannot be asked.
        PluginError: the wheel is not installed or cannot be loaded.
    """
    if not command:
        return installed()
    server = ask(tuple(command))
    if server is None:
        rule = "is no llama-server that can be started, or it lists no flags with --help"
        fix = "Give the path of the program, with words before it if it needs them: server='taskset -c 0-7 /opt/llama/llama-server'"
        raise ConfigError(Fault(where="workload", field="server", value=repr(shlex.join(command)), rule=rule, fix=fix))
    kinds = server.flags["--spec-type"].values if "--spec-type" in server.flags else ()
    return LlamaCppBuild(
        version=server.version,
        openmp=server.openmp,
        gpu=bool(server.devices),
        defaults=own_values(server.flags, SERVER_SLOTS),
        speculation=kinds,
        server=server,
    )


@cache
def installed() -> LlamaCppBuild:
    """The engine of this Python environment. Loads the wheel; starts nothing.

    Raises:
        PluginError: it is not installed or cannot be loaded.
    """
    try:
        import xllamacpp

        release = version("xllamacpp")
    except (ImportError, PackageNotFoundError) as error:
        raise PluginError(
            Fault(where="backend llamacpp", rule=f"the engine cannot be loaded: {error}", fix="pip install 'autoscout[llamacpp]'")
        ) from error
    system = xllamacpp.get_system_info()
    return LlamaCppBuild(
        version=release,
        openmp="OPENMP = 1" in system,
        gpu=re.search(r"\b(CUDA|ROCm|HIP|Vulkan|Metal|MTL|SYCL)\b", system) is not None,
        defaults=_defaults(xllamacpp.CommonParams()),
        speculation=tuple(kind for kind, name in SPECULATION.items() if hasattr(xllamacpp.common_speculative_type, name)),
    )


def _defaults(params: Any) -> dict[str, Value]:
    """What `CommonParams` holds, in the words of our knobs; thread counts are left to the machine (-1: all physical cores)."""
    parameters: dict[str, tuple[str, Any]] = {
        "batch": ("n_batch", int),
        "ubatch": ("n_ubatch", int),
        "parallel": ("n_parallel", int),
        "kv_unified": ("kv_unified", bool),
        "cont_batching": ("cont_batching", bool),
        "flash_attention": ("flash_attn_type", FLASH),
        "cache_type_k": ("cache_type_k", CACHE_TYPES),
        "cache_type_v": ("cache_type_v", CACHE_TYPES),
        "load_mode": ("load_mode", LOAD_MODES),
        "swa_full": ("swa_full", bool),
        "gpu_layers": ("n_gpu_layers", {"auto": -1, "all": -2}),
        "split_mode": ("split_mode", {"none": 0, "layer": 1, "row": 2}),
        "numa": ("numa", {"off": 0, "distribute": 1, "isolate": 2}),
        "main_gpu": ("main_gpu", int),
        "cache_reuse": ("n_cache_reuse", int),
        "cache_ram": ("cache_ram_mib", int),
        "ctx_checkpoints": ("n_ctx_checkpoints", int),
        "slot_prompt_similarity": ("slot_prompt_similarity", float),
    }
    defaults: dict[str, Value] = {}
    for knob, (attribute, how) in parameters.items():
        if not hasattr(params, attribute):
            continue
        raw = getattr(params, attribute)
        if isinstance(how, dict):
            defaults[knob] = next((name for name, number in how.items() if number == int(raw)), int(raw))
        else:
            defaults[knob] = how(raw)
    inverted = {"repack": "no_extra_bufts", "kv_offload": "no_kv_offload", "op_offload": "no_op_offload"}
    defaults |= {knob: not getattr(params, attribute) for knob, attribute in inverted.items() if hasattr(params, attribute)}
    draft = getattr(getattr(params, "speculative", None), "draft", None)
    if draft is not None:
        defaults |= {"draft_max": int(draft.n_max), "draft_min": int(draft.n_min), "draft_p_min": float(draft.p_min)}
        defaults |= {"spec_type": "none", "ngram_max": LEAST_GUESS, "ngram_match": 12}
    if hasattr(params, "tensor_split"):
        defaults["tensor_split"] = "auto"
    threads = params.cpuparams
    defaults |= {"poll": int(threads.poll), "pin_threads": bool(threads.mask_valid and threads.strict_cpu)}
    return defaults
