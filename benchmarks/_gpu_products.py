"""Triton kernels around a matrix product (a convolution, a gated layer, quantized weights), for `benchmarks.record_gpu`.

What is multiplied differs from the plain product in `_gpu_kernels`, and so do the settings that suit it: operands gathered from a picture,
two sums at once, weights that are converted on their way. Imported only where Triton and a GPU are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks._gpu_params import Params, choice, ordinal


@triton.jit
def _place(tile, group, rows, columns):
    """Where a tile lies: rows of tiles are walked in groups, so that neighbours find their operands in the cache."""
    first = (tile // (group * columns)) * group
    height = min(rows - first, group)
    return first + (tile % (group * columns)) % height, (tile % (group * columns)) // height


@triton.jit(do_not_specialize=["group"])
def _convolution(
    x, w, y, group, m, n, HIGH: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, TAPS_OUTER: tl.constexpr,
):  # fmt: skip
    row, column = _place(tl.program_id(0), group, m // BLOCK_M, n // BLOCK_N)
    at_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    line, point = at_m // WIDE % HIGH, at_m % WIDE
    blocks: tl.constexpr = CHANNELS // BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, 9 * blocks):
        if TAPS_OUTER:
            tap, channel = step // blocks, step % blocks * BLOCK_K
        else:
            tap, channel = step % 9, step // 9 * BLOCK_K
        down, right = tap // 3 - 1, tap % 3 - 1
        inside = (line + down >= 0) & (line + down < HIGH) & (point + right >= 0) & (point + right < WIDE)
        pixel = at_m + down * WIDE + right
        left = tl.load(x + pixel[:, None] * CHANNELS + (channel + at_k)[None, :], mask=inside[:, None], other=0.0)
        weights = tl.load(w + (tap * CHANNELS + channel + at_k)[:, None] * n + at_n[None, :])
        total = tl.dot(left, weights, total)
    tl.store(y + at_m[:, None] * n + at_n[None, :], total.to(y.dtype.element_ty))


class Convolution:
    """3 x 3 convolution of 16 pictures of 56 x 56 from 128 to 256 channels (they come last), bf16: a product that gathers its left side."""

    name = "triton_convolution"
    params: Params = [  # noqa: RUF012
        choice("order", ["taps_outer", "channels_outer"]),
        ordinal("group", [1, 4, 16]),
        ordinal("block_m", [32, 64, 128]),
        ordinal("block_n", [32, 64, 128, 256]),
        ordinal("block_k", [32, 64, 128]),
        ordinal("warps", [4, 8]),
        ordinal("stages", [2, 3, 4]),
    ]
    own: tuple[str, ...] = ("group",)

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.count, self.high, self.wide, self.channels, self.n = 16, 56, 56, 128, 256
        self.m = self.count * self.high * self.wide
        self.x = torch.randn(self.count, self.high, self.wide, self.channels, device="cuda", dtype=torch.bfloat16)
        self.w = torch.randn(3, 3, self.channels, self.n, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(self.m, self.n, device="cuda", dtype=torch.bfloat16)
        self.written = (self.out,)
        pictures, weights = self.x.permute(0, 3, 1, 2).float(), self.w.permute(3, 2, 0, 1).float()
        self.reference = torch.nn.functional.conv2d(pictures, weights, padding=1).permute(0, 2, 3, 1).reshape(-1, self.n)

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        grid = (self.m // config["block_m"] * (self.n // config["block_n"]),)
        shape = {key.upper(): config[key] for key in ("block_m", "block_n", "block_k")}

        def run() -> torch.Tensor:
            _convolution[grid](
                self.x, self.w, self.out, config["group"], self.m, self.n, HIGH=self.high, WIDE=self.wide, CHANNELS=self.channels,
                TAPS_OUTER=config["order"] == "taps_outer", num_warps=config["warps"], num_stages=config["stages"], **shape,
            )  # fmt: skip
            return self.out

        return run


@triton.jit(do_not_specialize=["group"])
def _layer(
    x, gate, up, y, group, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, JOINT: tl.constexpr
):  # fmt: skip
    """The product with one matrix of weights, or with both and what becomes of them."""
    row, column = _place(tl.program_id(0), group, m // BLOCK_M, n // BLOCK_N)
    at_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, BLOCK_K)
    left = x + at_m[:, None] * k + at_k[None, :]
    right = at_k[:, None] * n + at_n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if JOINT:
        other = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for _ in range(0, k // BLOCK_K):
            part = tl.load(left)
            total = tl.dot(part, tl.load(gate + right), total)
            other = tl.dot(part, tl.load(up + right), other)
            left += BLOCK_K
            right += BLOCK_K * n
        total = total * tl.sigmoid(total) * other
    else:
        for _ in range(0, k // BLOCK_K):
            total = tl.dot(tl.load(left), tl.load(gate + right), total)
            left += BLOCK_K
            right += BLOCK_K * n
    tl.store(y + at_m[:, None] * n + at_n[None, :], total.to(y.dtype.element_ty))


@triton.jit
def _gate(gated, raised, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    one, two = tl.load(gated + at).to(tl.float32), tl.load(raised + at).to(tl.float32)
    tl.store(y + at, (one * tl.sigmoid(one) * two).to(y.dtype.element_ty))


class Gated:
    """silu(x G) * (x U), bf16, 1024 x 2048 by 2048 x 5632: the first half of a gated feed-forward layer."""

    name = "triton_gated"
    params: Params = [  # noqa: RUF012
        choice("way", ["apart", "joint"]),
        ordinal("block", [512, 2048, 8192], "dense", {"way": ["apart"]}),
        ordinal("group", [1, 8]),
        ordinal("block_m", [32, 64, 128]),
        ordinal("block_n", [32, 64, 128]),
        ordinal("block_k", [32, 64, 128]),
        ordinal("warps", [4, 8]),
        ordinal("stages", [2, 3, 4]),
    ]
    own: tuple[str, ...] = ("group", "block")

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.m, self.n, self.k = 1024, 5632, 2048
        self.x = torch.randn(self.m, self.k, device="cuda", dtype=torch.bfloat16)
        self.gate, self.up = (torch.randn(self.k, self.n, device="cuda", dtype=torch.bfloat16) * self.k**-0.5 for _ in range(2))
        self.gated, self.raised, self.out = (torch.empty(self.m, self.n, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        self.written = (self.gated, self.raised, self.out)
        x = self.x.float()
        self.reference = torch.nn.functional.silu(x @ self.gate.float()) * (x @ self.up.float())

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        joint = config["way"] == "joint"
        grid = (self.m // config["block_m"] * (self.n // config["block_n"]),)
        shape = {key.upper(): config[key] for key in ("block_m", "block_n", "block_k")}

        def product(gate: torch.Tensor, out: torch.Tensor) -> None:
            _layer[grid](
                self.x, gate, self.up, out, config["group"], self.m, self.n, self.k,
                JOINT=joint, num_warps=config["warps"], num_stages=config["stages"], **shape,
            )  # fmt: skip

        def run() -> torch.Tensor:
            if joint:
                product(self.gate, self.out)
            else:
                product(self.gate, self.gated)
                product(self.up, self.raised)
                _gate[(self.m * self.n // config["block"],)](self.gated, self.raised, self.out, BLOCK=config["block"])
            return self.out

        return run


@triton.jit
def _step(total, x, w, at_m, at_n, at_k, n, k, scale, LEFT: tl.constexpr, SCALE: tl.constexpr):
    """Add one block along k; the weights stand on the left of the product or on its right."""
    if LEFT:
        weights = tl.load(w + at_k[None, :] * n + at_n[:, None]).to(x.dtype.element_ty)
        if SCALE:
            weights = weights * scale[:, None]
        total = tl.dot(weights, tl.load(x + at_m[None, :] * k + at_k[:, None]), total)
    else:
        weights = tl.load(w + at_k[:, None] * n + at_n[None, :]).to(x.dtype.element_ty)
        if SCALE:
            weights = weights * scale[None, :]
        total = tl.dot(tl.load(x + at_m[:, None] * k + at_k[None, :]), weights, total)
    return total


@triton.jit(do_not_specialize=["parts"])
def _quantized(
    x, w, scales, y, parts, n, k, M: tl.constexpr, SPAN: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ON_SUMS: tl.constexpr,
    LEFT: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    at_m, at_n, at_k = tl.arange(0, M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    low, high = tl.program_id(1) * (k // parts), (tl.program_id(1) + 1) * (k // parts)
    total = tl.zeros((BLOCK_N, M) if LEFT else (M, BLOCK_N), dtype=tl.float32)
    if ON_SUMS:
        for start in range(low, high, SPAN):
            scale = tl.load(scales + start // SPAN * n + at_n)
            part = tl.zeros((BLOCK_N, M) if LEFT else (M, BLOCK_N), dtype=tl.float32)
            for step in tl.static_range(0, SPAN, BLOCK_K):
                part = _step(part, x, w, at_m, at_n, start + step + at_k, n, k, scale, LEFT, False)
            wide = scale.to(tl.float32)
            total += part * (wide[:, None] if LEFT else wide[None, :])
    else:
        for start in range(low, high, BLOCK_K):
            scale = tl.load(scales + start // SPAN * n + at_n)
            total = _step(total, x, w, at_m, at_n, start + at_k, n, k, scale, LEFT, True)
    out = (y + at_m[None, :] * n + at_n[:, None]) if LEFT else (y + at_m[:, None] * n + at_n[None, :])
    if ADD:
        tl.atomic_add(out, total, sem="relaxed")
    else:
        tl.store(out, total.to(y.dtype.element_ty))


class Quantized:
    """bf16, 32 x 4096, by int8 weights, 4096 x 11008, with a scale for every 128 of a column: a layer that serves 32 sequences."""

    name = "triton_quantized"
    params: Params = [  # noqa: RUF012
        choice("scales", ["on_weights", "on_sums"]),
        choice("weights", ["right", "left"]),
        choice("way", ["plain", "split_k"]),
        ordinal("parts", [2, 4, 8], "sparse", {"way": ["split_k"]}),
        ordinal("block_n", [32, 64, 128]),
        ordinal("block_k", [32, 64, 128]),
        ordinal("warps", [2, 4, 8]),
        ordinal("stages", [2, 3, 4]),
    ]
    own: tuple[str, ...] = ("parts",)

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.m, self.n, self.k, self.span = 32, 11008, 4096, 128
        self.x = torch.randn(self.m, self.k, device="cuda", dtype=torch.bfloat16)
        self.w = torch.randint(-127, 128, (self.k, self.n), device="cuda", dtype=torch.int8)
        self.scales = (torch.rand(self.k // self.span, self.n, device="cuda") * 0.01 + 0.005).to(torch.bfloat16)
        self.out = torch.empty(self.m, self.n, device="cuda", dtype=torch.bfloat16)
        self.sums = torch.empty(self.m, self.n, device="cuda", dtype=torch.float32)
        self.written = (self.out, self.sums)
        self.reference = self.x.float() @ (self.w.float() * self.scales.float().repeat_interleave(self.span, 0))

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        parts = config.get("parts", 1)
        split = config["way"] == "split_k"
        out = self.sums if split else self.out

        def run() -> torch.Tensor:
            if split:
                out.zero_()
            _quantized[(self.n // config["block_n"], parts)](
                self.x, self.w, self.scales, out, parts, self.n, self.k, M=self.m, SPAN=self.span, BLOCK_N=config["block_n"],
                BLOCK_K=config["block_k"], ON_SUMS=config["scales"] == "on_sums", LEFT=config["weights"] == "left", ADD=split,
                num_warps=config["warps"], num_stages=config["stages"],
            )  # fmt: skip
            return out.to(torch.bfloat16) if split else out

        return run


KERNELS = {kernel.name: kernel for kernel in (Convolution, Gated, Quantized)}
