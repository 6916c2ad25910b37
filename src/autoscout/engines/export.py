"""The hand-over files: start script, the engine's own YAML, environment, the measurement again, deployments."""

from __future__ import annotations

import shlex

from autoscout.engines.command import config_file
from autoscout.engines.deploy import PORT, EngineDeployment, deployments
from autoscout.load.plan import MODULE, PLAN

RANDOM = "# The model's folder holds no weights: load-format dummy makes random ones, whose answers are nonsense. Remove it for others.\n"


def export_files(this: EngineDeployment, plan: str) -> dict[str, str]:
    """All files of the hand-over folder; `plan` is the text of the trial's plan."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in this.env.items())
    across, rest = _across(this)
    named = " ".join([*this.engine.model, '"${MODEL:-$model}"'])
    place = shlex.quote(this.place) if this.place else '"${MODEL:?set it to the Hugging Face path or the folder of the model}"'
    return {
        "run.sh": (
            "#!/bin/sh\nset -eu\n"
            'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
            f"{exports}"
            f"# Serves an OpenAI-compatible API on http://127.0.0.1:{PORT} until Ctrl-C. HOST and PORT change the address, MODEL the\n"
            f"# place of the model; further words are given to {this.engine.title}. The settings are in config.yaml.\n"
            f"model={place}\n"
            f"{across}"
            f'exec {shlex.join(this.command)} {named} --config "$here/config.yaml" \\\n'
            f'  --host "${{HOST:-127.0.0.1}}" --port "${{PORT:-{PORT}}}"{rest} "$@"\n'
        ),
        "config.yaml": f"# Settings of {this.engine.title} {this.version} that differ from its own.\n"
        + (RANDOM if this.settings.get("load_format") == "dummy" else "")
        + config_file(this.settings, this.table),
        **({"env": "".join(f"{name}={value}\n" for name, value in this.env.items())} if this.env else {}),
        "bench_run.sh": (
            "#!/bin/sh\nset -eu\n"
            'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
            "# Measures this configuration again, as the study did: starts the server, sends the load, stops it. Needs AutoScout.\n"
            "# Writes result.json and server.log into the current folder.\n"
            f'exec "${{PYTHON:-python3}}" -m {MODULE} "$here/{PLAN}"\n'
        ),
        PLAN: plan,
        **deployments(this),
    }


def _across(this: EngineDeployment) -> tuple[str, str]:
    """Lines before the start, and words of it, for several machines."""
    if this.nodes == 1:
        return "", ""
    others = f'[ "$NODE_RANK" = 0 ] || set -- {this.engine.across[1]} "$@"\n' if this.engine.across[1] else ""
    head = (
        f"# Start it on {this.nodes} machines: NODE_RANK is 0, 1, ... and MASTER_ADDR the address of the first.\n"
        ': "${NODE_RANK:?}" "${MASTER_ADDR:?}"\n'
    )
    return head + others, f" \\\n  {this.engine.across[0]}"


__all__ = ["export_files"]
