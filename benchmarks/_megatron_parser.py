"""Asks the parser of a Megatron-LM checkout about launches: `python _megatron_parser.py CHECKOUT < launches.json`.

Standard input is a list of [number of processes, words]; standard output a list of what it says against each, empty where it takes it. Runs
without a GPU: its questions about one are answered as on an H100, and a module that needs Triton is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
import traceback
import typing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

KERNELS = {
    "megatron.core.models.common.embeddings.rope_utils": ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"),
    "megatron.core.transformer.moe.moe_utils": ("fused_permute", "fused_permute_with_probs", "fused_sort_chunks_by_index",
                                                "fused_sort_chunks_by_index_with_probs", "fused_unpermute"),
}  # fmt: skip
"""Where Megatron-LM looks whether Transformer Engine has a kernel, and their names."""


def main(checkout: str) -> int:
    launches = json.load(sys.stdin)
    sys.path.insert(0, checkout)
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    with contextlib.redirect_stdout(io.StringIO()):
        import torch

        typing.override = getattr(typing, "override", lambda function: function)  # Python 3.12 has it
        arguments = imported(checkout)
        with_transformer_engine()
        arguments.get_device_arch_version = lambda: 9
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        arguments._print_args = lambda *_: None
        parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False))
        found = [refused(arguments, parser, world, words) for world, words in launches]
    print(json.dumps(found))
    return 0


def imported(checkout: str) -> Any:
    """Megatron-LM's module of arguments; modules of kernels, which need Triton, are left out."""
    while True:
        try:
            return importlib.import_module("megatron.training.arguments")
        except ModuleNotFoundError as error:
            files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
            own = [file.relative_to(checkout) for file in files if file.is_relative_to(checkout)]
            if not own or not str(error.name).startswith("triton"):
                raise
            name = ".".join(own[-1].with_suffix("").parts)
            for module in [module for module in sys.modules if module.startswith("megatron.training")]:
                del sys.modules[module]
            sys.modules[name] = MagicMock()


def with_transformer_engine() -> None:
    """Answer as where Transformer Engine is installed, which launches take for granted."""
    for module, names in KERNELS.items():
        parts = importlib.import_module(module)
        for name in names:
            if getattr(parts, name, None) is None:
                setattr(parts, name, MagicMock())
    config = importlib.import_module("megatron.core.transformer.transformer_config")
    for name in ("is_te_min_version", "is_torch_min_version"):
        if hasattr(config, name):
            setattr(config, name, lambda *_, **__: True)


def refused(arguments: Any, parser: argparse.ArgumentParser, world: int, words: list[str]) -> str:
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            args = parser.parse_args(words)
    except (SystemExit, argparse.ArgumentError) as error:
        return said.getvalue()[-300:] or str(error)
    args.rank, args.world_size = 0, world
    try:
        arguments.validate_args(args)
        arguments.core_transformer_config_from_args(args)
    except (AssertionError, ValueError, RuntimeError, TypeError) as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
