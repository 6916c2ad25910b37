"""Knobs that a campaign adds: any setting of megatron-core's classes, and any variable of the environment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscout.backends.megatron.workload import MegatronWorkload
from autoscout.core.config import Value
from autoscout.core.errors import Fault
from autoscout.core.protocols import Asked
from autoscout.engines.space import ALL
from autoscout.engines.table import EngineTable, KnobRow, plain, table_for
from autoscout.engines.widening import Refusal, Widening, converted
from autoscout.space import Space

THE_WORK = frozenset(
    [
        "num_layers",
        "hidden_size",
        "ffn_hidden_size",
        "num_attention_heads",
        "num_query_groups",
        "kv_channels",
        "gated_linear_unit",
        "add_bias_linear",
        "normalization",
        "hidden_dropout",
        "attention_dropout",
        "num_moe_experts",
        "moe_router_topk",
        "moe_ffn_hidden_size",
        "moe_router_pre_softmax",
        "moe_layer_freq",
        "moe_shared_expert_intermediate_size",
        "global_batch_size",
        "optimizer",
        "lr",
        "initial_loss_scale",
    ]
)
"""Settings of the model and of the step, which are the same for every configuration."""
FOLLOWS = {"bf16": "precision", "fp16": "precision", "fp8": "precision", "params_dtype": "precision", "pipeline_dtype": "precision",
           "batch_p2p_comm": "overlap_p2p_comm", "grad_reduce_in_fp32": "grad_reduce_in_bf16", "bucket_size": "bucket_mb"}  # fmt: skip
"""Settings that follow from knobs."""


def added_knobs(asked: Asked, table: EngineTable, space: Space, own: Mapping[str, Value], workload: MegatronWorkload) -> Widening:
    """What a campaign asks for besides the usual knobs; `rows` are the knobs that result, `faults` all that is wrong.

    Args:
        asked: By the campaign.
        table: Of the version.
        space: The usual one.
        own: Where a study begins.
        workload: The work, with the user's own flags and variables.
    """
    outside = [name for name in space.knobs if name not in table.knobs]
    knobs: dict[str, Mapping[str, Any]] = {name: entry for name, entry in asked.knobs.items() if name not in outside}
    knobs = {**{str(name): {} for name in workload.free if name not in space.knobs and name != ALL}, **knobs}
    named = [(name, "space", f"knobs.{name}", plain(str(entry.get("flag") or name))) for name, entry in knobs.items() if "env" not in entry]
    named += [(name, "set", name, plain(name)) for name in asked.pinned]
    named += [(name, "first", name, plain(name)) for values in asked.first for name in values]
    faults = list(_faults(named, table))
    reader = Widening(
        table=table,
        offered={name: knob.values for name, knob in space.knobs.items()},
        own={**own, **_given(workload, table)},
        variables=workload.env,
        consent=True,  # the losses of training are compared whatever is searched
    )
    if not faults:
        reader.read(replace(asked, knobs=knobs), {})
    reader.faults = [*faults, *reader.faults]
    mine = {flag for flag, _ in workload.own.rest}
    for name, row in reader.rows.items():
        if not row.env and name not in table.knobs and table.flags[row.setting].flag in mine:
            reader.rows[name] = replace(row, always=True)  # else the flag would be left out where it is as the user has it
    return reader


def _faults(named: list[tuple[str, str, str, str]], table: EngineTable) -> list[Fault]:
    """Settings that cannot be knobs of their own."""
    carriers = {row.setting: row.name for row in table.knobs.values() if not row.key}
    faults = []
    for name, where, place, setting in named:
        if name in table.knobs or setting not in table.flags:
            continue
        if setting in THE_WORK:
            rule = "is part of the work, which is the same for every configuration"
            faults.append(Fault(where=where, field=place, rule=rule, fix="Give it in workload.arguments"))
        elif other := FOLLOWS.get(setting) or carriers.get(setting):
            faults.append(Fault(where=where, field=place, rule=f"the knob {other} stands for it", fix=f"Name {other} instead"))
    return faults


def _given(workload: MegatronWorkload, table: EngineTable) -> dict[str, Value]:
    """Values of settings that the user's own flags give."""
    settings = {row.flag: row for row in table.flags.values()}
    values: dict[str, Value] = {}
    for flag, words in workload.own.rest:
        if flag in settings:
            try:
                values[settings[flag].name] = converted(" ".join(words) if words else True, settings[flag])
            except Refusal:
                continue  # Megatron-LM will say so
    return values


def is_added(row: KnobRow, table: EngineTable) -> bool:
    """Whether a knob is none of the usual ones."""
    return row.name not in table_for("megatron", table.version).knobs


def added_words(config: Mapping[str, Value], table: EngineTable) -> list[str]:
    """Words of Megatron-LM's command line for added knobs, as they are in a configuration."""
    words: list[str] = []
    for name, value in config.items():
        row = table.knobs.get(name)
        if row is None or row.env or value is None or not is_added(row, table) or (not row.always and value == row.default):
            continue
        flag = table.flags[row.setting]
        if flag.type in ("bool", "switch"):
            words += [flag.flag] if value else ["--no-" + flag.flag.removeprefix("--")] if flag.type == "bool" else []
        else:
            words += [flag.flag, *(shlex.split(str(value)) if flag.type == "list" else [str(value)])]
    return words


def added_flags(config: Mapping[str, Value], table: EngineTable) -> frozenset[str]:
    """Flags that added knobs stand for, in whatever way."""
    rows = (table.knobs[name] for name in config if name in table.knobs)
    return frozenset(table.flags[row.setting].flag for row in rows if not row.env and is_added(row, table))


__all__ = ["added_flags", "added_knobs", "added_words", "is_added"]
