"""Real engines on the CPU: a tiny model of random weights with a tokenizer of bytes, studies of it, and what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VLLM_PYTHON = Path(os.environ.get("AUTOSCOUT_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python")))
SGLANG_PYTHON = Path(os.environ.get("AUTOSCOUT_SGLANG_PYTHON", str(ROOT / ".venv-sglang" / "bin" / "python")))
SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 688, "vocab_size": 2048, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "torch_dtype": "float32", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SPECIAL = ("[UNK]", "[BOS]", "[EOS]")
START_S = 900.0  # importing alone takes a minute of a busy machine


def tiny_model(folder: Path, *, tokenizer: bool = False) -> Path:
    """A model that exists only as a shape, with a tokenizer for which every byte is a token if asked."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE))
    if tokenizer:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        signs = [*SPECIAL, *map(chr, printable), *(chr(256 + place) for place in range(len(others)))]  # as byte-level tokenizers name them
        marks = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        model = {"type": "BPE", "vocab": {sign: place for place, sign in enumerate(signs)}, "merges": []}
        added = [{"id": place, "content": sign, **marks} for place, sign in enumerate(SPECIAL)]
        made = {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}
        named = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[BOS]", "eos_token": "[EOS]", "model_max_length": 4096}
        (folder / "tokenizer.json").write_text(json.dumps(made))
        (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """AutoScout as a program of its own."""
    command = [sys.executable, "-m", "autoscout", *map(str, words), "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600)


def trials_of(folder: Path, name: str) -> list[dict[str, Any]]:
    journal = folder / "autoscout_results" / name / "trials.jsonl"
    return [json.loads(line) for line in journal.read_text().splitlines()]


def alive(marker: str) -> list[int]:
    """Processes whose command line names the model of a test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_bytes().decode(errors="replace") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait(true: Callable[[], object], most_s: float) -> bool:
    end = time.monotonic() + most_s
    while not true() and time.monotonic() < end:
        time.sleep(0.5)
    return bool(true())
