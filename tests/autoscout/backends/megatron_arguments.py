"""Asks the parser of a Megatron-LM checkout about launches: `python megatron_arguments.py CHECKOUT < launches.json`.

Standard input is a list of [number of processes, words]; standard output a list of what it says against each, empty where it takes it. Runs
without a GPU: its questions about one are answered as on an H100, and a module that needs Triton is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from unittest.mock import MagicMock


def main(checkout: str) -> int:
    launches = json.load(sys.stdin)
    sys.path.insert(0, checkout)
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    sys.modules["megatron.core.transformer.custom_layers.batch_invariant_kernels"] = MagicMock()
    with contextlib.redirect_stdout(io.StringIO()):
        import torch
        from megatron.training import arguments

        arguments.get_device_arch_version = lambda: 9
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        arguments._print_args = lambda *_: None
        found = [refused(arguments, world, words) for world, words in launches]
    print(json.dumps(found))
    return 0


def refused(arguments: object, world: int, words: list[str]) -> str:
    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False))  # type: ignore[attr-defined]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            args = parser.parse_args(words)
    except (SystemExit, argparse.ArgumentError) as error:
        return said.getvalue()[-300:] or str(error)
    args.rank, args.world_size = 0, world
    try:
        arguments.validate_args(args)  # type: ignore[attr-defined]
    except (AssertionError, ValueError, RuntimeError) as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
