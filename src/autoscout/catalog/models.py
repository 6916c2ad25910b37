"""Shapes of transformers by name: from a folder, from the local cache of downloads, or from a built-in list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from autoscout.catalog.published import downloaded, read_config
from autoscout.catalog.shape import ModelShape, model_from
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault


def model(name: str) -> ModelShape:
    """A model by name, by Hugging Face path (`Qwen/Qwen3-8B`), or by the path of a `config.json` or its folder.

    A model that Hugging Face's tools have downloaded is read from their cache; any other remote name must be on the built-in list.

    >>> model("llama-3.1-8b").layers
    32
    """
    path = Path(name).expanduser()
    if path.suffix == ".json" or _is_present(path / "config.json"):
        return read_config(path if path.suffix == ".json" else path / "config.json")
    if (folder := downloaded(name)) is not None:
        return read_config(folder / "config.json")
    by_alias = _by_alias()
    plain_name = _plain(name.rsplit("/", 1)[-1])
    if plain_name in by_alias:
        return by_alias[plain_name]
    base = next((plain for plain in _without_endings(name.rsplit("/", 1)[-1]) if plain in by_alias), None)
    if base is not None:
        return by_alias[base]
    if _is_present(path):
        return read_config(path / "config.json")  # there is none: says so
    names = suggestion(name.rsplit("/", 1)[-1], accepted_names(), listed=1000)
    fix = f"The path of its config.json works too, and so does a downloaded model: hf download NAME config.json. {names}"
    raise ConfigError(Fault(where="model", value=repr(name), rule="unknown model", fix=fix))


_ENDING = re.compile(
    r"(instruct|chat|hf|it|pt|base|thinking|preview|dynamic|quantized|block|modelopt|gguf|marlin|v\d+(p\d+)?|\d{4,8}|"
    r"(nv|mx)?(bf|fp|int)\d+|w\d+a\d+|awq|gptq|kv|\d+bit|q\d[a-z]*)",
)
"""Parts of a name that say nothing of the shape: tuned how, stored how, when."""


def _without_endings(name: str) -> Iterator[str]:
    """The name with fewer and fewer such parts at its end: Llama-3.1-8B-Instruct-FP8 is a llama-3.1-8b, Phi-4-mini no phi-4."""
    parts = re.split(r"[-_ ]", name)
    while len(parts) > 1 and _ENDING.fullmatch(_plain(parts[-1])):
        parts.pop()
        yield _plain("-".join(parts))


def _is_present(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def accepted_names() -> tuple[str, ...]:
    """All built-in models under all of their names."""
    return tuple(sorted(alias for name, entry in _entries().items() for alias in (name, *entry.get("aliases", ()))))


def hub_path(name: str) -> str:
    """The path at Hugging Face that a short name stands for; empty where that is not known.

    >>> hub_path("qwen3-8b")
    'Qwen/Qwen3-8B'
    """
    paths: dict[str, str] = {_plain(short): path for short, path in _data()["hub"].items()}
    return paths.get(_plain(name), "")


def _plain(name: str) -> str:
    """Letters and digits only; a decimal point stays visible, so that 1.3b is not 13b."""
    pointed = re.sub(r"(?<=\d)\.(?=\d)", "p", name.lower().replace("meta-llama-3", "llama-3"))
    return re.sub(r"[^a-z0-9]", "", pointed)


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(files("autoscout.catalog").joinpath("data/models.yaml").read_text())
    return data


def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = _data()["models"]
    return entries


@cache
def _by_alias() -> dict[str, ModelShape]:
    by_alias: dict[str, ModelShape] = {}
    for name, entry in _entries().items():
        shape = model_from({"name": name, **{key: value for key, value in entry.items() if key != "aliases"}})
        for alias in (name, *entry.get("aliases", ())):
            if by_alias.get(_plain(alias), shape) is not shape:
                raise ConfigError(Fault(where="data/models.yaml", value=alias, rule="two models have the same name"))
            by_alias[_plain(alias)] = shape
    return by_alias


__all__ = ["ModelShape", "accepted_names", "hub_path", "model", "model_from"]
