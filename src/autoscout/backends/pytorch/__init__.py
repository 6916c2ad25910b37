"""Backend `pytorch`: a training step of PyTorch, of a built-in GPT or of the user's own script."""

from autoscout.backends.pytorch.backend import PyTorchBackend

__all__ = ["PyTorchBackend"]
