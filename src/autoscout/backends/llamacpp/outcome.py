"""What llama.cpp's log says of a failure."""

from __future__ import annotations

import re

from autoscout.load.outcome import LogSigns

SIGNS = LogSigns(
    refused=re.compile(
        r"(quantized V cache requires.*|[KV] cache type .* does not divide.*|failed to initialize the context: (?!failed to allocate).*"
        r"|error: invalid argument.*|error while handling argument.*"
        r"|this release of xllamacpp has no parameter.*|layers cannot go to a GPU.*"
        r"|n_seq_max must be.*|model does not support different K.*|n_batch and n_ubatch cannot both be zero.*"
        r"|SPLIT_MODE_TENSOR requires.*|failed to create_context.*)"
    ),
    broken_model=re.compile(r"error loading model: (.*)|(invalid magic characters.*)|(failed to open GGUF file.*)", re.IGNORECASE),
    ignored=re.compile(r"(failed to mlock.*|no usable GPU found.*)"),
    cause=re.compile(r"(\S+:\d+: GGML_ASSERT\(.*|GGML_ASSERT\(.*|terminate called .*)"),
)

__all__ = ["SIGNS"]
