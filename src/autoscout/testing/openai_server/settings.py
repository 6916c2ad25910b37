"""The command line of the fake engine: the engines' own flags where they have one, and what it should do wrong."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from dataclasses import dataclass
from typing import NoReturn

from autoscout.testing.openai_server import speculation
from autoscout.testing.openai_server.speculation import Speculation

EXTRA = "AUTOSCOUT_FAKE_ENGINE"
"""Environment variable with further arguments, for callers who cannot add to the command line."""

FAULTS = {
    "crash": "ends with a traceback under load",
    "kill": "is killed under load, as by a kernel short of memory",
    "hang": "stops answering under load",
    "hang_start": "never becomes healthy",
    "nan": "log-probabilities are not numbers",
    "repeat": "the same token over and over",
    "empty": "no tokens",
    "short": "fewer tokens than asked for",
    "garbage": "other tokens than the model's",
    "error": "every request is refused with status 500",
    "oom_start": "out of GPU memory while loading, in CUDA's words",
    "no_cache": "no memory left for the KV cache, in vLLM's words",
    "oom_run": "out of GPU memory under load, in CUDA's words",
    "refuse": "refuses its settings, in pydantic's words",
    "crash_start": "ends with a traceback while starting",
    "ignore_term": "does not end when told to",
    "child": "starts a child that outlives it",
}
"""Name -> what goes wrong. `NAME@N` begins with the Nth request."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the server does."""

    host: str
    port: int
    model: str
    vocab_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    kv_tokens: int
    prefix_caching: bool
    lossy: bool
    speculation: Speculation
    start_s: float
    step_ms: float
    sequence_us: float
    prefill_us: float
    fault: str
    after: int

    def is_failing(self, name: str, requests: int) -> bool:
        """Whether a fault is due, after this many requests."""
        return self.fault == name and requests > self.after


def _fault(text: str) -> tuple[str, int]:
    name, _, after = text.partition("@")
    if name not in FAULTS or (after and not after.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(FAULTS)}, with or without @REQUESTS")
    return name, int(after or 0)


def _fault_if(text: str) -> tuple[str, float, tuple[str, int]]:
    """`max_num_seqs>256:oom_start`."""
    match = re.fullmatch(r"(\w+)>([\d.]+):(.+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FLAG>NUMBER:FAULT")
    return match[1], float(match[2]), _fault(match[3])


def read(arguments: list[str]) -> Settings:
    """The settings; flags of the engines that change nothing here are accepted, as are the subcommand and a model without a flag."""
    parser = argparse.ArgumentParser(prog="openai_server")
    parser.add_argument("words", nargs="*", help="`serve` and the model, as vLLM takes them")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default="")
    parser.add_argument("--model", "--model-path", default="")
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--max-num-seqs", "--max-running-requests", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", "--chunked-prefill-size", type=int, default=2048)
    parser.add_argument("--max-model-len", "--context-length", type=int, default=1 << 20)
    parser.add_argument("--gpu-memory-utilization", "--mem-fraction-static", type=float, default=0.9)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--quantization", default="")
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", "-tp", type=int, default=1)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--kv-tokens", type=int, default=500_000, help="tokens of KV cache per unit of memory utilisation")
    speculation.add_arguments(parser)
    parser.add_argument("--gpus", type=int, default=1, help="GPUs there seem to be")
    parser.add_argument("--start-s", type=float, default=0.0, help="seconds until it is healthy")
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of an empty step")
    parser.add_argument("--sequence-us", type=float, default=50.0, help="added to a step by each sequence that decodes")
    parser.add_argument("--prefill-us", type=float, default=10.0, help="added to a step by each token of a prompt")
    parser.add_argument("--fault", type=_fault, default=("", 0), metavar="NAME[@REQUESTS]", help="; ".join(map(": ".join, FAULTS.items())))
    parser.add_argument(
        "--fault-if", action="append", default=[], type=_fault_if, metavar="FLAG>NUMBER:FAULT", help="a fault of some settings only"
    )
    parser.add_argument(
        "--refuse", action="append", default=[], metavar="FLAG", help="a flag that this engine does not know: --refuse=--flag"
    )
    line = [*arguments, *shlex.split(os.environ.get(EXTRA, ""))]
    options, _ = parser.parse_known_args(line)
    unknown = [word for word in line if word.split("=")[0] in options.refuse]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    for name, least, fault in options.fault_if:
        if float(getattr(options, name)) > least:
            options.fault = fault
    _check(options)
    words = [word for word in options.words if word != "serve"]
    model = options.served_model_name or options.model or next(iter(words), "fake")
    lossy = options.kv_cache_dtype != "auto" or bool(options.quantization)
    return Settings(
        host=options.host,
        port=options.port,
        model=model,
        vocab_size=options.vocab_size,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        kv_tokens=int(options.kv_tokens * options.gpu_memory_utilization * (2 if "fp8" in options.kv_cache_dtype else 1)),
        prefix_caching=options.enable_prefix_caching,
        lossy=lossy,
        speculation=speculation.of(options),
        start_s=options.start_s,
        step_ms=options.step_ms / options.tensor_parallel_size,
        sequence_us=options.sequence_us / options.tensor_parallel_size,
        prefill_us=options.prefill_us / options.tensor_parallel_size * (0.6 if options.quantization else 1.0),
        fault=options.fault[0],
        after=options.fault[1],
    )


def _check(options: argparse.Namespace) -> None:
    """Rules of the engines that tests rely on."""
    if options.max_num_batched_tokens < options.max_num_seqs:
        least = f"must be greater than or equal to max_num_seqs ({options.max_num_seqs})."
        _refuse("SchedulerConfig", f"max_num_batched_tokens ({options.max_num_batched_tokens}) {least}")
    if options.tensor_parallel_size > options.gpus:
        _refuse(
            "ParallelConfig", f"World size ({options.tensor_parallel_size}) is larger than the number of available GPUs ({options.gpus})"
        )
    if options.fault[0] == "refuse":
        _refuse("VllmConfig", "these settings do not go together")


def _refuse(config: str, why: str) -> NoReturn:
    """As pydantic says it at the end of a traceback."""
    raise SystemExit(
        "Traceback (most recent call last):\n"
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        f"  Value error, {why} [type=value_error, input_value=ArgsKwargs((), {{}}), input_type=ArgsKwargs]"
    )
