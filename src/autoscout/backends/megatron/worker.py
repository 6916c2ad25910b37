"""One process of a run of the built-in model: `python -m autoscout.backends.megatron.worker train.json megatron.json [STEPS]`.

Model, pipeline schedules, exchange of gradients and optimizer are those of the megatron-core package; nothing of Megatron-LM is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from autoscout import training
from autoscout.training.builtin import built_shape, say, start
from autoscout.training.gpt import Data, close


def main(path: str, core: str, steps: str = "") -> int:
    """Train for as many steps as the file or the caller says; every step is reported."""
    work, settings = json.loads(Path(path).read_text()), json.loads(Path(core).read_text())
    shape, device = built_shape(work), work["device"]
    here = start(training.config(), device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cpu":
        from autoscout.backends.megatron.on_cpu import redirect

        redirect()
    training.stage("building")
    run = MegatronRun(settings, shape, int(work["seed"]))
    count, batch = int(steps or work["steps"]), int(work["global_batch"])
    data = Data(shape, batch, work["seed"], count, here)
    own = run.share(batch)
    training.stage("training")
    for number in range(count):
        tokens, targets = data.step(number)
        loss = run.step(tokens[own], targets[own])
        if device == "cuda":
            torch.cuda.synchronize()
        rows = own.stop - own.start if run.counts else 0
        training.step(loss=loss, tokens=rows * shape["sequence"], samples=rows)
        say(number, loss if run.counts and own.start == 0 else None)
    close()
    return 0


class MegatronRun:
    """This process's part of the model, its optimizer and its schedule."""

    def __init__(self, settings: Mapping[str, Any], shape: Mapping[str, Any], seed: int) -> None:
        from megatron.core import parallel_state
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.pipeline_parallel import get_forward_backward_func
        from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

        from autoscout.backends.megatron.model import build_parts, transformer_config

        self.config = config = transformer_config(settings, int(shape["layers"]))
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=config.tensor_model_parallel_size,
            pipeline_model_parallel_size=config.pipeline_model_parallel_size,
            virtual_pipeline_model_parallel_size=config.virtual_pipeline_model_parallel_size,
            expert_model_parallel_size=config.expert_model_parallel_size,
            expert_tensor_parallel_size=config.expert_tensor_parallel_size,
            create_gloo_process_groups=False,
        )
        model_parallel_cuda_manual_seed(seed + 1)
        self.parts = build_parts(settings, config, shape, seed)
        chosen = dict(settings["OptimizerConfig"])
        chosen["params_dtype"] = getattr(torch, chosen["params_dtype"])
        self.optimizer = get_megatron_optimizer(OptimizerConfig(**chosen), self.parts, use_gloo_process_groups=False)
        self.schedule = get_forward_backward_func()
        self._connect(settings["DistributedDataParallelConfig"])
        self.micro, self.sequence = int(settings["micro_batch_size"]), int(shape["sequence"])
        self.dp, self.dp_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
        last = parallel_state.get_pipeline_model_parallel_rank() == parallel_state.get_pipeline_model_parallel_world_size() - 1
        self.counts = last and parallel_state.get_tensor_model_parallel_rank() == 0

    def _connect(self, exchange: Mapping[str, Any]) -> None:
        """Tell the schedules when to exchange gradients and parameters, as Megatron-LM's training loop does."""
        from megatron.core.distributed import finalize_model_grads

        def each(name: str) -> Any:
            members = [getattr(part, name) for part in self.parts]
            return members if len(members) > 1 else members[0]

        self.config.grad_scale_func = self.optimizer.scale_loss
        self.config.finalize_model_grads_func = finalize_model_grads
        if exchange.get("overlap_grad_reduce"):
            self.config.no_sync_func = each("no_sync")
            self.config.grad_sync_func = each("start_grad_sync")

    def share(self, batch: int) -> slice:
        """The rows of a global batch that this process's replica trains on."""
        rows = batch // self.dp
        return slice(self.dp_rank * rows, (self.dp_rank + 1) * rows)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float | None:
        """One optimizer step over this replica's rows; gives their mean loss, or None where the process does not know it."""
        for part in self.parts:
            part.zero_grad_buffer()
        self.optimizer.zero_grad()
        pieces = len(tokens) // self.micro
        feeds = [self._pieces(tokens, targets) for _ in self.parts]
        several = len(self.parts) > 1
        losses = self.schedule(
            forward_step_func=_forward,
            data_iterator=feeds if several else feeds[0],
            model=self.parts if several else self.parts[0],
            num_microbatches=pieces,
            seq_length=self.sequence,
            micro_batch_size=self.micro,
            forward_only=False,
        )
        self.optimizer.step()
        return float(torch.stack([part["lm loss"] for part in losses]).mean()) if losses else None

    def _pieces(self, tokens: torch.Tensor, targets: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return iter(list(zip(tokens.split(self.micro), targets.split(self.micro), strict=True)))


def _forward(feed: Iterator[tuple[torch.Tensor, torch.Tensor]], part: Any) -> tuple[Any, Any]:
    """The forward pass of one micro-batch through one part, and how its output becomes a loss."""
    tokens, targets = next(feed)
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return part(tokens, positions, None, labels=targets), _loss


def _loss(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = output.float().mean()
    return loss, {"lm loss": loss.detach().clone()}  # the schedule scales the loss in place


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
