"""The places where a server is deployed: one template each in `targets/`, filled with the facts of a deployment."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from autoscout.catalog.models import hub_path
from autoscout.catalog.published import downloaded
from autoscout.common.document import PlainDumper
from autoscout.engines.command import Settings, words
from autoscout.engines.engine import Engine
from autoscout.engines.table import EngineTable

PORT = 8000
NAME = "llm"
START_S = 1800  # what a start may take before Kubernetes gives up: loading and compiling of large models
PROBE_S = 10
CACHE = "/cache"
"""In a container: downloaded models and compiled graphs, which engines keep below $XDG_CACHE_HOME whoever they run as."""
TOKEN = "HF_TOKEN"
"""What Hugging Face asks for where a model is gated."""
GIB_PER_GB = 1e9 / 2**30
SHM_GIB = 4  # GiB of /dev/shm for each GPU, whose processes talk through it: SGLang's guide gives 32 GiB to eight
HOST_GIB = 8  # GiB of main memory for the engine's own processes
LIMIT_RATIO = 2  # main memory that may be used, by what is asked for: offloaded caches and prompts of many requests come on top
GRAPHS_GIB = 20  # GiB on disk for compiled graphs, next to a model
UNKNOWN_GIB = 200  # GiB on disk, and of main memory at most, where the size of the model is not known
FOLDER = "deploy"
OTHERS = ("kserve", "llmd_values", "dynamo", "ray_serve")
"""Targets for one machine, in a folder of their own."""


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
    weights_gb: float
    cores: int

    @cached_property
    def place(self) -> str:
        """Where the engine finds the model: a folder, or a path of Hugging Face; empty where a short name says neither."""
        is_place = "/" in self.model or downloaded(self.model) is not None
        return self.model if is_place else hub_path(self.model)

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

    @property
    def pod_gpus(self) -> int:
        return -(-self.gpus // self.nodes)

    @property
    def shm_gib(self) -> int:
        return SHM_GIB * max(1, self.pod_gpus)

    @property
    def memory_gib(self) -> int:
        """Main memory of one machine: shared memory counts, and weights pass through; 0 where the model's size is not known."""
        weights = math.ceil(self.weights_gb * GIB_PER_GB / self.nodes)
        return weights + self.shm_gib + HOST_GIB if weights else 0

    @property
    def storage_gib(self) -> int:
        if "model" in self.folders:
            return GRAPHS_GIB
        return math.ceil(self.weights_gb * GIB_PER_GB) + GRAPHS_GIB if self.weights_gb else UNKNOWN_GIB


def deployments(this: EngineDeployment) -> dict[str, str]:
    """The file of every target that can run this."""
    values = _values(this)
    alone = this.nodes == 1
    manifests = {
        "k8s_deploy.yaml": _fill_file("k8s_deploy" if alone else "k8s_nodes", values),
        "compose.yaml": _fill_file("compose", values),
    }
    if not alone:
        return manifests
    fitting = [name for name in OTHERS if name != "ray_serve" or _suits_ray(this)]
    return manifests | {f"{FOLDER}/{name}.yaml": _fill_file(name, values) for name in fitting}


def _suits_ray(this: EngineDeployment) -> bool:
    """Ray Serve LLM runs vLLM, on GPUs; copies of the model are its own matter there."""
    return this.engine.name == "vllm" and this.gpus > 0 and this.settings.get("data_parallel_size", 1) == 1


def _values(this: EngineDeployment) -> dict[str, Any]:
    """What stands in templates, by name."""
    probe = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": PROBE_S}
    mounts, volumes = _mounts(this)
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{this.shm_gib}Gi"}}
    requests = {"requests": {"memory": f"{this.memory_gib}Gi"}} if this.memory_gib else {}
    env = _pod_env(this)
    return {
        "name": NAME,
        "title": this.engine.title,
        "engine": this.engine.name,
        "version": this.version,
        "image": this.engine.image(this.version),
        "port": PORT,
        "cache": CACHE,
        "nodes": this.nodes,
        "served": this.place or this.model,
        "env": env,
        "startup": {**probe, "failureThreshold": START_S // PROBE_S},
        "readiness": probe,
        "liveness": {**probe, "failureThreshold": 6},
        "resources": {**requests, **({"limits": {"nvidia.com/gpu": this.pod_gpus}} if this.pod_gpus else {})},
        "kserve_resources": _kserve_resources(this),
        "storage": f"{this.storage_gib}Gi",
        "shm": f"{this.shm_gib}Gi",
        "mounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": CACHE}, *mounts],
        "volumes": [shm, *volumes],
        **_start(this, "0.0.0.0"),
        **_compose_values(this),
        "accelerator": "nvidia" if this.gpus else "cpu",
        "llmd_tensor": max(1, this.gpus),
        "llmd_env": [{**entry, "value": _no_template(entry["value"])} if "value" in entry else entry for entry in env],
        "dynamo_args": [*(this.engine.model or ("--model",)), _named(this, "$(MODEL)"), *map(_literal, this.line)],
        "dynamo_resources": {**requests, **({"limits": {"gpu": str(this.gpus)}} if this.gpus else {})},
        "dynamo_mounts": mounts or None,
        "dynamo_volumes": volumes or None,
        "ray_model": this.place or "MODEL",
        "ray_settings": this.settings,
        "ray_env": {"env_vars": dict(this.env)} if this.env else None,
        "note": _note(this),
    }


def _kserve_resources(this: EngineDeployment) -> dict[str, Any]:
    """All are named, because KServe gives one core and 2 GiB to what names none."""
    asked = this.memory_gib or this.shm_gib + HOST_GIB
    most = LIMIT_RATIO * asked if this.memory_gib else UNKNOWN_GIB
    gpus = {"nvidia.com/gpu": this.pod_gpus} if this.pod_gpus else {}
    return {"requests": {"cpu": 1, "memory": f"{asked}Gi"}, "limits": {"cpu": this.cores, "memory": f"{most}Gi", **gpus}}


def _note(this: EngineDeployment) -> str:
    """What must be done first where it is not known which model a name stands for."""
    if this.place:
        return ""
    return (
        f"# AutoScout does not know the Hugging Face path of {this.model!r}. Give it as MODEL, in Kubernetes with\n"
        f"#   kubectl create configmap {NAME} --from-literal=MODEL=its/path\n"
        f"# Compose takes MODEL from your environment. Ray does not: write the path in its file.\n"
    )


def _mounts(this: EngineDeployment) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Folders of the machine in a pod, and the volumes that they are."""
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, path in this.folders.items()]
    volumes = [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in this.folders.items()]
    return mounts, volumes


def _pod_env(this: EngineDeployment) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [{"name": name, "value": _literal(value)} for name, value in {"XDG_CACHE_HOME": CACHE, **this.env}.items()]
    if not this.place:
        env.append({"name": "MODEL", "valueFrom": {"configMapKeyRef": {"name": NAME, "key": "MODEL"}}})
    if this.is_downloaded:
        env.append({"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}})
    return env


def _start(this: EngineDeployment, host: str, variable: str = "$(MODEL)") -> dict[str, list[str]]:
    """Command and arguments of a container; a shell only where variables have to be filled in."""
    start = list(this.engine.program) or ["python3", "-m", *this.engine.module]
    rest = [*this.line, "--host", host, "--port", str(PORT)]
    if this.nodes == 1:
        return {"command": start, "args": [*this.engine.model, _named(this, variable), *map(_literal, rest)]}
    others = f'; [ "$NODE_RANK" = 0 ] || set -- {this.engine.across[1]}' if this.engine.across[1] else ""
    model = shlex.quote(this.place) if this.place else '"$MODEL"'
    line = " ".join([shlex.join([*start, *this.engine.model]), model, shlex.join(rest)])
    return {"command": ["sh", "-c"], "args": [_literal(f'set --{others}; exec {line} {this.engine.across[0]} "$@"')]}


def _compose_values(this: EngineDeployment) -> dict[str, Any]:
    """For one machine, reachable from that machine only; the token of Hugging Face is that of the caller's environment."""
    alone = this.nodes == 1
    asked = "${MODEL:?set it to the Hugging Face path of the model}"
    start = _start(this, "0.0.0.0" if alone else "127.0.0.1", asked)  # several machines share the network of the host
    env: dict[str, str | None] = {"XDG_CACHE_HOME": CACHE, **{name: _literal(value) for name, value in this.env.items()}}
    if this.is_downloaded:
        env[TOKEN] = None
    if not alone:
        env |= {"NODE_RANK": "${NODE_RANK}", "MASTER_ADDR": "${MASTER_ADDR}", **({} if this.place else {"MODEL": asked})}
    reserved: dict[str, Any] = {"memory": f"{this.memory_gib}g"} if this.memory_gib else {}
    if this.pod_gpus:
        reserved["devices"] = [{"driver": "nvidia", "count": this.pod_gpus, "capabilities": ["gpu"]}]
    return {
        "compose_command": start["command"],
        "compose_args": start["args"],
        "compose_env": env,
        "compose_ports": [f"127.0.0.1:{PORT}:{PORT}"] if alone else None,
        "compose_network": None if alone else "host",
        "compose_shm": f"{this.shm_gib}g",
        "compose_folders": [
            {"type": "bind", "source": _literal(path), "target": _literal(path), "read_only": True} for path in this.folders.values()
        ],
        "compose_reservations": reserved,
        "probe_s": PROBE_S,
        "start_s": START_S,
    }


def _named(this: EngineDeployment, variable: str) -> str:
    return _literal(this.place) if this.place else variable


def _literal(text: str) -> str:
    """Compose replaces $VAR in all of its file, Kubernetes $(VAR) in commands and variables; both read two as one."""
    return text.replace("$", "$$")


def _no_template(text: str) -> str:
    """llm-d's chart reads variables as templates of Helm."""
    return text.replace("{{", '{{ "{{" }}')


_PLACE = re.compile(r"<(\w+)>")


@cache
def _template(name: str) -> str:
    return files("autoscout.engines").joinpath("targets", f"{name}.yaml").read_text(encoding="utf-8")


def _fill_file(name: str, values: Mapping[str, Any]) -> str:
    """A template with its places filled; its first comments stay."""
    text = _template(name).replace("<claim>\n", _template("claim"))
    lines = text.splitlines(keepends=True)
    head = "".join(lines[: next(place for place, line in enumerate(lines) if not line.startswith("#"))])
    parts = [yaml.dump(_fill(part, values), Dumper=PlainDumper, sort_keys=False, width=10_000) for part in yaml.safe_load_all(text)]
    return f"{_fill(head, values)}{values['note']}" + "---\n".join(parts)


def _fill(node: Any, values: Mapping[str, Any]) -> Any:
    """What a template says with these values: a key without a value goes, a list inside a list becomes part of it."""
    if isinstance(node, dict):
        pairs = {_fill(key, values): _fill(value, values) for key, value in node.items()}
        return {key: value for key, value in pairs.items() if value is not None}
    if isinstance(node, list):
        items = [(item, _fill(item, values)) for item in node]
        return [part for item, lines in items for part in (lines if isinstance(lines, list) and isinstance(item, str) else [lines])]
    if not isinstance(node, str):
        return node
    if whole := _PLACE.fullmatch(node):
        return values[whole[1]]
    return _PLACE.sub(lambda place: str(values[place[1]]), node)


__all__ = ["PORT", "EngineDeployment", "deployments"]
