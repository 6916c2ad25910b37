"""The workload of the `megatron` backend: a model, and either a checkout of Megatron-LM or the built-in runner."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.catalog.models import ModelShape, model
from autoscout.common.fields import read_fields
from autoscout.core.errors import ConfigError, Fault
from autoscout.training.workload import CATALOGUED, SMALL, WHERE, BuiltInWorkload, fill_model

SEQUENCE = 4096  # tokens of a sequence, for models that are not built-in ones

EXPERTS: dict[str, dict[str, Any]] = {
    "micro-moe": {"layers": 4, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 256, "experts": 4, "active_experts": 2, "expert_ffn": 64},
    "tiny-moe": {"layers": 4, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 2048, "experts": 8, "active_experts": 2, "expert_ffn": 256},
}
"""Small models with experts, for CPUs; `micro-moe` is for tests."""

SEQUENCES = {**{name: shape["sequence"] for name, shape in SMALL.items()}, "micro-moe": 32, "tiny-moe": 128, **CATALOGUED}


class MegatronWorkload(BuiltInWorkload):
    """What is trained.

    Attributes:
        checkout: Folder of a Megatron-LM checkout, whose script is run; without one the built-in runner uses the megatron-core package.
        script: The training script in it.
        arguments: Further arguments for the script, such as those that name your data; without any it trains on mock data.
        launcher: Command that starts the processes, instead of torchrun (under srun with several nodes); `{port}`, `{host}`, `{nodes}`
            and `{processes}` (of one node) in it are filled in.
        transformer_engine: Whether Transformer Engine is installed there; left out: with a checkout it is. The runner does without.
        core_version: Version of megatron-core in the checkout; left out: the newest one there is a table of.
        free: Knobs to search though they seldom matter; `all` frees every one.
    """

    checkout: str = ""
    script: str = "pretrain_gpt.py"
    arguments: str = ""
    launcher: str = ""
    transformer_engine: bool | None = None
    core_version: str = ""
    free: list[str] = Field([])

    @classmethod
    def named_shape(cls, name: str) -> dict[str, Any]:
        shape = architecture(name)
        return {**asdict(shape), "vocabulary": shape.vocab, "sequence": SEQUENCES.get(name, SEQUENCE)}

    @property
    def architecture(self) -> ModelShape:
        shape = architecture(self.model)
        return replace(shape, layers=self.layers) if self.layers else shape


def architecture(name: str) -> ModelShape:
    """The shape of a model: a small built-in one, one of the catalogue, or that of a `config.json`.

    Raises:
        ConfigError: nobody knows it, or it has parts that this backend does not build.
    """
    if name in SMALL:
        sizes = SMALL[name]
        layers, hidden, heads, vocab = (sizes[part] for part in ("layers", "width", "heads", "vocabulary"))
        return ModelShape(name=name, layers=layers, hidden=hidden, heads=heads, vocab=vocab, gated=False)
    if name in EXPERTS:
        return ModelShape(name=name, **EXPERTS[name])
    shape = model(name)
    if shape.kv_width != 2 * shape.kv_heads * shape.head_size or shape.attention_layers != shape.layers:
        rule = "latent attention and layers without attention are not built by this backend"
        fix = "Tune your own script with the backend pytorch"
        raise ConfigError(Fault(where=WHERE, field="model", value=repr(name), rule=rule, fix=fix))
    return shape


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[MegatronWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(MegatronWorkload, data, WHERE)
    workload = read or MegatronWorkload()
    if workload.checkout:
        workload = workload.model_copy(update={"checkout": str(Path(workload.checkout).expanduser().absolute())})
    engine = bool(workload.checkout) if workload.transformer_engine is None else workload.transformer_engine
    workload = workload.model_copy(update={"transformer_engine": engine})
    filled, wrong = fill_model(workload, str(hardware.get("device")), int(hardware.get("processes", 1)), replicas=False)
    return filled, [*faults, *wrong, *_checkout(filled, hardware), *_runner(filled, data)]


def _checkout(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> list[Fault]:
    if not workload.checkout:
        return []

    def fault(field: str, value: object, rule: str, fix: str = "") -> Fault:
        return Fault(where=WHERE, field=field, value=repr(value), rule=rule, fix=fix)

    faults = []
    if not Path(workload.checkout, workload.script).is_file():
        faults.append(
            fault(
                "checkout", workload.checkout, f"must be a folder with {workload.script}", "git clone https://github.com/NVIDIA/Megatron-LM"
            )
        )
    if hardware.get("device") != "cuda":
        faults.append(fault("checkout", workload.checkout, "Megatron-LM trains on GPUs", "Leave it out, or give --gpus"))
    if workload.depths:
        faults.append(fault("depths", workload.depths, "belongs to the built-in runner", "Leave the checkout out, or use -w layers=4"))
    for field in ("arguments", "launcher"):
        try:
            shlex.split(getattr(workload, field))
        except ValueError as error:
            faults.append(fault(field, getattr(workload, field), f"cannot be read as words of a command: {error}"))
    return faults


def _runner(workload: MegatronWorkload, data: Mapping[str, Any]) -> list[Fault]:
    """What goes with a checkout only."""
    if workload.checkout:
        return []
    stray = [name for name in ("arguments", "launcher", "core_version") if data.get(name)]
    if workload.transformer_engine:
        stray.append("transformer_engine")
    rule = "belongs to a checkout of Megatron-LM; the built-in runner takes none"
    return [Fault(where=WHERE, field=name, value=repr(data[name]), rule=rule, fix="Give checkout") for name in stray]
