"""The model and the data that these jobs share: a small causal transformer on made-up tokens, and the line that each step prints."""

from __future__ import annotations

import os
import time

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 2048, 128, 4, 4, 128
ROWS = 16  # sequences of an optimizer step, over all processes
STEPS = int(os.environ.get("STEPS", "400"))


class Layer(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    """Tokens in, the mean loss of the next token out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        x = self.tokens(rows[:, :-1]) + self.places.weight[: rows.shape[1] - 1]
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), rows[:, 1:].flatten())


def share(step: int, rank: int, world: int) -> torch.Tensor:
    """The sequences of one process in one step: few of the words come up, which is quickly learnt."""
    drawn = torch.Generator().manual_seed(step)
    return torch.randint(0, 64, (ROWS, LENGTH + 1), generator=drawn)[rank::world]


def say(step: int, loss: float) -> None:
    """The line that a person reads: the loss, and CPU seconds of this process so far."""
    print(f"step {step} loss {loss:.4f} cpu {time.process_time():.3f}", flush=True)
