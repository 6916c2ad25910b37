"""The workload of the `megatron` backend: a model, and either a checkout of Megatron-LM or the built-in runner."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.backends.megatron.own_flags import OwnFlags, read_flags
from autoscout.catalog.models import ModelShape, model, model_from
from autoscout.common.fields import read_fields
from autoscout.core.errors import ConfigError, Fault
from autoscout.training.command import TrainingCommand
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
        model: The name of one, the path of a `config.json`, or a shape; none where `arguments` describe it.
        checkout: Folder of a Megatron-LM checkout, whose script is run; without one the built-in runner uses the megatron-core package.
        script: The training script in it.
        arguments: Your own arguments for the script. Those of knobs are where the knobs begin; a whole launch, model included, is the first
            trial as it is. Without data it trains on mock data.
        env: Variables of the script's environment.
        launcher: Command that starts the processes, instead of torchrun; `{port}`, `{host}`, `{nodes}` and `{processes}` (of one node) in
            it are filled in. One that reaches other machines by itself, such as srun or mpirun, is started on the first only.
        transformer_engine: Whether Transformer Engine is installed there; left out: with a checkout it is. The runner does without.
        core_version: Version of megatron-core in the checkout; left out: the newest one there is a table of.
        free: Knobs to search though they seldom matter; `all` frees every one.
    """

    model: str | dict[str, Any] = ""  # type: ignore[assignment] # a shape as well as a name
    checkout: str = ""
    script: str = "pretrain_gpt.py"
    arguments: str = ""
    launcher: str = ""
    env: dict[str, str] = Field({})
    transformer_engine: bool | None = None
    core_version: str = ""
    free: list[str] = Field([])

    @property
    def reaches_others(self) -> bool:
        """Whether the launcher starts processes on other machines by itself."""
        return TrainingCommand(self.launcher).reaches_others

    @classmethod
    def named_shape(cls, name: str | Mapping[str, Any]) -> dict[str, Any]:
        shape = architecture(name)
        return {**asdict(shape), "vocabulary": shape.vocab, "sequence": SEQUENCES.get(shape.name, SEQUENCE)}

    @property
    def architecture(self) -> ModelShape:
        shape = architecture(self.model)
        return replace(shape, layers=self.layers) if self.layers else shape

    @property
    def own(self) -> OwnFlags:
        """The user's arguments, read."""
        return read_flags(self.arguments if self.checkout else "", self.core_version)

    @property
    def lists_stages(self) -> bool:
        """Whether the user's flags say which layers a stage holds."""
        named = ("--pipeline-model-parallel-layout", "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
        return not self.own.names.isdisjoint(named)

    @property
    def has_biases(self) -> bool:
        """Whether linear layers of the model have biases."""
        return self.own.biases if self.own.describes_a_model else has_biases(self.architecture)


def has_biases(shape: ModelShape) -> bool:
    """Whether linear layers have biases: those of GPT do, gated ones and experts do not."""
    return not shape.gated and not shape.experts


def architecture(name: str | Mapping[str, Any]) -> ModelShape:
    """The shape of a model: a small built-in one, one of the catalogue, that of a `config.json`, or one that is given.

    Raises:
        ConfigError: nobody knows it, or it has parts that this backend does not build.
    """
    if isinstance(name, Mapping):
        return model_from(name)
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
        folder = Path(workload.checkout).expanduser().absolute()
        version = workload.core_version or checkout_version(folder)
        workload = workload.model_copy(update={"checkout": str(folder), "core_version": version})
        workload, wrong = _with_own_flags(workload, int(hardware.get("processes", 1)))
        faults += wrong
    engine = bool(workload.checkout) if workload.transformer_engine is None else workload.transformer_engine
    workload = workload.model_copy(update={"transformer_engine": engine})
    filled, wrong = fill_model(workload, str(hardware.get("device")), int(hardware.get("processes", 1)), replicas=False)
    return filled, [*faults, *wrong, *_checkout(filled, hardware), *_runner(filled, data)]


def _with_own_flags(workload: MegatronWorkload, processes: int) -> tuple[MegatronWorkload, list[Fault]]:
    """The workload with what its arguments say of model and work; a field that is given counts more."""
    try:
        own = workload.own
    except ValueError:  # the words cannot be read, which is said elsewhere
        return workload, []
    faults = list(own.faults)
    if own.describes_a_model and workload.model:
        rule, fix = "describe a model, and there is another one", "Leave out --model, or the flags of the model"
        faults.append(Fault(where=WHERE, field="arguments", value=repr(workload.model), rule=rule, fix=fix))
    work = dict(own.work)
    micro = own.knobs.get("micro_batch")
    if own.describes_a_model and "global_batch" not in work and isinstance(micro, int):
        parts = [own.knobs.get(name, 1) for name in ("tp", "pp", "cp")]
        work["global_batch"] = micro * max(1, processes // prod(part for part in parts if isinstance(part, int)))
    update: dict[str, Any] = {name: value for name, value in work.items() if not getattr(workload, name)}
    local = ("--transformer-impl", ("local",)) in own.rest
    if workload.transformer_engine is None and local:
        update["transformer_engine"] = False
    return workload.model_copy(update={**update, **({"model": own.sizes} if own.describes_a_model else {})}), faults


def checkout_version(folder: Path) -> str:
    """The version of megatron-core in a checkout; empty where it does not say."""
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / "megatron" / "core" / "package_info.py").read_text()
        parts = [re.search(rf"^{name} = (\d+)", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCH")]
        return ".".join(part[1] for part in parts if part)
    return ""


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
    stray = [name for name in ("arguments", "launcher", "core_version", "env") if data.get(name)]
    if workload.transformer_engine:
        stray.append("transformer_engine")
    rule = "belongs to a checkout of Megatron-LM; the built-in runner takes none"
    return [Fault(where=WHERE, field=name, value=repr(data[name]), rule=rule, fix="Give checkout") for name in stray]
