"""Settings as flags of the `llama-server` program, in the spelling that a build knows, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autoscout.backends.llamacpp.program import ProgramFlag
from autoscout.core.config import Value

DRAFT_KINDS = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
"""Kinds of speculation with a model, or layers of one, that guesses."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "threads": ("--threads",),
    "threads_batch": ("--threads-batch",),
    "poll": ("--poll",),
    "numa": ("--numa",),
    "batch": ("--batch-size",),
    "ubatch": ("--ubatch-size",),
    "parallel": ("--parallel",),
    "flash_attention": ("--flash-attn",),
    "cache_type_k": ("--cache-type-k",),
    "cache_type_v": ("--cache-type-v",),
    "load_mode": ("--load-mode",),
    "gpu_layers": ("--n-gpu-layers",),
    "split_mode": ("--split-mode",),
    "tensor_split": ("--tensor-split",),
    "main_gpu": ("--main-gpu",),
    "override_tensor": ("--override-tensor",),
    "n_cpu_moe": ("--n-cpu-moe",),
    "n_cpu_ffn": ("--n-cpu-ffn",),
    "moe_cache_mib": ("--moe-cache-mib",),
    "cache_reuse": ("--cache-reuse",),
    "cache_ram": ("--cache-ram",),
    "ctx_checkpoints": ("--ctx-checkpoints", "--swa-checkpoints"),
    "slot_prompt_similarity": ("--slot-prompt-similarity",),
    "spec_type": ("--spec-type",),
    "draft_max": ("--spec-draft-n-max", "--draft-max"),
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "draft_p_min": ("--spec-draft-p-min", "--draft-p-min"),
    "draft_model": ("--spec-draft-model", "--model-draft"),
}
"""Setting -> the flag that takes it, the newest spelling first."""
SWITCHES: Mapping[str, tuple[str, str]] = {
    "cont_batching": ("--cont-batching", "--no-cont-batching"),
    "kv_unified": ("--kv-unified", "--no-kv-unified"),
    "repack": ("--repack", "--no-repack"),
    "swa_full": ("--swa-full", ""),
    "kv_offload": ("--kv-offload", "--no-kv-offload"),
    "op_offload": ("--op-offload", "--no-op-offload"),
}
"""Setting -> the words that switch it on and off."""
ALWAYS = ("threads", "threads_batch", "parallel", "kv_unified")
"""Said even at their defaults, which depend on each other: a number of slots, even the usual one, changes what the cache does by itself."""
LOOKUPS: Mapping[str, tuple[str, str]] = {
    "ngram-simple": ("--spec-ngram-simple-size-m", "--spec-ngram-simple-size-n"),
    "ngram-map-k": ("--spec-ngram-map-k-size-m", "--spec-ngram-map-k-size-n"),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-size-n"),
    "ngram-mod": ("--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"),
}
"""Kind of speculation by looking up earlier text -> the flags for the longest guess, and for how many tokens must be the same before it."""
LEAST_GUESS = 48  # of ngram-mod by itself
MANY_LAYERS = 999
NOT_SAID: Mapping[str, Value] = {"numa": "off", "override_tensor": "none", "tensor_split": "auto", "spec_type": "none"}
"""Values that are a flag left out."""


def flag_of(setting: str, known: Collection[str]) -> str:
    """The spelling of a setting's flag among the flags of a build, empty where it has none; the newest one where no flags are given."""
    spellings = VALUES.get(setting) or (SWITCHES[setting][0],)
    return next((flag for flag in spellings if not known or flag in known), "")


def all_flags(known: Collection[str]) -> dict[str, str]:
    """The flag of every setting that a build has."""
    flags = {setting: flag_of(setting, known) for setting in (*VALUES, *SWITCHES)}
    return {setting: flag for setting, flag in flags.items() if flag}


def server_arguments(
    settings: Mapping[str, Any], flags: Mapping[str, ProgramFlag] | None = None, own: Mapping[str, Value] | None = None
) -> list[str]:
    """The flags of `llama-server` that mean these settings.

    Args:
        settings: Values by setting, `context` included.
        flags: What the build knows; the newest spellings where it is not asked.
        own: What the build does by itself, which is left out; everything is said where that is not known.
    """
    known, own = flags or {}, own or {}
    words = ["--ctx-size", str(settings["context"])] if settings["context"] or not own else []
    for setting in VALUES:
        if setting in settings and not _is_unsaid(setting, settings[setting], own):
            words += [flag_of(setting, known), _word(setting, settings[setting], known)]
    for setting, (on, off) in SWITCHES.items():
        if setting in settings and not _is_unsaid(setting, settings[setting], own):
            words += [word for word in (on if settings[setting] else off,) if word]
    kind = str(settings.get("spec_type", "none"))
    if kind in LOOKUPS:
        for setting, flag in zip(("ngram_max", "ngram_match"), LOOKUPS[kind], strict=True):
            words += [flag, str(settings[setting])] if setting in settings else []
        if kind == "ngram-mod" and settings.get("ngram_max", LEAST_GUESS) < LEAST_GUESS:
            words += ["--spec-ngram-mod-n-min", str(settings["ngram_max"])]
    if settings.get("pin_threads"):
        last = max(int(settings.get("threads", 1)), int(settings.get("threads_batch", 1))) - 1
        for suffix in ("", "-batch"):
            words += [f"--cpu-range{suffix}", f"0-{last}", f"--cpu-strict{suffix}", "1"]
    return words


def _word(setting: str, value: Value, known: Mapping[str, ProgramFlag]) -> str:
    if setting == "gpu_layers" and value == "all" and known and known["--n-gpu-layers"].default != "auto":
        return str(MANY_LAYERS)  # builds that know no such word take any number
    return str(value)


def _is_unsaid(setting: str, value: Value, own: Mapping[str, Value]) -> bool:
    if setting in NOT_SAID and value == NOT_SAID[setting]:
        return True
    return setting in own and setting not in ALWAYS and value == own[setting]


def own_values(flags: Mapping[str, ProgramFlag], slots: int) -> dict[str, Value]:
    """What a program does by itself, in the words of our settings, from its help text; settings that it lacks are absent."""
    own: dict[str, Value] = {}
    for setting in VALUES:
        flag = flag_of(setting, flags)
        if flag and flags[flag].takes_value:
            own[setting] = _value(setting, flags[flag].default)
    for setting, (on, off) in SWITCHES.items():
        if on in flags and (not off or off in flags[on].names):
            own[setting] = flags[on].default.startswith(("enabled", "true"))
    if own.get("parallel") == -1:
        own["parallel"] = slots
    if own.get("gpu_layers") == -1:
        own["gpu_layers"] = "auto"
    if any(flag in flags for pair in LOOKUPS.values() for flag in pair):
        own |= {"ngram_max": LEAST_GUESS, "ngram_match": 12}
    own["pin_threads"] = False
    return {name: value for name, value in own.items() if value is not None}


def _value(setting: str, text: str) -> Value:
    """A default of the help text as a value; what it leaves unsaid is as the program's source has it."""
    unsaid: dict[str, Value] = {**NOT_SAID, "split_mode": "layer", "n_cpu_moe": 0, "n_cpu_ffn": 0, "draft_model": ""}
    if setting in unsaid:
        return unsaid[setting]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


__all__ = [
    "ALWAYS",
    "DRAFT_KINDS",
    "LEAST_GUESS",
    "LOOKUPS",
    "SWITCHES",
    "VALUES",
    "all_flags",
    "flag_of",
    "own_values",
    "server_arguments",
]
