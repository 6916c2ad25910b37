"""The model files that are measured: the user's own, the random one AutoScout writes, and versions with other weights types.

Files are made once, into a cache, under names that tell their content; a file is whole or not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFacts, GgufFile
from autoscout.common import cache
from autoscout.core import seeds

FORMAT = 1  # of the random models; raise it when their content changes
SPECIAL = (b"<unk>", b"<s>", b"</s>")
CONVERTIBLE = ("f32", "f16", "bf16")
"""Weights types that other types can be made from without losing twice."""

TARGETS = ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""Weights types that can be made, from the most exact to the smallest: those the `gguf` package can quantise to."""

_FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9}
_EXACT = ("_norm.", "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "rope_freqs")
"""Parts of tensor names that stay as they are: small, and every answer hangs on them."""


@dataclass(frozen=True, kw_only=True)
class RandomModel:
    """A language model of the llama architecture with random weights: answers nonsense, computes like a real one."""

    name: str
    embedding: int
    layers: int
    heads: int
    key_heads: int
    hidden: int
    words: int
    context: int = 8192
    weights: str = "q8_0"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{FORMAT} {sorted(asdict(self).items())}".encode()).hexdigest()[:12]

    @property
    def facts(self) -> GgufFacts:
        """What the header of its file will say."""
        return GgufFacts(
            name=self.name,
            architecture="llama",
            layers=self.layers,
            context=self.context,
            head_size=self.embedding // self.heads,
            window=0,
            experts=0,
            vocab=self.words,
            weights=self.weights,
            size_gb=round(self.parameters * 34 / 32 / 1024**3, 4),
            parts=1,
            fingerprint=self.fingerprint,
        )

    @property
    def parameters(self) -> int:
        keys = self.embedding // self.heads * self.key_heads
        layer = 2 * self.embedding * (self.embedding + keys) + 3 * self.embedding * self.hidden
        return layer * self.layers + 2 * self.words * self.embedding

    def write(self, path: Path, weights: str) -> None:
        """Write it as a GGUF file; the same bytes every time."""
        import gguf

        writer = gguf.GGUFWriter(path, "llama")
        writer.add_name(f"AutoScout {self.name}")
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.embedding)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.hidden)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.key_heads)
        writer.add_rope_dimension_count(self.embedding // self.heads)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_vocab_size(self.words)
        writer.add_file_type(_FILE_TYPES[weights])
        tokens = vocabulary(self.words)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(number) for number in range(len(tokens))])
        writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259))
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        kind = gguf.GGMLQuantizationType[weights.upper()]
        for name, values in self._tensors():
            quantised = values.ndim == 2
            data = gguf.quants.quantize(values, kind) if quantised else values
            writer.add_tensor(name, data, raw_dtype=kind if quantised else None)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _tensors(self) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.float32]]]]:
        keys = self.embedding // self.heads * self.key_heads
        yield "token_embd.weight", self._matrix("token_embd", self.words, self.embedding, scale=1.0)
        yield "output_norm.weight", np.ones(self.embedding, np.float32)
        # Answers as decided as those of a trained model, and never control characters or halves of letters.
        output = self._matrix("output", self.words, self.embedding, scale=3.5 / self.embedding**0.5)
        output[: len(SPECIAL) + 256] = 0.0
        yield "output.weight", output
        shapes = {
            "attn_q": (self.embedding, self.embedding),
            "attn_k": (keys, self.embedding),
            "attn_v": (keys, self.embedding),
            "attn_output": (self.embedding, self.embedding),
            "ffn_gate": (self.hidden, self.embedding),
            "ffn_up": (self.hidden, self.embedding),
            "ffn_down": (self.embedding, self.hidden),
        }
        for layer in range(self.layers):
            for norm in ("attn_norm", "ffn_norm"):
                yield f"blk.{layer}.{norm}.weight", np.ones(self.embedding, np.float32)
            for name, (rows, columns) in shapes.items():
                yield f"blk.{layer}.{name}.weight", self._matrix(f"{layer}.{name}", rows, columns, scale=columns**-0.5)

    def _matrix(self, name: str, rows: int, columns: int, scale: float) -> np.ndarray[Any, np.dtype[np.float32]]:
        random = seeds.stream(FORMAT, "llamacpp", self.name, name)
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)


RANDOM_MODELS = {
    model.name: model
    for model in (
        RandomModel(name="random", embedding=512, layers=8, heads=8, key_heads=2, hidden=1536, words=4096),
        RandomModel(name="random-tiny", embedding=64, layers=2, heads=2, key_heads=1, hidden=128, words=512, context=2048),
        RandomModel(name="random-large", embedding=1024, layers=12, heads=16, key_heads=4, hidden=3072, words=8192),
    )
}
"""Models that need no file. The first is the default: 28 million parameters, larger than the caches of most processors."""


def vocabulary(words: int) -> list[bytes]:
    """Control tokens, all bytes, and invented words of two or three syllables; any text can be written with it."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    names = (f"\u2581{one}{two}{three}" for three in ("", *syllables) for one in syllables for two in syllables)
    invented = [next(names).encode() for _ in range(words - len(SPECIAL) - 256)]
    return [*SPECIAL, *(b"<0x%02X>" % byte for byte in range(256)), *invented]


def model_facts(model: str) -> GgufFacts:
    """Facts of a random model or of the user's file.

    Raises:
        GgufError: the file cannot be used.
    """
    return RANDOM_MODELS[model].facts if model in RANDOM_MODELS else GgufFile(model).facts


def cache_folder(folder: str = "") -> Path:
    """Folder of the files that are made."""
    return cache.cache_folder("llamacpp", folder)


def model_path(model: str, facts: GgufFacts, weights: str, folder: Path) -> Path:
    """The file that holds `model` with that type of weights; it need not exist yet unless it is the user's own."""
    if model not in RANDOM_MODELS and weights == facts.weights:
        return Path(model)
    return folder / f"{facts.name}-{facts.fingerprint}-{weights}.gguf"


def ensure_model(model: str, weights: str, folder: Path) -> Path:
    """The file that holds `model` with that type of weights, made now if it is not there.

    Raises:
        GgufError: the source cannot be used, or cannot be converted.
        OSError: the cache cannot be written.
    """
    path = model_path(model, model_facts(model), weights, folder)
    if path.exists():
        return path
    if model in RANDOM_MODELS:
        cache.made_once(path, lambda partial: RANDOM_MODELS[model].write(partial, weights))
    else:
        cache.made_once(path, lambda partial: convert(Path(model), weights, partial))
    return path


def convert(source: Path, weights: str, target: Path) -> None:
    """Write `source` again with its large matrices in another type; small and delicate tensors stay as they are.

    Raises:
        GgufError: its weights are quantised already, or it is split into several files.
    """
    import gguf

    facts = GgufFile(source).facts
    if facts.weights not in CONVERTIBLE or facts.parts > 1:
        why = f"its weights are {facts.weights} already" if facts.parts == 1 else f"it is split into {facts.parts} files"
        raise GgufError(f"cannot be converted to {weights}: {why}")
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, facts.architecture)
    kind = gguf.GGMLQuantizationType[weights.upper()]
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(_FILE_TYPES[weights])
    block = gguf.GGML_QUANT_SIZES[kind][0]
    for tensor in reader.tensors:
        if _is_left_exact(tensor.name, tuple(map(int, tensor.shape)), block):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            exact = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(exact, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _is_left_exact(name: str, shape: tuple[int, ...], block: int) -> bool:
    return len(shape) < 2 or not name.endswith(".weight") or shape[0] % block != 0 or any(part in name for part in _EXACT)


def weights_types(facts: GgufFacts, model: str) -> tuple[str, ...]:
    """Types that the weights can be converted to, the file's own first; only that one where nothing can be converted."""
    if model in RANDOM_MODELS:
        return (facts.weights, *(kind for kind in TARGETS if kind != facts.weights))
    if facts.weights not in CONVERTIBLE or facts.parts > 1:
        return (facts.weights,)
    smaller = TARGETS if facts.weights == "f32" else TARGETS[1:]
    return (facts.weights, *smaller)


def facts_from(data: Mapping[str, Any]) -> GgufFacts:
    """Facts as they were written into a task."""
    names = [name for name in GgufFacts.__dataclass_fields__ if f"model_{name}" in data]  # tasks of earlier releases lack the later ones
    return GgufFacts(**{name: data[f"model_{name}"] for name in names})


def facts_to(facts: GgufFacts) -> dict[str, Any]:
    """Facts under the names that tasks hold them by."""
    return {f"model_{name}": value for name, value in asdict(facts).items()}
