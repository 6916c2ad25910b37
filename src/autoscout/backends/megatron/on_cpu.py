"""megatron-core on a processor: what it places on the current GPU is placed in main memory instead.

megatron-core takes for granted that there is a GPU: it asks which one is current, makes tensors on `cuda`, keeps the state of that GPU's
random numbers, and recognises parameters by the name of a CUDA type. Nothing else of it depends on CUDA as long as processes talk through
gloo and none of its own kernels is chosen. `redirect` answers those four questions for main memory, in this process only; model, schedules,
exchange of gradients and optimizers stay megatron-core's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MAKERS = ("tensor", "zeros", "ones", "empty", "full", "arange", "randn", "rand", "randint", "as_tensor", "linspace", "eye")
"""Functions that make a tensor on the device that `device=` names."""


def redirect() -> None:
    """Make everything that megatron-core asks of the current GPU come from main memory."""
    from megatron.core.tensor_parallel import random  # first: what is compiled while it is imported looks at the functions below

    for name in MAKERS:
        setattr(torch, name, _in_memory(getattr(torch, name)))
    gpu: Any = torch.cuda
    gpu.current_device = lambda: "cpu"
    gpu.synchronize = gpu.empty_cache = gpu.set_device = lambda *_: None
    gpu.current_stream = lambda *_: None  # versions from 0.17 ask for it, to wait for what only a GPU records
    gpu.manual_seed = torch.manual_seed
    gpu.get_rng_state = gpu.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *_, **__: self
    tensor.type = _type(tensor.type)
    module: Any = random
    module._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    module._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


def _in_memory(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **more: Any) -> Any:
        device = more.get("device")
        if device is not None and str(device).startswith("cuda"):
            more["device"] = "cpu"
        return make(*args, **more)

    return made


def _type(asked: Callable[..., Any]) -> Callable[..., Any]:
    """`tensor.type()` names the CUDA type, by which megatron-core sorts parameters by precision; conversions stay as they are."""

    def answered(self: Any, *args: Any, **more: Any) -> Any:
        kind = asked(self, *args, **more)
        return kind.replace("torch.", "torch.cuda.", 1) if isinstance(kind, str) else kind

    return answered
