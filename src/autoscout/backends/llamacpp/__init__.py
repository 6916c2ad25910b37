"""Backend `llamacpp`: llama.cpp's own server, in the `xllamacpp` wheel."""

from autoscout.backends.llamacpp.backend import LlamaCppBackend

__all__ = ["LlamaCppBackend"]
