"""Recipes of vLLM's public collection: one YAML file for a model, with variants, features and kinds of hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core.errors import ConfigError, Fault
from autoscout.engines.launches.server import ServerCommand

PARTS = "+"
"""Between the parts of a choice: a variant, features, a strategy and a kind of hardware."""
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "single_node_tp": (),
    "single_node_tep": ("--enable-expert-parallel",),
    "single_node_dep": ("--enable-expert-parallel",),
}
"""What a strategy of the collection adds; its sizes follow from the machine."""


def is_recipe(document: Any) -> bool:
    """Whether a document is a recipe."""
    return isinstance(document, Mapping) and isinstance(document.get("model"), Mapping) and "model_id" in document["model"]


def server_of_recipe(recipe: Mapping[str, Any], where: str, choice: str) -> tuple[ServerCommand, tuple[str, ...]]:
    """The launch that a recipe gives, and what to know about it, a sentence each.

    Args:
        recipe: The document.
        where: For messages.
        choice: Variant, features, strategy and hardware, with `+` between them; the variant `default` where none is named.

    Raises:
        ConfigError: the recipe has no such part.
    """
    if "omni" in recipe:
        rule = "starts vLLM-Omni, which has flags and requests of its own"
        raise ConfigError(Fault(where=where, rule=rule, fix="AutoScout tunes it as a program: autoscout tune command"))
    model, variants, features = _mapping(recipe, "model"), _mapping(recipe, "variants"), _mapping(recipe, "features")
    parts = [part for part in choice.split(PARTS) if part]
    strategies = [name for name in recipe.get("compatible_strategies") or () if isinstance(name, str)]
    hardware = sorted({str(name) for place in (recipe, *variants.values()) for name in _mapping(place, "hardware_overrides")})
    choices = [*variants, *features, *strategies, *hardware]
    if wrong := [part for part in parts if part not in choices]:
        rule = "the recipe has no such variant, feature, strategy or hardware"
        fix = f"Join those that you run with {PARTS}: {', '.join(map(str, choices))}"
        raise ConfigError(Fault(where=where, value=wrong[0], rule=rule, fix=fix))
    variant_name = next((part for part in parts if part in variants), "default")
    variant = _mapping(variants, variant_name)
    opted = [str(name) for name in recipe.get("opt_in_features") or ()]
    active = [name for name in features if name in parts or name not in opted]
    kinds = [part for part in parts if part in hardware]
    words = _list(model, "base_args") + _list(variant, "extra_args")
    env = {**_mapping(model, "base_env"), **_mapping(variant, "extra_env")}
    for kind in kinds:
        for place in (recipe, variant):
            override = _mapping(_mapping(place, "hardware_overrides"), kind)
            words, env = words + _list(override, "extra_args"), {**env, **_mapping(override, "extra_env")}
    for strategy in (part for part in parts if part in strategies):
        override = _mapping(_mapping(recipe, "strategy_overrides"), strategy)
        words += [*STRATEGIES.get(strategy, ()), *_list(override, "vllm_args"), *_list(override, "extra_args")]
        words += ["--tensor-parallel-size", str(override["tp"])] if isinstance(override.get("tp"), int) else []
        env |= {**_mapping(override, "env"), **_mapping(override, "extra_env")}
    if isinstance(variant.get("tp"), int) and "--tensor-parallel-size" not in words:
        words += ["--tensor-parallel-size", str(variant["tp"])]
    for name in active:
        words += _feature(_mapping(features, name), variant_name, kinds)
    name = str(variant.get("model_id") or model["model_id"])
    server = ServerCommand(arguments=(name, *words), env={key: str(value) for key, value in env.items()})
    return server, _notes(where, variant_name, variants, [name for name in features if name not in active], hardware if not kinds else [])


def _feature(feature: Mapping[str, Any], variant: str, hardware: Sequence[str]) -> list[str]:
    """The words of a feature: those of its usual mode where it has several."""
    modes = _mapping(feature, "modes")
    mode = _mapping(modes, str(feature.get("default_mode") or next(iter(modes), "")))
    suited = next((entry for entry in modes.values() if isinstance(entry, Mapping) and variant in (entry.get("variants") or ())), mode)
    chosen = suited or feature
    overrides = _mapping(chosen, "hardware_overrides")
    return next((_list(_mapping(overrides, kind), "args") for kind in hardware if kind in overrides), _list(chosen, "args"))


def _notes(where: str, variant: str, variants: Mapping[str, Any], features: Sequence[str], hardware: Sequence[str]) -> tuple[str, ...]:
    others = [*(name for name in variants if name != variant), *features, *hardware]
    if not others:
        return ()
    example = f"{where}#{PARTS.join(str(name) for name in others[:2])}"
    return (f"The recipe also has {', '.join(map(str, others))}: name what you run, such as {example}.",)


def _mapping(node: Any, key: str) -> Mapping[str, Any]:
    value = node.get(key) if isinstance(node, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _list(node: Mapping[str, Any], key: str) -> list[str]:
    value = node.get(key)
    items = [str(word) for word in value] if isinstance(value, list) else []
    return [part for word in items for part in (word.split() if word.startswith("--") and "{" not in word else [word])]


__all__ = ["is_recipe", "server_of_recipe"]
