"""Steps of training a small language model on one GPU, for `benchmarks.record_gpu`. Imported only where PyTorch and a GPU are."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from benchmarks._gpu_params import Params, choice, ordinal

LAYERS, WIDTH, HEADS, WORDS, LENGTH, SEQUENCES = 12, 1024, 16, 32000, 1024, 16
CARD = 16 * 2**30  # as if the card had 16 GB: otherwise everything fits
BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
PARAMS: Params = [
    ordinal("micro_batch", [1, 2, 4, 8, 16]),
    choice("precision", ["tf32", "bf16_autocast", "bf16"]),
    choice("attention", list(BACKENDS)),
    choice("recompute", ["none", "some", "all"]),
    ordinal("recompute_every", [2, 4], "dense", {"recompute": ["some"]}),
    choice("optimizer", ["foreach", "fused"]),
    ordinal("loss_chunks", [1, 8]),
]


class Block(nn.Module):
    """A layer: attention and a feed-forward part, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Words in, the loss of the next word out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor, every: int, chunks: int) -> torch.Tensor:
        """`every`: which layers are computed again on the way back (0 none, 1 all, 3 every third); `chunks`: pieces of the loss."""
        x = self.embedding(words[:, :-1])
        for place, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if every and place % every == 0 else block(x)
        x, wanted = self.norm(x).flatten(0, 1), words[:, 1:].flatten()

        def loss(part: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.head(part).float(), target, reduction="sum")

        if chunks == 1:
            return loss(x, wanted) / wanted.numel()
        parts = zip(x.chunk(chunks), wanted.chunk(chunks), strict=True)
        return sum(checkpoint(loss, part, target, use_reentrant=False) for part, target in parts) / wanted.numel()  # type: ignore[no-any-return]


def allowed(config: Mapping[str, Any]) -> bool:
    """Flash and cuDNN attention know half precision only."""
    return config["precision"] != "tf32" or config["attention"] in ("math", "efficient")


def measure(config: Mapping[str, Any], steps: int = 2) -> float:
    """Seconds of a step of 16 sequences; the median of some after a first one.

    Raises:
        torch.OutOfMemoryError: it does not fit.
        RuntimeError: PyTorch refuses the settings.
    """
    torch.cuda.set_per_process_memory_fraction(CARD / torch.cuda.get_device_properties(0).total_memory)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    half = config["precision"] == "bf16"
    with torch.device("cuda"):
        model = Model().to(torch.bfloat16 if half else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **{config["optimizer"]: True})
    words = torch.randint(WORDS, (SEQUENCES, LENGTH + 1), device="cuda")
    every = {"none": 0, "all": 1}.get(config["recompute"]) or config.get("recompute_every", 0)
    auto: Callable[[], contextlib.AbstractContextManager[Any]] = (
        (lambda: torch.autocast("cuda", torch.bfloat16)) if config["precision"] == "bf16_autocast" else contextlib.nullcontext
    )

    def step() -> None:
        for part in words.split(config["micro_batch"]):
            with auto():
                loss = model(part, every, config["loss_chunks"]) / (SEQUENCES // config["micro_batch"])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with sdpa_kernel(BACKENDS[config["attention"]]):
        times = []
        for _ in range(1 + steps):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])
