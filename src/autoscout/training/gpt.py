"""The built-in model: a GPT, the data it is trained on, and how it is spread over processes by PyTorch itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class TransformerBlock(nn.Module):
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
        self.positions: nn.Module | None = nn.Embedding(shape["sequence"], width)
        attention = str(knobs.get("attention", "auto"))
        self.blocks = nn.ModuleDict({str(number): TransformerBlock(width, shape["heads"], attention) for number in range(shape["layers"])})
        self.norm: nn.Module | None = nn.LayerNorm(width)
        self.head: nn.Module | None = nn.Linear(width, words, bias=False)
        self.recompute = str(knobs.get("recompute", "none"))
        self.chunks = int(knobs.get("loss_chunks", 1))
        self.apply(_initialise)

    def keep(self, layers: Iterable[int], *, first: bool, last: bool) -> None:
        """Drop everything but these layers; the embeddings belong to the first stage, norm and head to the last."""
        names = {str(number) for number in layers}
        self.blocks = nn.ModuleDict({name: block for name, block in self.blocks.items() if name in names})
        if not first:
            self.tokens = self.positions = None
        if not last:
            self.norm = self.head = None

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
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


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class ProcessGrid:
    """Where this process is: sizes and positions along pipeline, data and tensor parallelism."""

    mesh: DeviceMesh | None
    pp: int
    dp: int
    tp: int

    @classmethod
    def make(cls, knobs: Mapping[str, Any], device: str) -> ProcessGrid:
        pp, dp, tp = (int(knobs.get(name, 1)) for name in ("pp", "dp", "tp"))
        if pp * dp * tp == 1:
            return cls(None, 1, 1, 1)
        return cls(init_device_mesh(device, (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp")), pp, dp, tp)

    def rank(self, name: str) -> int:
        return 0 if self.mesh is None else int(self.mesh[name].get_local_rank())


Step = Callable[[torch.Tensor, torch.Tensor], float | None]
"""Forward and backward of this process's part of a global batch; gives its mean loss, or None where the process does not know it."""


def build(model: GPT, knobs: Mapping[str, Any], layout: ProcessGrid, device: str) -> tuple[list[nn.Parameter], Step]:
    """Spread the model; gives the parameters of this process, and what one step does."""
    if layout.pp > 1:
        return _pipeline(model, knobs, layout, device)
    wrapped = _wrap(_tensor_parallel(model, layout), knobs, layout)
    micro = int(knobs["micro_batch"])
    defer = bool(knobs.get("defer_sync", False))

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> float | None:
        parts = list(zip(tokens.split(micro), targets.split(micro), strict=True))
        total = torch.zeros((), device=device)
        for number, (x, y) in enumerate(parts):
            with _synchronised(wrapped, not defer or number == len(parts) - 1):
                if knobs.get("compile") == "reduce-overhead":
                    torch.compiler.cudagraph_mark_step_begin()
                with precision(knobs, device, sharded=knobs.get("data_parallel") == "fsdp2"):
                    loss = wrapped(x, y) / len(parts)
                loss.backward()
                total += loss.detach()
        return float(total)

    return list(wrapped.parameters()), step


def precision(knobs: Mapping[str, Any], device: str, *, sharded: bool = False) -> contextlib.AbstractContextManager[Any]:
    """The context in which the forward pass runs; FSDP2 casts by a policy of its own instead."""
    dtype = DTYPES.get(str(knobs.get("precision")))
    return contextlib.nullcontext() if dtype is None or sharded else torch.autocast(device, dtype=dtype)


def compiled(model: GPT, knobs: Mapping[str, Any]) -> None:
    """Compile in place, each block or the whole."""
    mode = str(knobs.get("compile", "off"))
    if mode == "off":
        return
    parts = [model] if knobs.get("compile_scope") == "model" else list(model.blocks.values())
    for part in parts:
        part.compile(mode=mode)


def _tensor_parallel(model: GPT, layout: ProcessGrid) -> GPT:
    if layout.tp > 1 and layout.mesh is not None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {"qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in model.blocks.values():
            parallelize_module(block, layout.mesh["tp"], plan)
    return model


def _wrap(model: GPT, knobs: Mapping[str, Any], layout: ProcessGrid) -> nn.Module:
    """Compile, then replicate or shard over the data-parallel processes."""
    compiled(model, knobs)
    if layout.dp == 1 or layout.mesh is None:
        return model
    if knobs["data_parallel"] == "ddp":
        return nn.parallel.DistributedDataParallel(
            model,
            process_group=layout.mesh["dp"].get_group(),
            bucket_cap_mb=float(knobs["bucket_mb"]),  # type: ignore[arg-type]
            gradient_as_bucket_view=bool(knobs["gradient_as_bucket_view"]),
            static_graph=bool(knobs["static_graph"]),
        )
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dtype = DTYPES.get(str(knobs.get("precision")))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
    options: dict[str, Any] = {
        "mesh": layout.mesh["dp"],
        "reshard_after_forward": bool(knobs["reshard_after_forward"]),
        "mp_policy": policy,
    }
    if knobs["wrap"] == "block":
        for block in model.blocks.values():
            fully_shard(block, **options)
    return fully_shard(model, **options)  # type: ignore[return-value]


@contextlib.contextmanager
def _synchronised(model: nn.Module, now: bool) -> Iterator[None]:
    """Whether the gradients of this micro-batch are exchanged at once."""
    if isinstance(model, nn.parallel.DistributedDataParallel) and not now:
        with model.no_sync():
            yield
        return
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(now)  # type: ignore[operator]
    yield


def _pipeline(model: GPT, knobs: Mapping[str, Any], layout: ProcessGrid, device: str) -> tuple[list[nn.Parameter], Step]:
    from torch.distributed import pipelining

    assert layout.mesh is not None
    rank, group = layout.rank("pp"), layout.mesh["pp"].get_group()
    interleaved = knobs["schedule"] == "interleaved"
    stages = layout.pp * (2 if interleaved else 1)
    own = [rank, rank + layout.pp] if interleaved else [rank]
    layers = len(model.blocks)
    cuts = [round(number * layers / stages) for number in range(stages + 1)]
    parts: list[Any] = []
    parameters: list[nn.Parameter] = []
    for number in own:
        part = _part(model, range(cuts[number], cuts[number + 1]), first=number == 0, last=number == stages - 1)
        wrapped = _wrap(_tensor_parallel(part, layout), knobs, layout)
        parameters += wrapped.parameters()
        parts.append(pipelining.PipelineStage(wrapped, number, stages, torch.device(device), group=group))

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    pieces = int(knobs["micro_batches"])
    if interleaved:
        schedule: Any = pipelining.ScheduleInterleaved1F1B(parts, pieces, loss_fn=loss_of)
    else:
        kind = pipelining.ScheduleGPipe if knobs["schedule"] == "gpipe" else pipelining.Schedule1F1B
        schedule = kind(parts[0], pieces, loss_fn=loss_of)

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> float | None:
        last = (stages - 1) in own
        losses: list[torch.Tensor] = []
        inputs = (tokens,) if 0 in own else ()
        with precision(knobs, device):
            schedule.step(*inputs, **({"target": targets, "losses": losses} if last else {}))
        return float(torch.stack(losses).detach().mean()) if last else None

    return parameters, step


def _part(model: GPT, layers: range, *, first: bool, last: bool) -> GPT:
    """A stage that shares the weights of the whole model, which was made alike everywhere."""
    import copy

    part = copy.copy(model)
    part._modules = dict(model._modules)
    part.keep(layers, first=first, last=last)
    return part


def close() -> None:
    """Leave the process group."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
