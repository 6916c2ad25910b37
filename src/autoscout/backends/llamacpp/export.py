"""The hand-over files: a server with this configuration, the same for the `llama-server` program, and the measurement again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from autoscout.backends.llamacpp.engine import PROGRAM, LlamaCppBuild
from autoscout.backends.llamacpp.flags import server_arguments
from autoscout.backends.llamacpp.model import cache_folder, model_path
from autoscout.backends.llamacpp.workload import LlamaCppWorkload
from autoscout.core.config import Value
from autoscout.engines.table import plain
from autoscout.load.plan import MODULE, PLAN

PORT = 8080
ADDRESS = (
    "# Serves an OpenAI-compatible API on http://127.0.0.1:8080 until Ctrl-C. HOST and PORT change the address; a HOST other\n"
    "# than loopback needs a key in LLAMA_API_KEY. MODEL names the model file, where it has another place.\n"
)
CLOSED = (
    'case "${HOST:-127.0.0.1}" in 127.0.0.1|localhost|::1) ;; *)\n'
    '  [ -n "${LLAMA_API_KEY:-}" ] || { echo "refusing to serve on $HOST without a key: set LLAMA_API_KEY" >&2; exit 2; } ;;\nesac\n'
)
"""The program itself would serve anybody."""


def program_arguments(settings: Mapping[str, Value], workload: LlamaCppWorkload, build: LlamaCppBuild) -> list[str]:
    """The flags of the program for these settings, with those that the workload adds."""
    server = build.server
    words = server_arguments(settings, server.flags, build.defaults) if server else server_arguments(settings)
    for name, value in workload.engine_args.items():
        flag = "--" + plain(name).replace("_", "-")
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [flag, *map(str, values)]
    return words


def export_files(
    workload: LlamaCppWorkload, settings: Mapping[str, Value], weights: str, env: Mapping[str, str], plan: str, build: LlamaCppBuild
) -> dict[str, str]:
    """All files of the hand-over folder.

    Args:
        workload: What it was tuned for.
        settings: The engine's settings, `context` included.
        weights: Type of the weights.
        env: Environment variables that belong to the configuration.
        plan: Text of the trial's plan.
        build: The engine.
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
    start = shlex.join(workload.command or (PROGRAM,))
    command = f'{start} --model "$MODEL" {shlex.join(program_arguments(settings, workload, build))}'
    program = f'exec {command} --host "${{HOST:-127.0.0.1}}" --port "${{PORT:-{PORT}}}" "$@"\n'
    again_file = (
        f"{head}# Measures this configuration again, as the study did; writes result.json into the current folder.\n"
        f'exec "$PYTHON" -m {MODULE} "$here/{PLAN}"\n'
    )
    common = {
        "bench_run.sh": again_file,
        PLAN: plan,
        **({"env": "".join(f"{name}={value}\n" for name, value in env.items())} if env else {}),
    }
    if workload.command:
        return {"run.sh": f"{head}{model}{ready}fi\n{ADDRESS}{CLOSED}{program}", **common}
    return {
        "run.sh": (
            f"{head}{model}{ready}fi\n"
            f"{ADDRESS}"
            "# Needs the Python package xllamacpp; with the llama-server program instead: ./llama-server.sh\n"
            'exec "$PYTHON" "$here/server.py" "$here/server.json" --model "$MODEL" "$@"\n'
        ),
        "llama-server.sh": (
            f"#!/bin/sh\nset -eu\n{exports}{model}fi\n# The same configuration for the llama-server program of llama.cpp.\n{program}"
        ),
        "server.py": files("autoscout.backends.llamacpp").joinpath("serve.py").read_text(),
        "server.json": json.dumps({"model_path": str(path), **settings}, indent=2) + "\n",
        **common,
    }
