"""Callbacks that report the steps of the Trainers of others: `Trainer(..., callbacks=[training.callback()])`.

They count what `autoscout.training.step` wants: useful tokens (labels that count, else what attention sees) and their mean loss, over
all micro-batches of an optimizer step. Outside a trial they do nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from autoscout.training import hook

IGNORED = -100  # label of a token that no loss counts, in PyTorch and everything built on it
FRAMEWORKS = ("transformers", "lightning", "pytorch_lightning")

Count = Callable[[Any], float]
"""Useful tokens of a batch."""


def callback(framework: str = "", *, tokens: Count | None = None) -> Any:
    """A callback for Hugging Face's Trainer, and those built on it (TRL, axolotl), or for Lightning's.

    Args:
        framework: `transformers`, `lightning` or `pytorch_lightning`; the one that is imported when left out, and Lightning of both.
        tokens: Counts the useful tokens of a batch, where it holds neither labels nor an attention mask nor token ids.

    Raises:
        ValueError: none of them is imported.
    """
    name = framework or next((name for name in reversed(FRAMEWORKS) if name in sys.modules), "")
    if name == "transformers":
        return _for_transformers(tokens or useful_tokens)
    if name in FRAMEWORKS:
        return _for_lightning(name, tokens or useful_tokens)
    raise ValueError(f"framework must be one of {', '.join(FRAMEWORKS)}, and imported before: {name!r}")


def useful_tokens(batch: Any) -> float:
    """Labels that count; else what attention sees; else all token ids, or the elements of the first tensor."""
    if isinstance(batch, Mapping):
        if (labels := batch.get("labels")) is not None:
            return float((labels != IGNORED).sum())
        if (mask := batch.get("attention_mask")) is not None:
            return float(mask.sum())
        batch = batch.get("input_ids", next(iter(batch.values()), None))
    elif isinstance(batch, (tuple, list)) and batch:
        batch = batch[0]
    return float(batch.numel()) if hasattr(batch, "numel") else 0.0


def rows(batch: Any) -> float:
    """Sequences of a batch."""
    values = list(batch.values()) if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else [batch]
    return float(next((len(value) for value in values if getattr(value, "ndim", 0)), 0))


class OptimizerStep:
    """What the micro-batches of one optimizer step came to."""

    def __init__(self) -> None:
        self.tokens = self.samples = 0.0
        self.losses: list[tuple[Any, float]] = []  # with their weights

    def add(self, batch: Any, count: Count, loss: Any, weight: float | None = None) -> None:
        tokens = count(batch)
        self.tokens += tokens
        self.samples += rows(batch)
        if loss is not None:
            self.losses.append((loss.detach() if hasattr(loss, "detach") else loss, tokens if weight is None else weight))

    def report(self, total: float | None = None) -> None:
        """Tell the step and begin anew; the weights are shares of `total`, or of their sum."""
        whole = total if total is not None else sum(weight for _, weight in self.losses)
        loss = sum(float(loss) * weight for loss, weight in self.losses) / whole if self.losses and whole else None
        hook.step(loss=loss, tokens=self.tokens, samples=self.samples)
        self.__init__()  # type: ignore[misc]


def _for_transformers(count: Count) -> Any:
    from transformers import TrainerCallback

    class TrainerReports(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Watches the model's forward passes, since the Trainer tells callbacks neither batches nor losses."""

        def __init__(self) -> None:
            self.step, self.divided = OptimizerStep(), False

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
            if os.environ.get(hook.STEPS) and model is not None:
                hook.stage("training")
                model.register_forward_hook(self.forward, with_kwargs=True)

        def forward(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
            if not module.training:
                return  # an evaluation in between
            batch = {**({"input_ids": args[0]} if args else {}), **{name: part for name, part in kwargs.items() if hasattr(part, "shape")}}
            loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            items = kwargs.get("num_items_in_batch")  # the loss is a sum then, divided by the tokens of all processes and micro-batches
            self.divided = items is not None
            self.step.add(batch, count, loss, None if items is None else float(items))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            self.step.report(self.step.tokens if self.divided else None)

    return TrainerReports()


def _for_lightning(name: str, count: Count) -> Any:
    module = __import__(f"{name}.pytorch" if name == "lightning" else name, fromlist=["Callback"])

    class LightningReports(module.Callback):  # type: ignore[misc, name-defined]
        """Adds up micro-batches until the optimizer has made a step. Their losses are divided by their number already."""

        def __init__(self) -> None:
            self.step, self.steps = OptimizerStep(), 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            self.steps = int(trainer.global_step)
            hook.stage("training")

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            self.step.add(batch, count, loss, 1.0)
            if trainer.global_step != self.steps:
                self.steps = int(trainer.global_step)
                self.step.report(1.0)

    return LightningReports()


__all__ = ["callback", "useful_tokens"]
