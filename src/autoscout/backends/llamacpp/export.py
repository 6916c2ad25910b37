"""The hand-over files: a server with this configuration, the same for the `llama-server` program, and the measurement again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from autoscout.backends.llamacpp.model import cache_folder, model_path
from autoscout.backends.llamacpp.workload import LlamaCppWorkload
from autoscout.core.config import Value
from autoscout.load.plan import MODULE, PLAN

PORT = 8080

_FLAGS = {
    "threads": "--threads",
    "threads_batch": "--threads-batch",
    "poll": "--poll",
    "numa": "--numa",
    "batch": "--batch-size",
    "ubatch": "--ubatch-size",
    "parallel": "--parallel",
    "flash_attention": "--flash-attn",
    "cache_type_k": "--cache-type-k",
    "cache_type_v": "--cache-type-v",
    "load_mode": "--load-mode",
    "gpu_layers": "--n-gpu-layers",
    "split_mode": "--split-mode",
}
_SWITCHES = {
    "cont_batching": ("--cont-batching", "--no-cont-batching"),
    "kv_unified": ("--kv-unified", "--no-kv-unified"),
    "repack": ("--repack", "--no-repack"),
    "swa_full": ("--swa-full", ""),
    "kv_offload": ("--kv-offload", "--no-kv-offload"),
    "op_offload": ("--op-offload", "--no-op-offload"),
}


def server_arguments(settings: Mapping[str, Any]) -> list[str]:
    """The flags of `llama-server` that mean these settings."""
    words = ["--ctx-size", str(settings["context"])]
    for knob, flag in _FLAGS.items():
        if knob in settings and not (knob == "numa" and settings[knob] == "off"):
            words += [flag, str(settings[knob])]
    for knob, (on, off) in _SWITCHES.items():
        if knob in settings:
            words += [word for word in (on if settings[knob] else off,) if word]
    if settings.get("pin_threads"):
        last = max(int(settings.get("threads", 1)), int(settings.get("threads_batch", 1))) - 1
        for suffix in ("", "-batch"):
            words += [f"--cpu-range{suffix}", f"0-{last}", f"--cpu-strict{suffix}", "1"]
    return words


def export_files(
    workload: LlamaCppWorkload, settings: Mapping[str, Value], weights: str, env: Mapping[str, str], plan: str
) -> dict[str, str]:
    """All files of the hand-over folder.

    Args:
        workload: What it was tuned for.
        settings: The engine's settings, `context` included.
        weights: Type of the weights.
        env: Environment variables that belong to the configuration.
        plan: Text of the trial's plan.
    """
    path = model_path(workload.model, workload.facts, weights, cache_folder(workload.cache_dir))
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
    is_own = path == Path(workload.model)
    again = f'"$PYTHON" -m autoscout.backends.llamacpp.prepare {shlex.quote(workload.model)} {weights} {shlex.quote(str(path.parent))}'
    ready = f'  [ -f "$MODEL" ] || {again}  # a file that AutoScout made, and can make again\n' if not is_own else ""
    head = (
        "#!/bin/sh\nset -eu\n"
        'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
        f'[ -n "${{PYTHON:-}}" ] || PYTHON={shlex.quote(sys.executable)}\ncommand -v "$PYTHON" > /dev/null || PYTHON=python3\n{exports}'
    )
    model = f'if [ -z "${{MODEL:-}}" ]; then\n  MODEL={shlex.quote(str(path))}\n'
    command = f'llama-server --model "$MODEL" {shlex.join(server_arguments(settings))}'
    return {
        "run.sh": (
            f"{head}{model}{ready}fi\n"
            "# Serves an OpenAI-compatible API on http://127.0.0.1:8080 until Ctrl-C. HOST and PORT change the address; a HOST other\n"
            "# than loopback needs a key in LLAMA_API_KEY. MODEL names the model file, where it has another place.\n"
            "# Needs the Python package xllamacpp; with the llama-server program instead: ./llama-server.sh\n"
            'exec "$PYTHON" "$here/server.py" "$here/server.json" --model "$MODEL" "$@"\n'
        ),
        "llama-server.sh": (
            f"#!/bin/sh\nset -eu\n{exports}{model}fi\n# The same configuration for the llama-server program of llama.cpp.\n"
            f'exec {command} --host "${{HOST:-127.0.0.1}}" --port "${{PORT:-{PORT}}}" "$@"\n'
        ),
        "server.py": files("autoscout.backends.llamacpp").joinpath("serve.py").read_text(),
        "server.json": json.dumps({"model_path": str(path), **settings}, indent=2) + "\n",
        "bench_run.sh": (
            f"{head}# Measures this configuration again, as the study did; writes result.json into the current folder.\n"
            f'exec "$PYTHON" -m {MODULE} "$here/{PLAN}"\n'
        ),
        PLAN: plan,
        **({"env": "".join(f"{name}={value}\n" for name, value in env.items())} if env else {}),
    }
