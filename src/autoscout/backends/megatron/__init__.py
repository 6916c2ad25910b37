"""Backend `megatron`: a training step of Megatron, by a Megatron-LM checkout or by a built-in runner on the megatron-core package."""

from autoscout.backends.megatron.backend import MegatronBackend

__all__ = ["MegatronBackend"]
