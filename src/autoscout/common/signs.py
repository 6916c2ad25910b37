"""Signs in logs by which failures are told apart, in the words of common engines, runtimes and parsers of command lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from autoscout.common.outcome import informative_line

OOM_PATTERNS = tuple(
    re.compile(text, re.MULTILINE | re.IGNORECASE)
    for text in (
        r"out of memory",
        r"OutOfMemoryError",
        r"\bMemoryError\b",
        r"std::bad_alloc",
        r"cannot allocate memory",
        r"(failed|unable) to allocate",
        r"insufficient memory",
        r"cudaMalloc failed",
        r"CUBLAS_STATUS_ALLOC_FAILED",
        r"cudaErrorMemoryAllocation",
        r"RESOURCE_EXHAUSTED",
        r"\boom[-_ ]?kill",
        r"^(.*: )?(line \d+: +\d+ )?Killed\b",
        r"No available memory for the cache blocks",  # vLLM
        r"(Free memory on device|Available memory on node) .* is less than desired",  # vLLM, on GPUs and on CPUs
        r"Not enough memory\. Please try",  # SGLang
        r"larger than the available KV cache memory",  # vLLM: not even one request fits
        r"ErrorOutOfDeviceMemory",
    )
)
"""Signs of a lack of memory in the logs of common engines and runtimes."""

INVALID_PATTERNS = tuple(
    re.compile(text, re.MULTILINE | re.IGNORECASE)
    for text in (
        r"unrecogni[sz]ed (arguments?|options?)",
        r"error: argument ",
        r"invalid choice",
        r"(unknown|illegal|invalid) (option|flag|argument)",
        r"no such option",
        r"invalid value for",
        r"got unexpected extra argument",
        r"the following arguments are required",
        r"unexpected argument",
        r"\bvalidation errors? for\b",
    )
)
"""Signs that a program refused its settings (argparse, click, getopt, clap, Go flags, pydantic)."""


def matches(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    """Whether any of the patterns is found."""
    return any(pattern.search(text) for pattern in patterns)


def telling_line(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    """The line that tells why, where it is one that the patterns speak of, else the line on which the first of them matched."""
    line = informative_line(text)
    if line and matches(patterns, line):
        return line
    for pattern in patterns:
        if match := pattern.search(text):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.start())
            return informative_line(text[start : end if end >= 0 else None])
    return ""
