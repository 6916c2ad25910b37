"""The user's own flags of Megatron-LM: what they say of knobs, of the model and of the work, and which others there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from autoscout.core.config import Value
from autoscout.core.errors import Fault
from autoscout.engines.table import EngineTable, table_for

WHERE = "arguments"
Group = tuple[str, tuple[str, ...]]
"""A flag with the words that follow it."""

SIZES = {
    "--num-layers": "layers",
    "--hidden-size": "hidden",
    "--num-attention-heads": "heads",
    "--num-query-groups": "kv_heads",
    "--kv-channels": "head_size",
    "--ffn-hidden-size": "ffn",
    "--vocab-size": "vocab",
    "--num-experts": "experts",
    "--moe-router-topk": "active_experts",
    "--moe-ffn-hidden-size": "expert_ffn",
    "--moe-shared-expert-intermediate-size": "shared_ffn",
}
"""Flags of the model, and the field of its shape."""
MODEL = ("--num-layers", "--hidden-size", "--num-attention-heads")
"""Flags without which there is no model."""
WORK = {"--global-batch-size": "global_batch", "--seq-length": "sequence"}

SWITCHED_OFF = {
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
    "bias_dropout_fusion": "--no-bias-dropout-fusion",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "add_bias_linear": "--disable-bias-linear",
}
"""Flags of Megatron-LM for switches that it turns on by itself."""
FUSIONS_OFF = ("--no-bias-swiglu-fusion", "--no-bias-gelu-fusion")
OTHER_NAMES = {"bucket_count": "--ddp-num-buckets", "grad_reduce_in_bf16": "--grad-reduce-in-bf16"}
NO_FLAGS = ("dp", "attention", "precision", "tp_comm_sms", "bucket_mb", "overlap_p2p_comm", "bias_activation_fusion")
"""Knobs that Megatron-LM has no flag for, or not one that holds their value."""
ELEMENT_BYTES = 4  # of a gradient that is reduced, in fp32 as Megatron-LM has it
VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "SentencePieceTokenizer": 32000}
VOCABULARY = 128_256  # of a tokenizer that is on nobody's list: a large one, so that memory is not thought too small
GATED_WIDTH = 64  # Megatron-LM cuts the usual width of gated layers, 8/3 of the hidden size, to a multiple of it

OF_A_RUN = ("--save", "--load", "--eval-", "--exit-", "--log-", "--tensorboard", "--wandb", "--timing-log", "--profile", "--async-save",
            "--use-checkpoint-args", "--non-persistent", "--pretrained-checkpoint", "--record-memory", "--memory-snapshot")  # fmt: skip
"""Beginnings of flags that a trial does without: it neither loads, saves nor evaluates, and logs every step."""


@dataclass(frozen=True)
class OwnFlags:
    """Flags, read.

    Attributes:
        knobs: What they say of knobs.
        sizes: Fields of the model's shape, where they describe a model.
        work: Fields of the workload: `global_batch`, `sequence`, and `layers` of a model that is named elsewhere.
        biases: Whether the linear layers of such a model have biases.
        rest: The others, as they are.
        faults: All that is wrong with them.
    """

    knobs: dict[str, Value] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)
    biases: bool = True
    rest: tuple[Group, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def describes_a_model(self) -> bool:
        """Whether they are the whole launch: then Megatron-LM's own defaults hold for what they do not name."""
        return bool(self.sizes)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.rest)

    def words(self, *, measured: bool) -> list[str]:
        """The others as words; in a trial without those of a long run."""
        return [word for flag, values in self.rest if not (measured and flag.startswith(OF_A_RUN)) for word in (flag, *values)]


@lru_cache(maxsize=64)
def read_flags(text: str, version: str) -> OwnFlags:
    """The flags in a text that `shlex` can split, for a version of megatron-core."""
    reader = _OwnFlagReader(table_for("megatron", version))
    for group in groups(shlex.split(text)):
        reader.read(*group)
    return reader.result()


def groups(words: Sequence[str]) -> Iterator[Group]:
    """Flags with their values; words before the first flag belong to the flag that has no name."""
    flag = ""
    values: list[str] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            if flag or values:
                yield flag, tuple(values)
            flag, equals, value = word.partition("=")
            values = [value] if equals else []
        else:
            values.append(word)
    if flag or values:
        yield flag, tuple(values)


class _OwnFlagReader:
    def __init__(self, table: EngineTable) -> None:
        self.table = table
        self.knob_of = {_flag(table, name): name for name in table.knobs if name not in NO_FLAGS}
        self.knobs: dict[str, Value] = {}
        self.sizes: dict[str, Any] = {}
        self.work: dict[str, int] = {}
        self.model_words: list[Group] = []
        self.rest: dict[str, tuple[str, ...]] = {}
        self.faults: list[Fault] = []
        self.stage_layers = 0
        self.bucket_elements = 0

    def read(self, flag: str, values: tuple[str, ...]) -> None:
        if not flag:
            self._fault(" ".join(values), "must begin with a flag")
        elif flag in self.knob_of:
            self._knob(self.knob_of[flag], flag, values)
        elif flag in WORK:
            self.work[WORK[flag]] = self._number(flag, values)
        elif flag in SIZES:
            self.sizes[SIZES[flag]] = self._number(flag, values)
            self.model_words.append((flag, values))
        elif flag in ("--bf16", "--fp16"):
            self.knobs.setdefault("precision", flag.removeprefix("--"))
        elif flag == "--fp8-format":
            self.knobs["precision"] = "fp8"
            if values != ("hybrid",):
                self._fault(f"{flag} {' '.join(values)}", "must be hybrid: other formats of fp8 are not tuned")
        elif flag == "--recompute-activations":
            self.knobs["recompute"] = "selective"
        elif flag in FUSIONS_OFF:
            self.knobs["bias_activation_fusion"] = False
        elif flag == SWITCHED_OFF["overlap_p2p_comm"]:
            self.knobs["overlap_p2p_comm"] = False
        elif flag == "--num-layers-per-virtual-pipeline-stage":
            self.stage_layers = self._number(flag, values)
        elif flag == "--ddp-bucket-size":
            self.bucket_elements = self._number(flag, values)
        elif flag == "--rampup-batch-size":
            self._fault(flag, "changes the batch from step to step; every step must do the same work", "Leave it out")
        elif flag == "--accumulate-allreduce-grads-in-fp32":
            self.knobs["grad_reduce_in_bf16"] = False  # so it is by itself with bf16
        else:
            self.rest[flag] = values

    def result(self) -> OwnFlags:
        describes = all(flag in dict(self.model_words) for flag in MODEL)
        if self.stage_layers:
            stages = int(self.knobs.get("pp", 1) or 1) * self.stage_layers
            layers = int(self.sizes.get("layers", 0))
            if layers and layers % stages == 0:
                self.knobs["virtual_stages"] = layers // stages
            else:
                self._fault("--num-layers-per-virtual-pipeline-stage", "must divide the layers of a stage; give --num-layers with it")
        if self.bucket_elements:
            self.knobs["bucket_mb"] = max(1, round(self.bucket_elements * ELEMENT_BYTES / 1e6))
        if "grad_reduce_in_bf16" in self.knobs and self.knobs.get("precision") != "bf16":
            del self.knobs["grad_reduce_in_bf16"]
        if not describes:
            self._take_part_of_a_model()
        return OwnFlags(
            knobs=self.knobs,
            sizes=self._shape() if describes else {},
            work=self.work,
            biases="--disable-bias-linear" not in self.rest,
            rest=tuple({**dict(self.model_words), **self.rest}.items()),
            faults=tuple(self.faults),
        )

    def _take_part_of_a_model(self) -> None:
        """Layers and vocabulary may differ from those of a named model; other sizes make another model."""
        if layers := self.sizes.get("layers"):
            self.work["layers"] = layers
        self.model_words = [group for group in self.model_words if group[0] != MODEL[0]]
        for flag, values in self.model_words:
            if flag != "--vocab-size":
                fix = f"Leave it out and give --model, or give all of {', '.join(MODEL)}"
                self._fault(" ".join((flag, *values)), "is part of a model that is not described", fix)

    def _shape(self) -> dict[str, Any]:
        """The shape that the flags describe, with what Megatron-LM takes where they are silent."""
        sizes, gated = dict(self.sizes), "--swiglu" in self.rest
        hidden = int(sizes["hidden"])
        tokenizer = next(iter(self.rest.get("--tokenizer-type", ())), "")
        sizes.setdefault("ffn", hidden * 8 // 3 // GATED_WIDTH * GATED_WIDTH if gated else 4 * hidden)
        sizes.setdefault("vocab", VOCABULARIES.get(tokenizer, VOCABULARY))
        if "--group-query-attention" not in self.rest:
            sizes.pop("kv_heads", None)
        if sizes.get("experts"):
            sizes.setdefault("active_experts", 2)
            sizes.setdefault("expert_ffn", sizes["ffn"])
            pattern = re.match(r"\(?\[0\]\*(\d+)", "".join(self.rest.get("--moe-layer-freq", ())))
            sizes["dense_layers"] = int(pattern[1]) if pattern else 0
        else:
            sizes = {name: value for name, value in sizes.items() if name not in ("active_experts", "expert_ffn", "shared_ffn")}
        return {"name": "your own", **sizes, "gated": gated, "tied": "--untie-embeddings-and-output-weights" not in self.rest}

    def _knob(self, name: str, flag: str, values: tuple[str, ...]) -> None:
        if name == "recompute_modules":
            listed = [value for value in self.table.knobs[name].values if set(str(value).split("+")) == set(values)]
            self.knobs[name] = listed[0] if listed else "+".join(values)
        elif flag in SWITCHED_OFF.values():
            self.knobs[name] = False
        elif not values:
            self.knobs[name] = True
        elif len(values) > 1:
            self._fault(f"{flag} {' '.join(values)}", "takes one value")
        else:
            self.knobs[name] = int(values[0]) if re.fullmatch(r"-?\d+", values[0]) else values[0]

    def _number(self, flag: str, values: tuple[str, ...]) -> int:
        if len(values) == 1 and re.fullmatch(r"\d+", values[0]) and int(values[0]):
            return int(values[0])
        self._fault(f"{flag} {' '.join(values)}", "must be a positive whole number")
        return 1

    def _fault(self, value: str, rule: str, fix: str = "") -> None:
        self.faults.append(Fault(where="workload", field=WHERE, value=repr(value), rule=rule, fix=fix))


def _flag(table: EngineTable, name: str) -> str:
    """The flag of Megatron-LM's command line that says what a knob says."""
    if name in OTHER_NAMES or name in SWITCHED_OFF:
        return OTHER_NAMES.get(name) or SWITCHED_OFF[name]
    return table.flags[table.knobs[name].setting].flag


def without(words: Mapping[str, Sequence[str]] | Sequence[Group], names: frozenset[str]) -> list[str]:
    """Words of flags less those that somebody else gives: none stands twice."""
    pairs = words.items() if isinstance(words, Mapping) else words
    return [word for flag, values in pairs if flag not in names for word in (flag, *values)]


__all__ = ["SWITCHED_OFF", "Group", "OwnFlags", "groups", "read_flags", "without"]
