"""What one configuration means for Megatron: fields of megatron-core's configuration classes, and words of Megatron-LM's command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from autoscout.backends.megatron.added import added_flags, added_words, is_added
from autoscout.backends.megatron.mixed import layout_words
from autoscout.backends.megatron.own_flags import SWITCHED_OFF, groups, without
from autoscout.backends.megatron.start import BY_ITSELF
from autoscout.backends.megatron.workload import MegatronWorkload, has_biases
from autoscout.catalog.models import ModelShape
from autoscout.engines.space import default_of
from autoscout.engines.table import EngineTable

FILE = "megatron.json"
OVERLAP = "tp_comm_overlap.yaml"
OVERLAP_FLAG = "--tp-comm-overlap-cfg"
RATE = 1e-3  # of Adam, for the built-in models
LARGE_RATE = 1e-4  # for a checkout: large models begin without a warm-up here
LOSS_SCALE = 65536.0  # that fp16 starts with: Megatron's own, 2^32, would skip the steps that are compared
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
CLASSES = ("TransformerConfig", "DistributedDataParallelConfig", "OptimizerConfig")

BULK = ("qkv_dgrad", "qkv_wgrad", "fc1_dgrad", "fc1_wgrad")
CHUNKED = ("proj_fprop", "fc2_fprop")
"""Matrix products of a layer whose communication takes multiprocessors: next to another product, or piece by piece. Others copy instead."""

DATA_FLAGS = ("--data-path", "--data-args-path", "--train-data-path", "--per-split-data-args-path", "--mock-data")


def core_settings(config: Mapping[str, Any], table: EngineTable, shape: ModelShape) -> dict[str, Any]:
    """Fields of megatron-core for the knobs of a configuration."""
    settings: dict[str, Any] = {}
    for name, value in config.items():
        row = table.knobs.get(name)
        if row is not None and not row.key and not row.env and (value is not None or not is_added(row, table)):
            settings[row.setting] = value
    precision = str(config.get("precision", "fp32"))
    settings |= {"bf16": precision in ("bf16", "fp8"), "fp16": precision == "fp16"}
    if precision == "fp8":
        settings["fp8"] = "hybrid"
    settings["params_dtype"] = DTYPES[precision]
    if int(config.get("pp", 1)) > 1:
        settings["pipeline_dtype"] = DTYPES[precision]
        settings["batch_p2p_comm"] = not config.get("overlap_p2p_comm", False)
    if settings.get("recompute_granularity") == "none":
        settings["recompute_granularity"] = None
    if "recompute_modules" in settings:
        settings["recompute_modules"] = str(settings["recompute_modules"]).split("+")
    if settings.get("virtual_pipeline_model_parallel_size") == 1:
        settings["virtual_pipeline_model_parallel_size"] = None
    in_bf16 = bool(config.get("grad_reduce_in_bf16", False))
    settings["grad_reduce_in_fp32"] = precision in ("bf16", "fp8") and not in_bf16  # as Megatron-LM has it
    for name in ("bucket_size", *(("attention_backend",) if "attention" in config else ())):
        settings.pop(name, None)
    if "bucket_mb" in config:
        wide = precision == "fp32" or settings["grad_reduce_in_fp32"]
        settings["bucket_size"] = int(config["bucket_mb"]) * 1_000_000 // (4 if wide else 2)
    return {**model_settings(shape), **settings}


def model_settings(shape: ModelShape) -> dict[str, Any]:
    """Fields of megatron-core for a model; without dropout, so that losses can be compared."""
    settings: dict[str, Any] = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "ffn_hidden_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_query_groups": shape.kv_heads,
        "kv_channels": shape.head_size,
        "gated_linear_unit": shape.gated,
        "add_bias_linear": has_biases(shape),
        "normalization": "RMSNorm" if shape.gated else "LayerNorm",
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if shape.experts:
        settings |= {"num_moe_experts": shape.experts, "moe_router_topk": shape.active_experts, "moe_ffn_hidden_size": shape.expert_ffn}
        if shape.active_experts == 1:
            settings["moe_router_pre_softmax"] = True  # megatron-core asks for it where one expert is chosen
        if shape.shared_ffn:
            settings["moe_shared_expert_intermediate_size"] = shape.shared_ffn
        if shape.dense_layers:
            settings["moe_layer_freq"] = [0] * shape.dense_layers + [1] * (shape.layers - shape.dense_layers)
    return settings


def core_file(config: Mapping[str, Any], table: EngineTable, workload: MegatronWorkload) -> str:
    """The file that the runner reads: arguments of megatron-core's classes, and what goes with them."""
    settings = core_settings(config, table, workload.architecture)
    settings |= {"optimizer": "adam", "lr": RATE, "initial_loss_scale": LOSS_SCALE}
    data: dict[str, Any] = {
        owner: {name: value for name, value in sorted(settings.items()) if owner in table.flags[name].of} for owner in CLASSES
    }
    data |= {
        "micro_batch_size": int(config["micro_batch"]),
        "global_batch_size": workload.global_batch,
        "data_parallel_size": int(config.get("dp", 1)),
        "bucket_count": int(config.get("bucket_count", 0)),
        "attention": str(config.get("attention", "core")),
        "activation": "silu" if workload.architecture.gated else "gelu",
    }
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def overlap_file(config: Mapping[str, Any]) -> dict[str, str]:
    """Transformer Engine's file for overlapped tensor parallel communication; none where its own choice stands."""
    if "tp_comm_sms" not in config:
        return {}
    count = int(config["tp_comm_sms"])
    entries = {name: {"method": "bulk", "num_sm": count} for name in BULK}
    entries |= {name: {"method": "pipeline", "num_sm": count} for name in CHUNKED}
    return {OVERLAP: yaml.safe_dump(entries, sort_keys=False)}


def arguments(
    config: Mapping[str, Any], table: EngineTable, workload: MegatronWorkload, layers: Sequence[int] = (), *, measured: bool
) -> list[str]:
    """Words for Megatron-LM's training script: the model, the work and what differs from what it does by itself.

    `{folder}` stands for the folder with the files of the configuration, `{steps}` for the number of iterations. No flag stands twice:
    those of the user that are no knobs take the place of ours.

    Args:
        config: The knobs.
        table: Of the version.
        workload: The work.
        layers: Of each stage, where they are not equal.
        measured: Whether it is for a trial, which ends after `{steps}` and neither loads nor saves.
    """
    mine = added_flags(config, table)
    own = without(tuple(groups(workload.own.words(measured=measured))), mine)
    added = added_words(config, table)
    ours = [*_config_words(config, table, workload), *layout_words(layers), *_run_words(workload, measured=measured)]
    return [*without(tuple(groups(ours)), frozenset(flag for flag, _ in groups(own))), *own, *added]


def _config_words(config: Mapping[str, Any], table: EngineTable, workload: MegatronWorkload) -> list[str]:
    """Words for the knobs, and for the model where the user's flags do not describe it."""
    shape = workload.architecture
    changed = {
        name: value
        for name, value in config.items()
        if name in table.knobs
        and not is_added(table.knobs[name], table)
        and (table.knobs[name].always or value != default_of(table.knobs[name], table, BY_ITSELF))
    }
    settings = core_settings({**changed, "precision": config.get("precision", "fp32")}, table, shape)
    described = workload.own.describes_a_model
    words = [] if described else _shape_words(shape, workload)
    if described:
        settings = {name: value for name, value in settings.items() if name not in model_settings(shape)}
    skipped = {"params_dtype", "pipeline_dtype", "batch_p2p_comm", "grad_reduce_in_fp32", "data_parallel_size"}
    for name, value in settings.items():
        if name in skipped or value is None:
            continue
        if name == "bias_activation_fusion" and value is False:
            words.append("--no-bias-swiglu-fusion" if shape.gated else "--no-bias-gelu-fusion")
        elif isinstance(value, bool):
            words += _switch(name, value, table)
        elif name == "moe_layer_freq":
            words += [table.flags[name].flag, f"([0]*{value.count(0)}+[1]*{value.count(1)})"]
        elif isinstance(value, list):
            words += [table.flags[name].flag, *map(str, value)]
        elif name != "num_query_groups":
            words += [table.flags[name].flag, str(value)]
    if config.get("grad_reduce_in_bf16"):
        words.append("--grad-reduce-in-bf16")
    if config.get("bucket_count"):
        words += ["--ddp-num-buckets", str(config["bucket_count"])]
    if settings["fp16"]:
        words += ["--initial-loss-scale", str(int(LOSS_SCALE))]
    if overlap_file(config):
        words += [OVERLAP_FLAG, f"{{folder}}/{OVERLAP}"]
    if not workload.transformer_engine and not described:
        words += ["--transformer-impl", "local", "--no-gradient-accumulation-fusion", *(["--no-rope-fusion"] if shape.gated else [])]
    return words


def _switch(name: str, value: bool, table: EngineTable) -> list[str]:
    """The word for a switch; none where Megatron-LM has it that way by itself."""
    if name in SWITCHED_OFF:
        return [] if value else [SWITCHED_OFF[name]]
    return [table.flags[name].flag] if value else []


def _shape_words(shape: ModelShape, workload: MegatronWorkload) -> list[str]:
    """Words for what megatron-core's classes do not hold of the model."""
    length = str(workload.shape["sequence"])
    words = ["--max-position-embeddings", length]
    words += ["--position-embedding-type", "rope" if shape.gated else "learned_absolute"]
    if shape.kv_heads != shape.heads:
        words += ["--group-query-attention", "--num-query-groups", str(shape.kv_heads)]
    return [*words, *([] if shape.tied else ["--untie-embeddings-and-output-weights"])]


def _run_words(workload: MegatronWorkload, *, measured: bool) -> list[str]:
    """Words for batch and data, and for a line of the log for every iteration."""
    named = workload.own.names
    words = ["--global-batch-size", str(workload.global_batch), "--seq-length", str(workload.shape["sequence"])]
    if not named & {"--train-iters", "--train-samples"}:
        words += ["--train-iters", "{steps}"]
    elif measured:  # the schedule of the learning rate stays the user's
        words += ["--exit-interval", "{steps}"]
    if "--lr" not in named:
        words += ["--lr", f"{LARGE_RATE:g}", "--lr-decay-style", "constant"]
    if not named & set(DATA_FLAGS):
        words += ["--mock-data", "--split", "99,1,0"]
        if "--tokenizer-type" not in named:
            words += ["--tokenizer-type", "NullTokenizer", "--vocab-size", str(workload.architecture.vocab)]
    whole = workload.own.describes_a_model
    words += [] if whole else ["--seed", str(workload.seed + 1)]
    return [*words, "--log-interval", "1", "--log-throughput", "--eval-iters", "0"] if measured or not whole else words


__all__ = ["CLASSES", "FILE", "OVERLAP", "arguments", "core_file", "core_settings", "model_settings", "overlap_file"]
