"""Compose files and Kubernetes manifests: every container that they describe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from autoscout.commands.script import ScriptError, Word, missing_in, read_script
from autoscout.commands.script.expand import Expander
from autoscout.commands.script.state import ScriptState
from autoscout.engines.launches.server import ServerCommand, servers_in_image, servers_of

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")
NOT_FILLED = re.compile(r"\{\{.*?\}\}", re.DOTALL)
"""A place of a chart's template, which only `helm template` fills."""
FOREIGN = {"--model_id": "--model", "--model_name": "--served-model-name", "--model_dir": "--model"}
"""Flags of KServe's own server for models of Hugging Face, which gives vLLM the others."""


def servers_in_documents(engine: str, documents: list[Any]) -> list[tuple[str, ServerCommand]]:
    """The starts of an engine in the documents of a file, each with the name of its service, or of object and container."""
    servers: list[tuple[str, ServerCommand]] = []
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        services = document.get("services")
        if isinstance(services, Mapping):
            for name, service in services.items():
                if isinstance(service, Mapping):
                    servers += [(str(name), server) for server in _service(engine, service)]
        for name, container in _containers(document, _name(document)):
            servers += [(name, server) for server in _container(engine, container)]
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            servers += servers_in_documents(engine, document["items"])
        if document.get("kind") == "ConfigMap" and isinstance(document.get("data"), Mapping):
            servers += [
                (f"{_name(document)}/{key}", server) for key, text in document["data"].items() for server in _script(engine, text, {})
            ]
    return servers


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _service(engine: str, service: Mapping[str, Any]) -> list[ServerCommand]:
    """A service of Compose."""
    env = {name: _interpolated(value) for name, value in _pairs(service.get("environment"))}
    words = [*_compose_words(service.get("entrypoint")), *_compose_words(service.get("command"))]
    devices = _at(service, "deploy", "resources", "reservations", "devices")
    gpus = None
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, Mapping):
            ids, count = device.get("device_ids"), device.get("count")
            gpus = len(ids) if isinstance(ids, list) else count if isinstance(count, int) else gpus
    return servers_in_image(engine, str(_interpolated(service.get("image", ""))), words, env=env, gpus=gpus)


def _compose_words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_interpolated(item) for item in value]
    if not isinstance(value, str):
        return []
    script = read_script(value.replace("\n", " "))
    return list(script.commands[0].words) if script.commands else []


def _interpolated(value: Any) -> Word:
    """A text of Compose with its `${NAME:-default}` filled in."""
    text = _text(value)
    return Expander(ScriptState(), lambda _: None).document(text.replace("$$", "\\$"))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    """Variables of a service: a mapping, or a list of `NAME=value`."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield str(name), Word("", [str(name)]) if value is None else value
    for entry in node if isinstance(node, list) else []:
        if isinstance(entry, str):
            name, equals, value = entry.partition("=")
            yield name, value if equals else f"${{{name}}}"


def _at(node: Any, *path: str) -> Any:
    for part in path:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _containers(node: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The containers of pods, wherever a kind of object keeps its pods, and the predictors of KServe."""
    if isinstance(node, list):
        for item in node:
            yield from _containers(item, name)
    if not isinstance(node, Mapping) or node.get("kind") == "List":
        return
    for key, value in node.items():
        if key in ("containers", "initContainers") and isinstance(value, list):
            for container in value:
                if isinstance(container, Mapping):
                    yield f"{name}/{container['name']}" if container.get("name") else name, container
        elif key == "model" and isinstance(value, Mapping) and ("modelFormat" in value or "storageUri" in value):
            yield name, value
        elif isinstance(value, (Mapping, list)):
            yield from _containers(value, name)


def _container(engine: str, container: Mapping[str, Any]) -> list[ServerCommand]:
    """A container of a pod."""
    env: dict[str, str] = {}
    for entry in container.get("env") or []:
        if isinstance(entry, Mapping) and "name" in entry:
            name = str(entry["name"])
            env[name] = _referenced(entry["value"], env) if "value" in entry else Word("", [name])
    command, arguments = _words(container.get("command"), env), _words(container.get("args"), env)
    gpus = None
    for kind in ("requests", "limits"):
        resources = _at(container, "resources", kind)
        for key in GPUS:
            count = resources.get(key) if isinstance(resources, Mapping) else None
            gpus = int(str(count)) if re.fullmatch(r"\d{1,6}", str(count)) else gpus
    model_format = str(_at(container, "modelFormat", "name") or "")
    if model_format and engine == "vllm":
        return _predictor(container, arguments, env, gpus) if model_format.lower() in ("vllm", "huggingface") else []
    image = str(container.get("image", ""))
    return servers_in_image(engine, image, [*command, *arguments], env=env, gpus=gpus)


def _predictor(container: Mapping[str, Any], arguments: list[str], env: Mapping[str, str], gpus: int | None) -> list[ServerCommand]:
    """What KServe's runtime gives vLLM."""
    words = []
    for word in arguments:
        flag, equals, value = word.partition("=")
        words.append(Word(f"{FOREIGN.get(flag, flag)}{equals}{value}", missing_in(word)))
    uri = str(container.get("storageUri", ""))
    if not any(word.startswith("--model") and not word.startswith("--model-") for word in words) and uri.startswith("hf://"):
        words = [Word(uri.removeprefix("hf://")), *words]
    image = str(container.get("image", ""))
    return [ServerCommand(arguments=tuple(words), env=dict(env), image=image, gpus=gpus)]


def _words(value: Any, env: Mapping[str, str]) -> list[str]:
    items = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return [_referenced(item, env) for item in items]


def _referenced(value: Any, env: Mapping[str, str]) -> Word:
    """A text of a manifest with its `$(NAME)` filled in from the variables before it; `$NAME` is left to the shell."""
    text = _text(value)
    missing: list[str] = []

    def filled(match: re.Match[str]) -> str:
        known = env.get(match[1])
        if known is None:
            return match[0]
        missing.extend(missing_in(known))
        return str(known)

    result = re.sub(r"\$\(([A-Za-z_]\w*)\)", filled, text)
    return Word(result, [*missing, *(["a template"] if NOT_FILLED.search(result) else [])])


def _script(engine: str, text: Any, env: Mapping[str, str]) -> list[ServerCommand]:
    if not isinstance(text, str):
        return []
    try:
        return [server for command in read_script(text, env).commands for server in servers_of(engine, command.words, command.env)]
    except ScriptError:
        return []


__all__ = ["servers_in_documents"]
