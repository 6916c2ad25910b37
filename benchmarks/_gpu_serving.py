"""A step of a small language model that writes its next words, for `benchmarks.record_gpu`. Imported only where PyTorch and a GPU are."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks._gpu_params import Params, choice, ordinal

LAYERS, WIDTH, INNER, WORDS, LENGTH = 16, 2048, 5632, 32000, 2048
HEADS, KEYED, HEAD = 16, 4, 128  # queries share heads of keys
CARD = 16 * 2**30  # as if the card had 16 GB: otherwise everything fits
DIFFERENT = 8  # sequences; larger batches repeat them, so that a small one tells what all must give
NEAR = {"same": 0.05, "fp8": 0.15}  # scores of words, sixteen layers on
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
PARAMS: Params = [
    ordinal("batch", [1, 8, 32, 64, 128, 256]),
    choice("precision", list(TYPES)),
    choice("kept", ["same", "fp8"], {"precision": ["bf16", "fp16"]}),
    choice("layout", ["heads_first", "sequence_first"]),
    choice("attention", [*BACKENDS, "grouped"]),
    choice("qkv", ["apart", "fused"]),
    choice("launch", ["eager", "graph"]),
]
SHAPES = {
    "qkv": (WIDTH + 2 * KEYED * HEAD, WIDTH),
    "out": (WIDTH, WIDTH),
    "gate": (INNER, WIDTH),
    "up": (INNER, WIDTH),
    "down": (WIDTH, INNER),
}


def allowed(config: Mapping[str, Any]) -> bool:
    """Flash attention knows half precision only."""
    return config["precision"] != "tf32" or config["attention"] != "flash"


def measure(config: Mapping[str, Any]) -> float:
    """Milliseconds of a step for each of its words (one a sequence); the median of some after a first one.

    Raises:
        torch.OutOfMemoryError: it does not fit.
        RuntimeError: PyTorch refuses the settings.
    """
    torch.cuda.set_per_process_memory_fraction(CARD / torch.cuda.get_device_properties(0).total_memory)
    torch.backends.cuda.matmul.allow_tf32 = True
    wanted = _wanted(config["precision"])
    with torch.inference_mode(), _attention(config):
        eager, said, scores = _model(config)
        eager()
        step = _captured(eager) if config["launch"] == "graph" else eager  # both stay: a graph does not keep its tensors alive
        step()
        times: list[float] = []
        while len(times) < 3 or (len(times) < 10 and sum(times) < 0.1):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        said.zero_()
        scores.fill_(float("nan"))
        step()
        parts = [(part.float(), wanted[: len(part)]) for part in scores.split(DIFFERENT)]
        apart = max(float((found - right).norm() / right.norm()) for found, right in parts)
        if not bool(scores.isfinite().all()):
            apart = math.nan
    if not apart < NEAR[config.get("kept", "same")]:
        raise RuntimeError(f"wrong by {apart:.2g}")
    return 1000 * statistics.median(times) / config["batch"]


@lru_cache
def _wanted(precision: str) -> torch.Tensor:
    """The scores of words that a precision gives in the plainest way."""
    plain = {"batch": DIFFERENT, "precision": precision, "layout": "heads_first", "attention": "math", "qkv": "apart"}
    with torch.inference_mode(), _attention(plain):
        step, _, scores = _model(plain)
        step()
        return scores.float()


def _attention(config: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    backend = BACKENDS.get(config["attention"])
    return contextlib.nullcontext() if backend is None else sdpa_kernel(backend)


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _model(config: Mapping[str, Any]) -> tuple[Callable[[], None], torch.Tensor, torch.Tensor]:
    """A step, where it finds and leaves the last words, and where it leaves the scores of all."""
    torch.manual_seed(0)
    batch, kind = config["batch"], TYPES[config["precision"]]
    layers, words = _weights(kind)
    kept = torch.float8_e4m3fn if config.get("kept") == "fp8" else kind
    shape = (batch, KEYED, LENGTH, HEAD) if config["layout"] == "heads_first" else (batch, LENGTH, KEYED, HEAD)
    past = torch.empty(LAYERS, 2, *shape, device="cuda", dtype=kept)
    if config["layout"] == "sequence_first":
        past = past.transpose(3, 4)
    some = torch.randn(DIFFERENT, KEYED, LENGTH, HEAD, device="cuda", dtype=kind)
    for start in range(0, batch, DIFFERENT):
        past[:, :, start : start + DIFFERENT].copy_(some[: batch - start])
    said = torch.zeros(batch, device="cuda", dtype=torch.int64)
    scores = torch.empty(batch, WORDS, device="cuda", dtype=kind)

    def step() -> None:
        x = words[said]
        for layer, known in zip(layers, past, strict=True):
            x = x + functional.linear(attended(functional.rms_norm(x, (WIDTH,)), layer["qkv"], known), layer["out"])
            inner = functional.rms_norm(x, (WIDTH,))
            inner = functional.silu(functional.linear(inner, layer["gate"])) * functional.linear(inner, layer["up"])
            x = x + functional.linear(inner, layer["down"])
        scores.copy_(functional.linear(functional.rms_norm(x, (WIDTH,)), words))
        said.copy_(scores.argmax(-1))

    def attended(x: torch.Tensor, weights: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        sizes = [WIDTH, KEYED * HEAD, KEYED * HEAD]
        if config["qkv"] == "fused":
            q, *new = functional.linear(x, weights).split(sizes, -1)
        else:
            q, *new = (functional.linear(x, part) for part in weights.split(sizes))
        for place, part in zip(known, new, strict=True):
            place[:, :, LENGTH - 1].copy_(part.view(batch, KEYED, HEAD))
        keys, values = known.to(kind) if kept != kind else known
        if config["attention"] == "grouped":
            share = (q.reshape(batch, KEYED, -1, HEAD) @ keys.transpose(2, 3) * HEAD**-0.5).softmax(-1)
            return (share @ values).reshape(batch, WIDTH)
        return _sdpa(q.reshape(batch, HEADS, 1, HEAD), keys, values, shared=config["attention"] == "flash").reshape(batch, WIDTH)

    return step, said, scores


def _sdpa(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, shared: bool) -> torch.Tensor:
    """Flash attention lets queries share a head of keys; for the others it is repeated."""
    if not shared:
        keys, values = (part.repeat_interleave(HEADS // KEYED, 1) for part in (keys, values))
    return functional.scaled_dot_product_attention(q, keys, values, enable_gqa=shared)


def _weights(kind: torch.dtype) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor]:
    """All in one piece: made in milliseconds for every configuration, so that no other precision's weights take room on the card."""
    sizes = {name: rows * columns for name, (rows, columns) in SHAPES.items()}
    every = torch.empty(LAYERS * sum(sizes.values()) + WORDS * WIDTH, device="cuda", dtype=kind).normal_(std=0.02)
    pieces = iter(every.split([*sizes.values()] * LAYERS + [WORDS * WIDTH]))
    layers = [{name: next(pieces).view(shape) for name, shape in SHAPES.items()} for _ in range(LAYERS)]
    return layers, next(pieces).view(WORDS, WIDTH)
