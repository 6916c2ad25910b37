"""Triton kernels that read much and compute little (a loss, sums of columns, a stencil, a recurrence), for `benchmarks.record_gpu`.

What counts is how much is under way at a time, in how many programs, and what is read twice. Imported only where Triton and a GPU are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks._gpu_params import Params, choice, ordinal


@triton.jit
def _loss(
    x, wanted, y, WIDTH: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, RUNNING: tl.constexpr, EACH: tl.constexpr,
    KEEP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    at = tl.arange(0, BLOCK)
    lines = x + row[:, None] * WIDTH
    if RUNNING and EACH:  # the maximum of a row is known after every block
        top = tl.full((AT_ONCE,), -1.0e6, dtype=tl.float32)
        total = tl.zeros((AT_ONCE,), dtype=tl.float32)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            here = (start + at)[None, :]
            part = tl.load(lines + here, mask=here < WIDTH, other=-1.0e6, eviction_policy=KEEP).to(tl.float32)
            higher = tl.maximum(top, tl.max(part, 1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(part - higher[:, None]), 1)
            top = higher
    elif RUNNING:  # every place of a block has a maximum of its own; they meet at the end
        tops = tl.full((AT_ONCE, BLOCK), -1.0e6, dtype=tl.float32)
        totals = tl.zeros((AT_ONCE, BLOCK), dtype=tl.float32)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            here = (start + at)[None, :]
            part = tl.load(lines + here, mask=here < WIDTH, other=-1.0e6, eviction_policy=KEEP).to(tl.float32)
            above = tl.maximum(tops, part)
            totals = totals * tl.exp(tops - above) + tl.exp(part - above)
            tops = above
        top = tl.max(tops, 1)
        total = tl.sum(totals * tl.exp(tops - top[:, None]), 1)
    else:
        tops = tl.full((AT_ONCE, BLOCK), -1.0e6, dtype=tl.float32)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            here = (start + at)[None, :]
            tops = tl.maximum(tops, tl.load(lines + here, mask=here < WIDTH, other=-1.0e6, eviction_policy=KEEP).to(tl.float32))
        top = tl.max(tops, 1)
        totals = tl.zeros((AT_ONCE, BLOCK), dtype=tl.float32)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            here = (start + at)[None, :]
            part = tl.load(lines + here, mask=here < WIDTH, other=-1.0e6, eviction_policy="evict_first").to(tl.float32)
            totals += tl.exp(part - top[:, None])
        total = tl.sum(totals, 1)
    right = tl.load(x + row * WIDTH + tl.load(wanted + row)).to(tl.float32)
    tl.store(y + row, tl.log(total) + top - right)


class Loss:
    """Cross entropy of 4096 words among 50304, bf16: bound by memory, unless a row is read twice or its maximum is waited for."""

    name = "triton_loss"
    near = 1e-4  # results in float32
    params: Params = [  # noqa: RUF012
        choice("way", ["two_passes", "running"]),
        choice("merge", ["each_step", "at_end"], {"way": ["running"]}),
        ordinal("block", [1024, 2048, 4096, 8192]),
        ordinal("rows", [1, 2]),
        ordinal("warps", [4, 8, 16]),
        ordinal("stages", [1, 2, 4]),
        choice("cache", ["plain", "evict_first", "evict_last"]),
    ]
    own: tuple[str, ...] = ()

    def allowed(self, config: Mapping[str, Any]) -> bool:
        """Two values are kept for every place of a block: more than 64 places a thread do not fit into its registers."""
        return bool(config["block"] * config["rows"] <= 64 * 32 * config["warps"])

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rows, self.width = 4096, 50304
        self.x = torch.randn(self.rows, self.width, device="cuda", dtype=torch.bfloat16)
        self.wanted = torch.randint(self.width, (self.rows,), device="cuda")
        self.out = torch.empty(self.rows, device="cuda", dtype=torch.float32)
        self.written = (self.out,)
        self.reference = torch.nn.functional.cross_entropy(self.x.float(), self.wanted, reduction="none")

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        cache = "" if config["cache"] == "plain" else config["cache"]

        def run() -> torch.Tensor:
            _loss[(self.rows // config["rows"],)](
                self.x, self.wanted, self.out, WIDTH=self.width, BLOCK=config["block"], AT_ONCE=config["rows"],
                RUNNING=config["way"] == "running", EACH=config.get("merge") == "each_step", KEEP=cache, STAGES=config["stages"],
                num_warps=config["warps"],
            )  # fmt: skip
            return self.out

        return run


@triton.jit(do_not_specialize=["chunk"])
def _columns(
    x, y, chunk, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FOLD: tl.constexpr, ADD: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    at_m, at_n = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    low = tl.program_id(1) * chunk
    if FOLD:  # a block of rows becomes one at once
        line = tl.zeros((BLOCK_N,), dtype=tl.float32)
        for start in tl.range(low, low + chunk, BLOCK_M, num_stages=STAGES):
            line += tl.sum(tl.load(x + (start + at_m)[:, None] * WIDTH + at_n[None, :]).to(tl.float32), 0)
    else:
        block = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in tl.range(low, low + chunk, BLOCK_M, num_stages=STAGES):
            block += tl.load(x + (start + at_m)[:, None] * WIDTH + at_n[None, :]).to(tl.float32)
        line = tl.sum(block, 0)
    if ADD:
        tl.atomic_add(y + at_n, line, sem="relaxed")
    else:
        tl.store(y + tl.program_id(1) * WIDTH + at_n, line)


@triton.jit(do_not_specialize=["parts"])
def _gather(sums, y, parts, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at_p, at_n = tl.arange(0, 32), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.zeros((32, BLOCK), dtype=tl.float32)
    for start in range(0, parts, 32):
        block += tl.load(sums + (start + at_p)[:, None] * WIDTH + at_n[None, :])
    tl.store(y + at_n, tl.sum(block, 0))


class Columns:
    """Sums of the 2048 columns of 65536 rows, bf16: the gradient of a layer's offsets."""

    name = "triton_columns"
    near = 1e-4  # results in float32
    params: Params = [  # noqa: RUF012
        choice("way", ["atomic", "two_kernels"]),
        ordinal("gather_block", [16, 64], "dense", {"way": ["two_kernels"]}),
        choice("fold", ["at_end", "each_step"]),
        ordinal("parts", [32, 128, 512], "sparse"),
        ordinal("block_m", [16, 32, 64]),
        ordinal("block_n", [64, 128, 256]),
        ordinal("warps", [2, 4, 8]),
        ordinal("stages", [1, 2, 4]),
    ]
    own: tuple[str, ...] = ("parts", "gather_block")

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rows, self.width = 65536, 2048
        self.x = torch.randn(self.rows, self.width, device="cuda", dtype=torch.bfloat16)
        self.sums = torch.empty(512, self.width, device="cuda", dtype=torch.float32)
        self.out = torch.empty(self.width, device="cuda", dtype=torch.float32)
        self.written = (self.sums, self.out)
        self.reference = self.x.sum(0, dtype=torch.float32)

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        atomic, parts = config["way"] == "atomic", config["parts"]

        def run() -> torch.Tensor:
            if atomic:
                self.out.zero_()
            _columns[(self.width // config["block_n"], parts)](
                self.x, self.out if atomic else self.sums, self.rows // parts, WIDTH=self.width, BLOCK_M=config["block_m"],
                BLOCK_N=config["block_n"], FOLD=config["fold"] == "each_step", ADD=atomic, STAGES=config["stages"],
                num_warps=config["warps"],
            )  # fmt: skip
            if not atomic:
                block = config["gather_block"]
                _gather[(self.width // block,)](self.sums, self.out, parts, WIDTH=self.width, BLOCK=block)
            return self.out

        return run


@triton.jit(do_not_specialize=["tiles", "along"])
def _stencil(
    x, y, tiles, along, SIDE: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr, CLAMP: tl.constexpr, STAGES: tl.constexpr
):
    """Nine points around each, weighed; the border stays as it is."""
    rows: tl.constexpr = SIDE // BLOCK_Y
    columns: tl.constexpr = SIDE // BLOCK_X
    first = tl.program_id(0) * tiles
    for tile in tl.range(first, first + tiles, num_stages=STAGES):
        row = along * (tile // columns) + (1 - along) * (tile % rows)
        column = along * (tile % columns) + (1 - along) * (tile // rows)
        at_y = row * BLOCK_Y + tl.arange(0, BLOCK_Y)
        at_x = column * BLOCK_X + tl.arange(0, BLOCK_X)
        middle = tl.load(x + at_y[:, None] * SIDE + at_x[None, :])
        total = middle * 0.5
        for point in tl.static_range(0, 9):
            if point != 4:
                down, right = at_y + (point // 3 - 1), at_x + (point % 3 - 1)
                if CLAMP:
                    down, right = tl.minimum(tl.maximum(down, 0), SIDE - 1), tl.minimum(tl.maximum(right, 0), SIDE - 1)
                    found = tl.load(x + down[:, None] * SIDE + right[None, :])
                else:
                    inside = ((down >= 0) & (down < SIDE))[:, None] & ((right >= 0) & (right < SIDE))[None, :]
                    found = tl.load(x + down[:, None] * SIDE + right[None, :], mask=inside, other=0.0)
                total += (0.1 if point % 2 else 0.025) * found  # beside it, or across a corner
        within = ((at_y > 0) & (at_y < SIDE - 1))[:, None] & ((at_x > 0) & (at_x < SIDE - 1))[None, :]
        tl.store(y + at_y[:, None] * SIDE + at_x[None, :], tl.where(within, total, middle))


class Stencil:
    """One step of diffusion on a grid of 8192 x 8192, float32: every value is read nine times, and should come from memory once."""

    name = "triton_stencil"
    near = 1e-4  # results in float32
    params: Params = [  # noqa: RUF012
        choice("edges", ["masked", "clamped"]),
        choice("walk", ["along_rows", "along_columns"]),
        ordinal("tiles", [1, 4, 16], "sparse"),
        ordinal("block_y", [1, 4, 16]),
        ordinal("block_x", [64, 128, 256, 512]),
        ordinal("warps", [2, 4, 8]),
        ordinal("stages", [1, 2, 3]),
    ]
    own: tuple[str, ...] = ("walk", "tiles")

    def allowed(self, config: Mapping[str, Any]) -> bool:
        """Nine values are under way for every point: more than 32 points a thread do not fit into its registers."""
        return bool(config["block_y"] * config["block_x"] <= 32 * 32 * config["warps"])

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.side = 8192
        self.x = torch.randn(self.side, self.side, device="cuda", dtype=torch.float32)
        self.out = torch.empty_like(self.x)
        self.written = (self.out,)
        self.reference = self.x.clone()
        self.reference[1:-1, 1:-1] *= 0.5
        for down, right in itertools.product(range(3), repeat=2):
            if (down, right) != (1, 1):
                beside = self.x[down : self.side - 2 + down, right : self.side - 2 + right]
                self.reference[1:-1, 1:-1] += beside * (0.1 if 1 in (down, right) else 0.025)

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        tiles = config["tiles"]
        programs = self.side // config["block_y"] * (self.side // config["block_x"]) // tiles

        def run() -> torch.Tensor:
            _stencil[(programs,)](
                self.x, self.out, tiles, int(config["walk"] == "along_rows"), SIDE=self.side, BLOCK_Y=config["block_y"],
                BLOCK_X=config["block_x"], CLAMP=config["edges"] == "clamped", STAGES=config["stages"], num_warps=config["warps"],
            )  # fmt: skip
            return self.out

        return run


@triton.jit
def _follow(factor, value, next_factor, next_value):
    return factor * next_factor, value * next_factor + next_value


@triton.jit(do_not_specialize=["chunk"])
def _recur(
    a, b, y, factors, ends, length, chunk, WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr, STEPS: tl.constexpr,
    PARTED: tl.constexpr, LAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A part of the length for some channels; what the earlier parts left is taken up, or (not `LAST`) what this one leaves is noted."""
    part, parts, sequence = tl.program_id(1), tl.num_programs(1), tl.program_id(2)
    at_c, at_t = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_T)
    state = tl.zeros((BLOCK_C,), dtype=tl.float32)
    factor = tl.full((BLOCK_C,), 1.0, dtype=tl.float32)
    if PARTED and LAST:
        for earlier in range(0, part):
            here = (sequence * parts + earlier) * WIDTH + at_c
            state = state * tl.load(factors + here) + tl.load(ends + here)
    low = sequence * length + part * chunk
    for start in tl.range(low, low + chunk, BLOCK_T, num_stages=STAGES):
        if STEPS:
            for step in tl.static_range(0, BLOCK_T):
                place = (start + step) * WIDTH + at_c
                one = tl.load(a + place).to(tl.float32)
                state = state * one + tl.load(b + place).to(tl.float32)
                factor *= one
                if LAST:
                    tl.store(y + place, state.to(y.dtype.element_ty))
        else:
            places = (start + at_t)[:, None] * WIDTH + at_c[None, :]
            pair = (tl.load(a + places).to(tl.float32), tl.load(b + places).to(tl.float32))
            grown, found = tl.associative_scan(pair, 0, _follow)
            found += grown * state[None, :]
            if LAST:
                tl.store(y + places, found.to(y.dtype.element_ty))
            end = (at_t == BLOCK_T - 1)[:, None]
            state = tl.sum(tl.where(end, found, 0.0), 0)
            factor *= tl.sum(tl.where(end, grown, 0.0), 0)
    if not LAST:
        noted = (sequence * parts + part) * WIDTH + at_c
        tl.store(factors + noted, factor)
        tl.store(ends + noted, state)


class Scan:
    """h = a h + b along 4096 for 8 sequences of 2048 channels, bf16: too few channels to keep the card busy, too long to wait for.

    Parted, every part of the length is read twice: for what it leaves, and again with what the earlier ones left.
    """

    name = "triton_scan"
    params: Params = [  # noqa: RUF012
        choice("way", ["steps", "scan"]),
        ordinal("unroll", [1, 4, 8], "dense", {"way": ["steps"]}),
        ordinal("block_t", [16, 32, 64, 128], "dense", {"way": ["scan"]}),
        choice("length", ["whole", "parted"]),
        ordinal("parts", [2, 8, 32], "sparse", {"length": ["parted"]}),
        ordinal("block_c", [32, 64, 128, 256]),
        ordinal("warps", [1, 2, 4]),
        ordinal("stages", [1, 2, 4]),
    ]
    own: tuple[str, ...] = ("parts",)

    def allowed(self, config: Mapping[str, Any]) -> bool:
        """A scan of more than 128 places a thread does not fit into its registers; compiling that takes minutes."""
        return bool(config.get("block_t", 1) * config["block_c"] <= 128 * 32 * config["warps"])

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.count, self.length, self.width = 8, 4096, 2048
        lines = self.count * self.length
        self.a = (torch.rand(lines, self.width, device="cuda") * 0.2 + 0.8).to(torch.bfloat16)
        self.b = torch.randn(lines, self.width, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.b)
        self.factors, self.ends = (torch.empty(self.count * 32, self.width, device="cuda", dtype=torch.float32) for _ in range(2))
        self.written = (self.out, self.factors, self.ends)
        state = torch.zeros(self.count, self.width, device="cuda")
        every = torch.empty(self.count, self.length, self.width, device="cuda")
        for place in range(self.length):
            state = state * self.a[place :: self.length] + self.b[place :: self.length]
            every[:, place] = state
        self.reference = every.view(lines, self.width)

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        parts, parted = config.get("parts", 1), config["length"] == "parted"
        grid = (self.width // config["block_c"], parts, self.count)
        steps = config["way"] == "steps"

        def part(*, last: bool) -> None:
            _recur[grid](
                self.a, self.b, self.out, self.factors, self.ends, self.length, self.length // parts, WIDTH=self.width,
                BLOCK_T=config["unroll" if steps else "block_t"], BLOCK_C=config["block_c"], STEPS=steps, PARTED=parted, LAST=last,
                STAGES=config["stages"], num_warps=config["warps"],
            )  # fmt: skip

        def run() -> torch.Tensor:
            if parted:
                part(last=False)
            part(last=True)
            return self.out

        return run


KERNELS = {kernel.name: kernel for kernel in (Loss, Columns, Stencil, Scan)}
