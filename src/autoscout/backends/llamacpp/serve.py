"""Starts llama.cpp's server with settings in JSON, a file or the text itself, and serves until it is told to stop.

    python server.py server.json [--host 127.0.0.1] [--port 8080] [--model other.gguf]

Needs the `xllamacpp` wheel and nothing else: AutoScout hands this very file over together with `run.sh`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLASH = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
NUMA = {"off": 0, "distribute": 1, "isolate": 2}
GPU_LAYERS = {"auto": -1, "all": -2}
SPECULATION = {
    "draft-simple": "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE",
    "draft-eagle3": "COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3",
    "draft-mtp": "COMMON_SPECULATIVE_TYPE_DRAFT_MTP",
    "draft-dflash": "COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH",
    "draft-dspark": "COMMON_SPECULATIVE_TYPE_DRAFT_DSPARK",
    "ngram-simple": "COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE",
    "ngram-map-k": "COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K",
    "ngram-map-k4v": "COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V",
    "ngram-mod": "COMMON_SPECULATIVE_TYPE_NGRAM_MOD",
}
QUIET = 2  # log level: warnings and errors
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def parameters(settings: Mapping[str, Any]) -> Any:
    """`xllamacpp.CommonParams` with these settings; whatever is not named keeps the engine's default.

    Raises:
        AttributeError: the installed wheel has no such parameter.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model_path"]
    params.n_ctx = settings["context"]
    plain = {"batch": "n_batch", "ubatch": "n_ubatch", "parallel": "n_parallel", "main_gpu": "main_gpu", "cache_reuse": "n_cache_reuse"}
    plain |= {"cache_ram": "cache_ram_mib", "ctx_checkpoints": "n_ctx_checkpoints", "slot_prompt_similarity": "slot_prompt_similarity"}
    flags = {name: name for name in ("kv_unified", "cont_batching", "swa_full")}
    inverted = {"repack": "no_extra_bufts", "kv_offload": "no_kv_offload", "op_offload": "no_op_offload"}
    choices = {
        "flash_attention": ("flash_attn_type", FLASH, "llama_flash_attn_type"),
        "cache_type_k": ("cache_type_k", CACHE_TYPES, "ggml_type"),
        "cache_type_v": ("cache_type_v", CACHE_TYPES, "ggml_type"),
        "load_mode": ("load_mode", LOAD_MODES, "llama_load_mode"),
        "split_mode": ("split_mode", SPLIT_MODES, "llama_split_mode"),
        "numa": ("numa", NUMA, "ggml_numa_strategy"),
    }
    for knob, attribute in {**plain, **flags}.items():
        if knob in settings:
            _put(params, attribute, settings[knob])
    for knob, attribute in inverted.items():
        if knob in settings:
            _put(params, attribute, not settings[knob])
    for knob, (attribute, numbers, kind) in choices.items():
        if knob in settings:
            _put(params, attribute, getattr(xllamacpp, kind)(numbers[settings[knob]]))
    if "gpu_layers" in settings:
        params.n_gpu_layers = GPU_LAYERS.get(settings["gpu_layers"], settings["gpu_layers"])
    if settings.get("tensor_split", "auto") != "auto":
        shares = [float(share) for share in settings["tensor_split"].split(",")]
        params.tensor_split = [*shares, *[0.0] * (len(params.tensor_split) - len(shares))]
    _threads(params, settings)
    _speculation(params, settings)
    return params


def _speculation(params: Any, settings: Mapping[str, Any]) -> None:
    import xllamacpp

    kind = settings.get("spec_type", "none")
    if kind == "none":
        return
    params.speculative.types = [getattr(xllamacpp.common_speculative_type, SPECULATION[kind])]
    draft = params.speculative.draft
    if settings.get("draft_model"):
        draft.mparams.path = settings["draft_model"]
    for knob, attribute in {"draft_max": "n_max", "draft_min": "n_min", "draft_p_min": "p_min"}.items():
        if knob in settings:
            _put(draft, attribute, settings[knob])
    if kind.startswith("ngram"):
        lookup = getattr(params.speculative, kind.replace("-", "_"))
        names = ("n_max", "n_match") if kind == "ngram-mod" else ("size_m", "size_n")
        for knob, attribute in zip(("ngram_max", "ngram_match"), names, strict=True):
            if knob in settings:
                _put(lookup, attribute, settings[knob])
        if kind == "ngram-mod" and "ngram_max" in settings:
            lookup.n_min = min(lookup.n_min, settings["ngram_max"])


def _put(params: Any, attribute: str, value: Any) -> None:
    if not hasattr(params, attribute):
        raise AttributeError(f"this release of xllamacpp has no parameter {attribute!r}")
    setattr(params, attribute, value)


def _threads(params: Any, settings: Mapping[str, Any]) -> None:
    for knob, which in (("threads", params.cpuparams), ("threads_batch", params.cpuparams_batch)):
        if knob in settings:
            which.n_threads = settings[knob]
        if "poll" in settings:
            which.poll = settings["poll"]
        if settings.get("pin_threads"):
            cores = sorted(os.sched_getaffinity(0))
            which.cpumask = [core in cores for core in range(len(which.cpumask))]
            which.mask_valid = True
            which.strict_cpu = True


def serve(settings: Mapping[str, Any], host: str, port: int, api_keys: list[str], verbosity: int = QUIET) -> int:
    """Serve until SIGINT or SIGTERM."""
    import xllamacpp

    if not Path(settings["model_path"]).is_file():
        print(f"no such model file: {settings['model_path']}", file=sys.stderr)
        return 2
    if host not in LOOPBACK and not api_keys:
        print(f"refusing to serve on {host} without a key: set LLAMA_API_KEY, or stay on 127.0.0.1", file=sys.stderr)
        return 2
    if settings.get("gpu_layers", "auto") not in ("auto", 0):
        kinds = [device["type"].name for device in xllamacpp.get_device_info()]
        if not any(kind.endswith("GPU") for kind in kinds):
            print("layers cannot go to a GPU: this build of the engine sees none", file=sys.stderr)
            return 2
    params = parameters(settings)
    params.verbosity = verbosity
    params.hostnames = [host]
    params.port = port
    params.api_keys = api_keys
    watcher = _watched()
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        time.sleep(1.0)  # the engine's log says why, and a thread of its own writes it a little later
        raise
    print(f"serving {settings['model_path']} on {server.listening_address}", flush=True)
    watcher.join()
    return 0


def _watched() -> threading.Thread:
    """A thread that ends the process by SIGINT or SIGTERM.

    All other threads, those of the engine too, leave these to it: the engine sets handlers of its own, some time after it began to
    listen, and they wait forever for the thread that they have interrupted.
    """
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def leave() -> None:
        signal.sigwait(numbers)
        os._exit(0)  # the engine's threads need not be waited for

    watcher = threading.Thread(target=leave, daemon=True)
    watcher.start()
    return watcher


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="llama.cpp's OpenAI-compatible server with tuned settings")
    parser.add_argument("settings", nargs="?", default=str(Path(__file__).with_name("server.json")))
    parser.add_argument("--host", default=os.environ.get("HOST", "127.0.0.1"))
    parser.add_argument("--model", help="another model file than that of the settings")
    parser.add_argument("--verbosity", type=int, default=QUIET, help="2: warnings and errors, 3: every request")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8080")))
    arguments = parser.parse_args()
    keys = [key for key in os.environ.get("LLAMA_API_KEY", "").split(",") if key]
    try:
        settings = json.loads(arguments.settings if arguments.settings.startswith("{") else Path(arguments.settings).read_text())
        settings |= {"model_path": arguments.model} if arguments.model else {}
        return serve(settings, arguments.host, arguments.port, keys, arguments.verbosity)
    except (RuntimeError, OSError, ValueError, AttributeError, MemoryError) as error:
        print(f"the server did not start: {error or type(error).__name__}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the engine's threads need not be waited for
