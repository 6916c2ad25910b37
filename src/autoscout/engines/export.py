"""The hand-over files: start script, the engine's own YAML, environment, the measurement again, Kubernetes and Compose."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.document import PlainDumper
from autoscout.engines.command import Settings, config_file, words
from autoscout.engines.engine import Engine
from autoscout.engines.table import EngineTable
from autoscout.load.plan import MODULE, PLAN

PORT = 8000
NAME = "llm"
START_S = 1800  # what a start may take before Kubernetes gives up: loading and compiling of large models
PROBE_S = 10
CACHE = "/cache"
"""In a container: downloaded models and compiled graphs, which engines keep below $XDG_CACHE_HOME whoever they run as."""
TOKEN = "HF_TOKEN"
"""What Hugging Face asks for where a model is gated."""
RANDOM = "# The model's folder holds no weights: load-format dummy makes random ones, whose answers are nonsense. Remove it for others.\n"


@dataclass(frozen=True, kw_only=True)
class EngineDeployment:
    """An engine with settings on machines."""

    engine: Engine
    version: str
    command: tuple[str, ...]
    model: str
    settings: Settings
    table: EngineTable
    env: Mapping[str, str]
    gpus: int
    nodes: int
    draft_model: str

    @property
    def folders(self) -> dict[str, str]:
        """Folders of this machine that a container must be given, by what they hold."""
        drafted = any(self.draft_model in word for word in self.line)
        paths = {"model": self.model, **({"draft-model": self.draft_model} if drafted else {})}
        return {name: path for name, path in paths.items() if Path(path).is_absolute()}

    @property
    def is_downloaded(self) -> bool:
        """Whether the engine gets the model from Hugging Face, and nobody has given it a token."""
        return "model" not in self.folders and TOKEN not in self.env

    @property
    def line(self) -> list[str]:
        """The flags."""
        return words(self.settings, self.table)


def export_files(this: EngineDeployment, plan: str) -> dict[str, str]:
    """All files of the hand-over folder; `plan` is the text of the trial's plan."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in this.env.items())
    across, rest = _across(this)
    named = " ".join([*this.engine.model, '"${MODEL:-$model}"'])
    return {
        "run.sh": (
            "#!/bin/sh\nset -eu\n"
            'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
            f"{exports}"
            f"# Serves an OpenAI-compatible API on http://127.0.0.1:{PORT} until Ctrl-C. HOST and PORT change the address, MODEL the\n"
            f"# place of the model; further words are given to {this.engine.title}. The settings are in config.yaml.\n"
            f"model={shlex.quote(this.model)}\n"
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
        "k8s_deploy.yaml": kubernetes(this),
        "compose.yaml": compose(this),
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


def kubernetes(this: EngineDeployment) -> str:
    """A Deployment and a Service; for several machines a StatefulSet with one pod each."""
    labels = {"app": NAME}
    port = [{"name": "http", "containerPort": PORT}]
    per_pod = -(-this.gpus // this.nodes)
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": PROBE_S}
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": CACHE}]
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "cache", "emptyDir": {}}]
    for name, path in this.folders.items():
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
        volumes.append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
    container: dict[str, Any] = {
        "name": this.engine.name,
        "image": this.engine.image(this.version),
        **_start(this),
        "env": [{"name": name, "value": value} for name, value in {"XDG_CACHE_HOME": CACHE, **this.env}.items()],
        "ports": port,
        "resources": {"limits": {"nvidia.com/gpu": per_pod}} if per_pod else {},
        "startupProbe": {**probe, "failureThreshold": START_S // PROBE_S},
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": mounts,
    }
    if this.is_downloaded:
        container["env"].append({"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}})
    spec: dict[str, Any] = {"containers": [container], "volumes": volumes}
    kind, extra = "Deployment", {}
    if this.nodes > 1:
        kind, extra = "StatefulSet", {"serviceName": f"{NAME}-nodes", "podManagementPolicy": "Parallel"}
        rank = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
        container["env"] += [{"name": "NODE_RANK", "valueFrom": rank}, {"name": "MASTER_ADDR", "value": f"{NAME}-0.{NAME}-nodes"}]
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            del container[name]  # only the first pod answers
    workload = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            **extra,
            "replicas": this.nodes,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    first = {"app": NAME, "apps.kubernetes.io/pod-index": "0"} if this.nodes > 1 else labels
    services = [_service(NAME, first, [{"name": "http", "port": 80, "targetPort": "http"}])]
    if this.nodes > 1:
        services.append(
            _service(f"{NAME}-nodes", labels, [{"name": "http", "port": PORT}], clusterIP="None", publishNotReadyAddresses=True)
        )
    return "---\n".join(_yaml(part) for part in (workload, *services))


def _service(name: str, selector: Mapping[str, str], ports: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {**more, "selector": dict(selector), "ports": ports}}


def _start(this: EngineDeployment, host: str = "0.0.0.0") -> dict[str, Any]:
    """Command and arguments of a container; a shell only where variables have to be filled in."""
    start = list(this.engine.program) or ["python3", "-m", *this.engine.module]
    line = [*this.engine.model, this.model, *this.line, "--host", host, "--port", str(PORT)]
    if this.nodes == 1:
        return {"command": start, "args": line}
    others = f'; [ "$NODE_RANK" = 0 ] || set -- {this.engine.across[1]}' if this.engine.across[1] else ""
    text = f'set --{others}; exec {shlex.join([*start, *line])} {this.engine.across[0]} "$@"'
    return {"command": ["sh", "-c"], "args": [text]}


def compose(this: EngineDeployment) -> str:
    """A Compose file for one machine, reachable from that machine only; the token of Hugging Face is that of the caller's environment."""
    start = _start(this, "127.0.0.1") if this.nodes > 1 else _start(this)  # several machines share the network of the host
    token = {TOKEN: None} if this.is_downloaded else {}
    folders = [{"type": "bind", "source": _literal(path), "target": _literal(path), "read_only": True} for path in this.folders.values()]
    service: dict[str, Any] = {
        "image": this.engine.image(this.version),
        "entrypoint": start["command"],
        "command": [_literal(word) for word in start["args"]],
        "environment": {"XDG_CACHE_HOME": CACHE, **{name: _literal(value) for name, value in this.env.items()}, **token},
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "ipc": "host",
        "volumes": [f"cache:{CACHE}", *folders],
        "healthcheck": {
            "test": ["CMD", "python3", "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/health')"],
            "interval": f"{PROBE_S}s",
            "start_period": f"{START_S}s",
        },
    }
    if this.gpus:
        device = {"driver": "nvidia", "count": -(-this.gpus // this.nodes), "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    if this.nodes > 1:
        service["network_mode"] = "host"
        del service["ports"]
        service["environment"] |= {"NODE_RANK": "${NODE_RANK}", "MASTER_ADDR": "${MASTER_ADDR}"}
    return _yaml({"services": {NAME: service}, "volumes": {"cache": {}}})


def _literal(text: str) -> str:
    """Compose replaces variables in all of its file."""
    return text.replace("$", "$$")


def _yaml(data: Mapping[str, Any]) -> str:
    return yaml.dump(dict(data), Dumper=PlainDumper, sort_keys=False, default_flow_style=False)


__all__ = ["EngineDeployment", "compose", "export_files", "kubernetes"]
