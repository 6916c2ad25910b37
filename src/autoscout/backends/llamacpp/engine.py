"""What the installed `xllamacpp` wheel is and what it does when nobody sets anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autoscout.backends.llamacpp.serve import CACHE_TYPES, FLASH, LOAD_MODES
from autoscout.core.config import Value
from autoscout.core.errors import Fault, PluginError

SERVER_SLOTS = 4
"""What the `llama-server` program takes for `--parallel -1` (auto), its default, together with a unified KV cache.

llama.cpp's tools/server/server.cpp: "n_parallel is set to auto, using n_parallel = 4 and kv_unified = true".
"""


@dataclass(frozen=True, kw_only=True)
class LlamaCppBuild:
    """The wheel's build and its defaults."""

    version: str
    openmp: bool  # threads wait as OpenMP lets them, so `poll` has no effect
    gpu: bool  # built for some GPU
    defaults: dict[str, Value]  # knob -> what the wheel does by itself; knobs it does not have are absent


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
    threads = params.cpuparams
    defaults |= {"poll": int(threads.poll), "pin_threads": bool(threads.mask_valid and threads.strict_cpu)}
    return defaults
