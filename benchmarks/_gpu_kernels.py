"""Four Triton kernels with the settings that a person tunes by hand, for `benchmarks.record_gpu`.

Each is written so that its settings interact: splitting or persistence against the shape of tiles, masks against block sizes, registers
against warps. Imported only where Triton and a GPU are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks._gpu_params import Params, choice, ordinal


@triton.jit
def _tile(
    a, b, c, tile, part, parts, group, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ADD: tl.constexpr
):
    """One tile of the product: rows of tiles are walked in groups, so that neighbours find their operands in the cache."""
    rows, columns = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = (tile // (group * columns)) * group
    height = min(rows - first, group)
    row = first + (tile % (group * columns)) % height
    column = (tile % (group * columns)) // height
    at_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    at_k = part * BLOCK_K + tl.arange(0, BLOCK_K)
    left = a + at_m[:, None] * k + at_k[None, :]
    right = b + at_k[:, None] * n + at_n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(k, BLOCK_K * parts)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK_K * parts
        right += BLOCK_K * parts * n
    out = c + at_m[:, None] * n + at_n[None, :]
    if ADD:
        tl.atomic_add(out, total, sem="relaxed")
    else:
        tl.store(out, total.to(c.dtype.element_ty))


@triton.jit(do_not_specialize=["parts", "group"])
def _matmul(a, b, c, parts, group, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCHEDULE: tl.constexpr):
    if SCHEDULE == "persistent":
        tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _tile(a, b, c, tile, 0, 1, group, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, False)
    elif SCHEDULE == "split_k":
        _tile(a, b, c, tl.program_id(0), tl.program_id(1), parts, 1, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, True)
    else:
        _tile(a, b, c, tl.program_id(0), 0, 1, group, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, False)


class Matmul:
    """bf16, 512 x 4096 by 4096 x 4096: a layer of a model under a small batch, too few tiles to fill the card by themselves."""

    name = "triton_matmul"
    params: Params = [  # noqa: RUF012
        choice("schedule", ["tiled", "split_k", "persistent"]),
        ordinal("parts", [2, 4, 8], "sparse", {"schedule": ["split_k"]}),
        ordinal("group", [1, 4, 8], "dense", {"schedule": ["tiled", "persistent"]}),
        ordinal("block_m", [32, 64, 128]),
        ordinal("block_n", [32, 64, 128, 256]),
        ordinal("block_k", [32, 64, 128]),
        ordinal("warps", [4, 8]),
        ordinal("stages", [2, 3, 4]),
    ]
    family = name
    size = 512, 4096, 4096
    own: tuple[str, ...] = ("parts", "group")  # known to the running kernel only: nothing to compile ahead

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.m, self.n, self.k = self.size
        self.facts = {"kernel": "matmul", "precision": "bf16", "m": self.m, "n": self.n, "k": self.k}
        self.a = torch.randn(self.m, self.k, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(self.k, self.n, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(self.m, self.n, device="cuda", dtype=torch.bfloat16)
        self.sums = torch.empty(self.m, self.n, device="cuda", dtype=torch.float32)
        self.written = (self.out, self.sums)
        self.reference = (self.a.float() @ self.b.float()).float()
        self.units = torch.cuda.get_device_properties(0).multi_processor_count

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        schedule, parts = config["schedule"], config.get("parts", 1)
        tiles = triton.cdiv(self.m, config["block_m"]) * triton.cdiv(self.n, config["block_n"])
        grid = (tiles, parts) if schedule == "split_k" else (min(tiles, self.units) if schedule == "persistent" else tiles,)
        shape = {key.upper(): config[key] for key in ("block_m", "block_n", "block_k")}
        out = self.sums if schedule == "split_k" else self.out

        def run() -> torch.Tensor:
            if schedule == "split_k":
                out.zero_()
            _matmul[grid](
                self.a, self.b, out, parts, config.get("group", 1), self.m, self.n, self.k,
                SCHEDULE=schedule, num_warps=config["warps"], num_stages=config["stages"], **shape,
            )  # fmt: skip
            return out.to(torch.bfloat16) if schedule == "split_k" else out

        return run


class FewRows(Matmul):
    """A smaller batch."""

    name = "triton_matmul_128"
    size = 128, 4096, 4096


class ManyRows(Matmul):
    """A larger one."""

    name = "triton_matmul_2048"
    size = 2048, 4096, 4096


class WideMatmul(Matmul):
    """The same batch by another layer's weights."""

    name = "triton_matmul_wide"
    size = 512, 11008, 4096


@triton.jit
def _attend(
    total, weight, top, q, keys, values, low, high, at_m, HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASK: tl.constexpr, EXP2: tl.constexpr,
    TURN: tl.constexpr,
):  # fmt: skip
    at_n, at_d = tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    for start in range(low, high, BLOCK_N):
        if TURN:
            key = tl.trans(tl.load(keys + (start + at_n)[:, None] * HEAD + at_d[None, :]))
        else:
            key = tl.load(keys + (start + at_n)[None, :] * HEAD + at_d[:, None])
        score = tl.dot(q, key)
        if MASK:
            score = tl.where(at_m[:, None] >= (start + at_n)[None, :], score, -1.0e6)
        higher = tl.maximum(top, tl.max(score, 1))
        if EXP2:
            share, fade = tl.math.exp2(score - higher[:, None]), tl.math.exp2(top - higher)
        else:
            share, fade = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        weight = weight * fade + tl.sum(share, 1)
        value = tl.load(values + (start + at_n)[:, None] * HEAD + at_d[None, :])
        total = tl.dot(share.to(value.dtype), value, total * fade[:, None])
        top = higher
    return total, weight, top


@triton.jit(do_not_specialize=["backwards"])
def _attention(
    q, k, v, o, scale, length, backwards, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTED: tl.constexpr,
    EXP2: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    block = block + backwards * (tl.num_programs(0) - 1 - 2 * block)
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    at_m, at_d = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
    place = base + at_m[:, None] * HEAD + at_d[None, :]
    query = (tl.load(q + place) * scale).to(q.dtype.element_ty)
    total = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -1.0e6, dtype=tl.float32)
    end = (block + 1) * BLOCK_M
    if PARTED:  # blocks wholly below the diagonal need no mask
        full = (block * BLOCK_M) // BLOCK_N * BLOCK_N
        total, weight, top = _attend(total, weight, top, query, k + base, v + base, 0, full, at_m, HEAD, BLOCK_N, False, EXP2, TURN)
        total, weight, top = _attend(total, weight, top, query, k + base, v + base, full, end, at_m, HEAD, BLOCK_N, True, EXP2, TURN)
    else:
        total, weight, top = _attend(total, weight, top, query, k + base, v + base, 0, end, at_m, HEAD, BLOCK_N, True, EXP2, TURN)
    tl.store(o + place, (total / weight[:, None]).to(o.dtype.element_ty))


class Attention:
    """Causal attention forward, bf16: 2 sequences of 4096, 16 heads of 128."""

    name = "triton_attention"
    params: Params = [  # noqa: RUF012
        choice("loop", ["masked", "parted"]),
        choice("exponential", ["e", "two"]),
        choice("keys", ["strided", "turned"]),
        choice("order", ["forwards", "backwards"]),
        ordinal("block_m", [32, 64, 128]),
        ordinal("block_n", [32, 64, 128]),
        ordinal("warps", [4, 8]),
        ordinal("stages", [1, 2, 3, 4]),
    ]
    own: tuple[str, ...] = ("order",)

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.length, self.head, self.heads = 4096, 128, 32
        self.q, self.k, self.v = (torch.randn(self.heads, self.length, self.head, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        self.out = torch.empty_like(self.q)
        self.written = (self.out,)
        heads = torch.nn.functional.scaled_dot_product_attention(self.q[None], self.k[None], self.v[None], is_causal=True)
        self.reference = heads[0].float()

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        two = config["exponential"] == "two"
        scale = self.head**-0.5 * (1.4426950408889634 if two else 1.0)

        def run() -> torch.Tensor:
            _attention[(self.length // config["block_m"], self.heads)](
                self.q, self.k, self.v, self.out, scale, self.length, int(config["order"] == "backwards"), HEAD=self.head,
                BLOCK_M=config["block_m"], BLOCK_N=config["block_n"], PARTED=config["loop"] == "parted", EXP2=two,
                TURN=config["keys"] == "turned", num_warps=config["warps"], num_stages=config["stages"],
            )  # fmt: skip
            return self.out

        return run


@triton.jit
def _norm(
    x, gain, y, WIDTH: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, LOOPED: tl.constexpr, KEEP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    at = tl.arange(0, BLOCK)
    if LOOPED:
        squares = tl.zeros((AT_ONCE, BLOCK), dtype=tl.float32)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            part = tl.load(x + row[:, None] * WIDTH + (start + at)[None, :], eviction_policy=KEEP).to(tl.float32)
            squares += part * part
        factor = tl.rsqrt(tl.sum(squares, 1) / WIDTH + 1e-6)
        for start in tl.range(0, WIDTH, BLOCK, num_stages=STAGES):
            place = row[:, None] * WIDTH + (start + at)[None, :]
            part = tl.load(x + place, eviction_policy="evict_first").to(tl.float32)
            scaled = part * factor[:, None] * tl.load(gain + start + at)[None, :].to(tl.float32)
            tl.store(y + place, scaled.to(y.dtype.element_ty))
    else:
        place = row[:, None] * WIDTH + at[None, :]
        whole = tl.load(x + place, eviction_policy=KEEP).to(tl.float32)
        factor = tl.rsqrt(tl.sum(whole * whole, 1) / WIDTH + 1e-6)
        scaled = whole * factor[:, None] * tl.load(gain + at)[None, :].to(tl.float32)
        tl.store(y + place, scaled.to(y.dtype.element_ty))


class Norm:
    """RMS norm of 16384 rows of 8192, bf16: bound by memory."""

    name = "triton_norm"
    params: Params = [  # noqa: RUF012
        choice("way", ["whole", "looped"]),
        ordinal("block", [512, 1024, 2048, 4096], "dense", {"way": ["looped"]}),
        ordinal("stages", [1, 2, 3, 4], "dense", {"way": ["looped"]}),
        ordinal("rows", [1, 2, 4, 8]),
        ordinal("warps", [1, 2, 4, 8, 16, 32]),
        choice("cache", ["plain", "evict_first", "evict_last"]),
    ]
    own: tuple[str, ...] = ()

    def allowed(self, config: Mapping[str, Any]) -> bool:
        """More than 256 values a thread do not fit into its registers by far; compiling that takes minutes."""
        return bool(config.get("block", self.width) * config["rows"] <= 256 * 32 * config["warps"])

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rows, self.width = 16384, 8192
        self.x = torch.randn(self.rows, self.width, device="cuda", dtype=torch.bfloat16)
        self.gain = torch.randn(self.width, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.x)
        self.written = (self.out,)
        wide = self.x.float()
        self.reference = wide * torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6) * self.gain.float()

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        looped = config["way"] == "looped"
        cache = "" if config["cache"] == "plain" else config["cache"]

        def run() -> torch.Tensor:
            _norm[(self.rows // config["rows"],)](
                self.x, self.gain, self.out, WIDTH=self.width, BLOCK=config.get("block", self.width), AT_ONCE=config["rows"],
                LOOPED=looped, KEEP=cache, STAGES=config.get("stages", 1), num_warps=config["warps"],
            )  # fmt: skip
            return self.out

        return run


@triton.jit(do_not_specialize=["chunk"])
def _decode(
    q, k, v, sums, weights, tops, scale, length, chunk, HEAD: tl.constexpr, GROUP: tl.constexpr, BLOCK_N: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """One part of the keys for one head of keys (packed: all its queries at once, for the matrix units) or for one query."""
    part, parts, which = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    at_n, at_d = tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    low = part * chunk
    if PACKED:
        base = which.to(tl.int64) * length * HEAD
        at_q = tl.arange(0, 16)
        query = tl.load(q + (which * GROUP + at_q)[:, None] * HEAD + at_d[None, :], mask=at_q[:, None] < GROUP, other=0.0)
        total = tl.zeros((16, HEAD), dtype=tl.float32)
        weight = tl.zeros((16,), dtype=tl.float32)
        top = tl.full((16,), -1.0e6, dtype=tl.float32)
        for start in range(low, low + chunk, BLOCK_N):
            place = base + (start + at_n)[:, None] * HEAD + at_d[None, :]
            score = tl.dot(query, tl.trans(tl.load(k + place))) * scale
            higher = tl.maximum(top, tl.max(score, 1))
            share, fade = tl.exp(score - higher[:, None]), tl.exp(top - higher)
            weight = weight * fade + tl.sum(share, 1)
            value = tl.load(v + place)
            total = tl.dot(share.to(value.dtype), value, total * fade[:, None])
            top = higher
        out = (which * GROUP + at_q) * parts + part
        tl.store(sums + out[:, None] * HEAD + at_d[None, :], total, mask=at_q[:, None] < GROUP)
        tl.store(weights + out, weight, mask=at_q < GROUP)
        tl.store(tops + out, top, mask=at_q < GROUP)
    else:
        base = (which // GROUP).to(tl.int64) * length * HEAD
        one = tl.load(q + which * HEAD + at_d).to(tl.float32) * scale
        line = tl.zeros((HEAD,), dtype=tl.float32)
        heavy, high = 0.0, -1.0e6
        for start in range(low, low + chunk, BLOCK_N):
            place = base + (start + at_n)[:, None] * HEAD + at_d[None, :]
            found = tl.sum(tl.load(k + place).to(tl.float32) * one[None, :], 1)
            above = tl.maximum(high, tl.max(found, 0))
            shares, fades = tl.exp(found - above), tl.exp(high - above)
            heavy = heavy * fades + tl.sum(shares, 0)
            line = line * fades + tl.sum(shares[:, None] * tl.load(v + place).to(tl.float32), 0)
            high = above
        here = which * parts + part
        tl.store(sums + here * HEAD + at_d, line)
        tl.store(weights + here, heavy)
        tl.store(tops + here, high)


@triton.jit
def _merge(sums, weights, tops, o, HEAD: tl.constexpr, PARTS: tl.constexpr):
    which, at_p, at_d = tl.program_id(0), tl.arange(0, PARTS), tl.arange(0, HEAD)
    top = tl.load(tops + which * PARTS + at_p)
    share = tl.exp(top - tl.max(top, 0))
    weight = tl.sum(tl.load(weights + which * PARTS + at_p) * share, 0)
    parts = tl.load(sums + (which * PARTS + at_p)[:, None] * HEAD + at_d[None, :])
    tl.store(o + which * HEAD + at_d, (tl.sum(parts * share[:, None], 0) / weight).to(o.dtype.element_ty))


class Decode:
    """Attention of one new word for each of 16 sequences of 8192, 32 heads of 128 over 8 heads of keys, bf16: a step of serving."""

    name = "triton_decode"
    params: Params = [  # noqa: RUF012
        choice("heads", ["single", "packed"]),
        ordinal("parts", [1, 2, 4, 8, 16], "sparse"),
        ordinal("block_n", [16, 32, 64, 128]),
        ordinal("warps", [1, 2, 4, 8]),
        ordinal("stages", [1, 2, 3, 4]),
        ordinal("merge_warps", [1, 4]),
    ]
    own: tuple[str, ...] = ("parts", "merge_warps")

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.count, self.keyed, self.group, self.head, self.length = 16, 8, 4, 128, 8192
        heads = self.count * self.keyed
        self.q = torch.randn(heads, self.group, self.head, device="cuda", dtype=torch.bfloat16)
        self.k, self.v = (torch.randn(heads, self.length, self.head, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.out = torch.empty(heads * self.group, self.head, device="cuda", dtype=torch.bfloat16)
        self.sums = torch.empty(heads * self.group * 16 * self.head, device="cuda", dtype=torch.float32)
        self.weights, self.tops = (torch.empty(heads * self.group * 16, device="cuda", dtype=torch.float32) for _ in range(2))
        self.written = (self.out, self.sums, self.weights, self.tops)
        attended = torch.nn.functional.scaled_dot_product_attention(self.q[None], self.k[None], self.v[None])
        self.reference = attended[0].reshape(-1, self.head).float()

    def call(self, config: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        packed, parts = config["heads"] == "packed", config["parts"]
        queries = self.count * self.keyed * self.group

        def run() -> torch.Tensor:
            _decode[(parts, queries // self.group if packed else queries)](
                self.q, self.k, self.v, self.sums, self.weights, self.tops, self.head**-0.5, self.length, self.length // parts,
                HEAD=self.head, GROUP=self.group, BLOCK_N=config["block_n"], PACKED=packed, num_warps=config["warps"],
                num_stages=config["stages"],
            )  # fmt: skip
            _merge[(queries,)](
                self.sums, self.weights, self.tops, self.out, HEAD=self.head, PARTS=parts, num_warps=config["merge_warps"]
            )  # fmt: skip
            return self.out

        return run


KERNELS = {kernel.name: kernel for kernel in (Matmul, FewRows, ManyRows, WideMatmul, Attention, Norm, Decode)}
