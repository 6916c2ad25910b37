"""Backend `vllm`: the vLLM server, from its own program."""

from autoscout.backends.vllm.backend import VllmBackend

__all__ = ["VllmBackend"]
