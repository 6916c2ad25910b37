"""The built-in model: a GPT whose parts can be sharded, split into stages, recomputed and compiled, and the data it is trained on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class Block(nn.Module):
    """A layer: attention and a feed-forward part, each after a norm.

    The fused projection of queries, keys and values is laid out head by head, so that a shard of its rows holds whole heads.
    """

    def __init__(self, width: int, heads: int, attention: str) -> None:
        super().__init__()
        self.head_size = width // heads
        self.attention = attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, -1, 3, self.head_size)
        q, k, v = heads.permute(3, 0, 2, 1, 4).unbind(0)
        # Here and not around the whole step: what is recomputed in the backward pass must take the same way.
        chosen = BACKENDS.get(self.attention)
        with sdpa_kernel(chosen) if chosen is not None else contextlib.nullcontext():
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Tokens in; the loss out where targets are given, else logits. Parts that another pipeline stage holds are missing.

    Args:
        shape: `layers`, `width`, `heads`, `vocabulary`, `sequence`.
        knobs: `attention`, `recompute`, `loss_chunks`; each may be missing.
    """

    def __init__(self, shape: Mapping[str, int], knobs: Mapping[str, Any]) -> None:
        super().__init__()
        width, words = shape["width"], shape["vocabulary"]
        self.tokens: nn.Module | None = nn.Embedding(words, width)
        self.places: nn.Module | None = nn.Embedding(shape["sequence"], width)
        attention = str(knobs.get("attention", "auto"))
        self.blocks = nn.ModuleDict({str(number): Block(width, shape["heads"], attention) for number in range(shape["layers"])})
        self.norm: nn.Module | None = nn.LayerNorm(width)
        self.head: nn.Module | None = nn.Linear(width, words, bias=False)
        self.recompute = str(knobs.get("recompute", "none"))
        self.chunks = int(knobs.get("loss_chunks", 1))
        self.apply(_initialise)

    def keep(self, layers: Iterable[int], *, first: bool, last: bool) -> None:
        """Drop everything but these layers; the embeddings belong to the first stage, norm and head to the last."""
        kept = {str(number) for number in layers}
        self.blocks = nn.ModuleDict({name: block for name, block in self.blocks.items() if name in kept})
        if not first:
            self.tokens = self.places = None
        if not last:
            self.norm = self.head = None

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if self.tokens is not None and self.places is not None:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for name, block in self.blocks.items():
            again = self.recompute == "full" or (self.recompute == "half" and int(name) % 2 == 0)
            x = checkpoint(block, x, use_reentrant=False) if again and torch.is_grad_enabled() else block(x)
        if self.norm is None or self.head is None:
            return x
        x = self.norm(x)
        return self.head(x) if targets is None else self._loss(x, targets)

    def _loss(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy; with chunks the logits are made, used and made again in the backward pass piece by piece, never whole."""
        x, targets = x.flatten(0, 1), targets.flatten()
        if self.chunks == 1:
            return functional.cross_entropy(self.head(x).float(), targets)  # type: ignore[misc]
        pieces = zip(x.chunk(self.chunks), targets.chunk(self.chunks), strict=True)
        parts = [checkpoint(self._piece, piece, target, use_reentrant=False) for piece, target in pieces]
        return torch.stack(parts).sum() / targets.numel()

    def _piece(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(x).float(), targets, reduction="sum")  # type: ignore[misc]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Data:
    """One global batch a step, the same for every layout: words with frequencies by Zipf's law, so that there is something to learn.

    Drawn ahead, so that drawing takes no part in a step; after `KEPT` steps they come again.
    """

    KEPT = 64

    def __init__(self, shape: Mapping[str, int], batch: int, seed: int, steps: int, device: str) -> None:
        weights = 1.0 / torch.arange(1, shape["vocabulary"] + 1, dtype=torch.float32)
        random = torch.Generator().manual_seed(seed)
        count = batch * (shape["sequence"] + 1)
        drawn = [torch.multinomial(weights, count, replacement=True, generator=random) for _ in range(min(steps, self.KEPT))]
        self._drawn = [words.view(batch, -1).to(device) for words in drawn]

    def step(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and the next tokens of the whole global batch of one step."""
        words = self._drawn[number % len(self._drawn)]
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()
