"""Backend `sglang`: the SGLang server, from its own module."""

from autoscout.backends.sglang.backend import SglangBackend

__all__ = ["SglangBackend"]
