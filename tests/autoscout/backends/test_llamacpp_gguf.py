"""Headers of GGUF files: ours agrees with the `gguf` package, and nothing broken gets through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile
from autoscout.backends.llamacpp.model import RANDOM_MODELS, ensure_model
from autoscout.core.seeds import stream

gguf = pytest.importorskip("gguf", reason="needs the extra llamacpp")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_model("random-tiny", "q8_0", tmp_path_factory.mktemp("models"))


def test_it_reads_what_the_gguf_package_reads(path: Path) -> None:
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    names = {field.name for field in theirs.fields.values() if not field.name.startswith("GGUF.")}
    assert set(ours.metadata) == names
    for name, value in ours.metadata.items():
        expected = theirs.fields[name].contents()
        if isinstance(value, np.ndarray):
            assert value.tolist() == expected
        elif isinstance(expected, list):
            assert value.count == len(expected)
        else:
            assert value == pytest.approx(expected) if isinstance(expected, float) else value == expected


def test_facts(path: Path) -> None:
    facts, model = GgufFile(path).facts, RANDOM_MODELS["random-tiny"].facts
    for name in ("architecture", "layers", "context", "head_size", "window", "experts", "vocab", "weights", "parts"):
        assert getattr(facts, name) == getattr(model, name), f"the random model declares another {name} than it writes"


def test_per_layer_numbers_and_windows(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "gemma9")
    writer.add_block_count(3)
    writer.add_embedding_length(96)
    writer.add_head_count([2, 4, 2])
    writer.add_key_length(48)
    writer.add_value_length(32)
    writer.add_sliding_window(512)
    writer.add_expert_count(8)
    writer.add_uint16("split.count", 3)
    writer.add_tensor("a.weight", np.zeros((2, 32), np.float16))
    writer.add_tensor("b.weight", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = GgufFile(tmp_path / "odd.gguf").facts
    assert (facts.head_size, facts.window, facts.experts, facts.parts, facts.weights) == (16, 512, 8, 3, "f16")
    assert facts.vocab == 0, "it has no vocabulary"


def test_another_file_has_another_fingerprint(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(data)
    assert GgufFile(other).facts.fingerprint != GgufFile(path).facts.fingerprint


def test_a_file_cut_anywhere_is_refused_or_read(path: Path, tmp_path: Path) -> None:
    data, broken = path.read_bytes(), tmp_path / "broken.gguf"
    refused = 0
    for length in [*range(0, 400, 7), *range(400, 8000, 401)]:
        broken.write_bytes(data[:length])
        try:
            GgufFile(broken)
        except GgufError:
            refused += 1
    assert refused > 50


def test_garbage_is_refused_with_a_sentence(path: Path, tmp_path: Path) -> None:
    data, random, broken = path.read_bytes()[:20_000], stream(0, "garbage"), tmp_path / "broken.gguf"
    for _ in range(300):
        bad = bytearray(data)
        for position in random.integers(4, 2000, 20):
            bad[position] = int(random.integers(256))
        broken.write_bytes(bad)
        told = ""
        try:
            layers = GgufFile(broken).facts.layers
        except GgufError as error:
            told, layers = str(error), 0
        assert layers > 0 or len(told) > 10
