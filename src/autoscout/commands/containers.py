"""YAML in which people write down what containers run: Compose files, Kubernetes manifests, and settings with commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.commands.script import ScriptError, Word, missing_in, read_script
from autoscout.commands.script.expand import Expander
from autoscout.commands.script.state import ScriptState
from autoscout.common import document
from autoscout.core.errors import ConfigError, Fault

MOST_DOCUMENTS = 200
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")
NOT_FILLED = re.compile(r"\{\{.*?\}\}", re.DOTALL)
"""A place of a chart's template, which only `helm template` fills."""
KEY = re.compile(r"^[\"']?[\w./-]+[\"']?:(\s|$)", re.MULTILINE)
TOO_MUCH = ("alias", "nested", "contain itself")
"""In the rules of documents that are too large to be read."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """What one container runs.

    Attributes:
        name: Of the service, or of object and container.
        words: What it is given: its command, or arguments for the image's own.
        image: Empty where it has none.
        env: Variables.
        gpus: How many it is given, as far as that is said.
        uri: Of the model, where the server is one of KServe's own.
        runtime: Which of KServe's own servers it is; empty for an ordinary container.
    """

    name: str
    words: Sequence[str]
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None
    uri: str = ""
    runtime: str = ""


def yaml_documents(text: str, where: str) -> list[Any]:
    """The documents of a YAML text, each a mapping; none where it is another kind of text.

    Raises:
        ConfigError: there are too many, or their aliases stand for too much.
    """
    parts = [part for part in re.split(r"^---(?:[ \t].*)?$", text, flags=re.MULTILINE) if part.strip()]
    if not KEY.search(text) or re.match(r"#!|\s*(export|set)\s", text):
        return []
    if len(parts) > MOST_DOCUMENTS:
        raise ConfigError(Fault(where=where, rule=f"holds {len(parts)} documents: at most {MOST_DOCUMENTS} are read"))
    values = []
    for part in parts:
        try:
            value = document.compose(part, where).value
        except ConfigError as error:
            if any(word in fault.rule for fault in error.faults for word in TOO_MUCH):
                raise
            return []
        if isinstance(value, Mapping):
            values.append(value)
        elif value is not None:
            return []
    return values


def containers_in(documents: Sequence[Any]) -> list[Container]:
    """What the documents of a file run, in their order."""
    containers: list[Container] = []
    for item in documents:
        if not isinstance(item, Mapping):
            continue
        services = item.get("services")
        if isinstance(services, Mapping):
            containers += [_service(str(name), service) for name, service in services.items() if isinstance(service, Mapping)]
        containers += [_container(name, container) for name, container in _containers(item, _name(item))]
        if item.get("kind") == "List" and isinstance(item.get("items"), list):
            containers += containers_in(item["items"])
        if item.get("kind") == "ConfigMap" and isinstance(item.get("data"), Mapping):
            scripts = ((key, text) for key, text in item["data"].items() if isinstance(text, str))
            containers += [Container(name=f"{_name(item)}/{key}", words=("sh", "-c", text)) for key, text in scripts]
    return containers


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _service(name: str, service: Mapping[str, Any]) -> Container:
    """A service of Compose."""
    env = {key: _interpolated(value) for key, value in _pairs(service.get("environment"))}
    words = [*_compose_words(service.get("entrypoint")), *_compose_words(service.get("command"))]
    devices = _at(service, "deploy", "resources", "reservations", "devices")
    gpus = None
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, Mapping):
            ids, count = device.get("device_ids"), device.get("count")
            gpus = len(ids) if isinstance(ids, list) else count if isinstance(count, int) else gpus
    return Container(name=name, words=words, image=str(_interpolated(service.get("image", ""))), env=env, gpus=gpus)


def _compose_words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_interpolated(item) for item in value]
    if not isinstance(value, str):
        return []
    try:
        script = read_script(value.replace("\n", " "))
    except ScriptError:
        return []
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
        elif key == "cmd" and isinstance(value, str):
            yield name, {"command": _compose_words(value)}
        elif isinstance(value, (Mapping, list)) and key != "services":
            yield from _containers(value, name)


def _container(name: str, container: Mapping[str, Any]) -> Container:
    """A container of a pod."""
    env: dict[str, str] = {}
    for entry in container.get("env") or []:
        if isinstance(entry, Mapping) and "name" in entry:
            variable = str(entry["name"])
            env[variable] = _referenced(entry["value"], env) if "value" in entry else Word("", [variable])
    command, arguments = _words(container.get("command"), env), _words(container.get("args"), env)
    gpus = None
    for kind in ("requests", "limits"):
        resources = _at(container, "resources", kind)
        for key in GPUS:
            count = resources.get(key) if isinstance(resources, Mapping) else None
            gpus = int(str(count)) if re.fullmatch(r"\d{1,6}", str(count)) else gpus
    return Container(
        name=name,
        words=[*command, *arguments],
        image=str(container.get("image", "")),
        env=env,
        gpus=gpus,
        uri=str(container.get("storageUri", "")),
        runtime=str(_at(container, "modelFormat", "name") or "").lower(),
    )


def _words(value: Any, env: Mapping[str, str]) -> list[str]:
    items = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return [_referenced(item, env) for item in items]


def _referenced(value: Any, env: Mapping[str, str]) -> Word:
    """A text of a manifest with its `$(NAME)` filled in from the variables before it and `$$` as one; `$NAME` is left to the shell."""
    text = _text(value)
    missing: list[str] = []

    def filled(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        value = env.get(match[1])
        if value is None:
            return match[0]
        missing.extend(missing_in(value))
        return str(value)

    result = re.sub(r"\$\$|\$\(([A-Za-z_]\w*)\)", filled, text)
    return Word(result, [*missing, *(["a template"] if NOT_FILLED.search(result) else [])])


__all__ = ["Container", "containers_in", "yaml_documents"]
