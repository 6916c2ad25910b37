"""Model files: written once, whole, the same everywhere; and converted into other weights types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile
from autoscout.backends.llamacpp.model import (
    RANDOM_MODELS,
    TARGETS,
    cache_folder,
    convert,
    ensure_model,
    model_facts,
    model_path,
    vocabulary,
    weights_types,
)
from autoscout.backends.llamacpp.prepare import main as prepare
from autoscout.common.cache import made_once

gguf = pytest.importorskip("gguf", reason="needs the extra llamacpp")


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    one, other = (ensure_model("random-tiny", "q8_0", tmp_path / name) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()
    assert one.name == other.name, "the name tells the content"


def test_a_file_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = ensure_model("random-tiny", "q8_0", tmp_path)
    before = path.stat()
    assert ensure_model("random-tiny", "q8_0", tmp_path) == path
    assert path.stat() == before


def test_several_processes_make_one_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoscout.backends.llamacpp.prepare", "random-tiny", "q4_0", str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = {run.communicate(timeout=120)[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0] * 4
    (path,) = told
    assert GgufFile(path).facts.weights == "q4_0"
    assert [file.name for file in tmp_path.iterdir() if not file.name.endswith(".lock")] == [Path(path).name], "nothing half-made stays"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        made_once(tmp_path / "model.gguf", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".model.gguf.lock"]
    made_once(tmp_path / "model.gguf", lambda partial: partial.write_text("whole") and None)
    assert (tmp_path / "model.gguf").read_text() == "whole"


def test_weights_follow_the_same_random_numbers(tmp_path: Path) -> None:
    exact, rough = (gguf.GGUFReader(ensure_model("random-tiny", kind, tmp_path)) for kind in ("f16", "q4_0"))
    for one, other in zip(exact.tensors, rough.tensors, strict=True):
        values = [gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in (one, other)]
        assert np.abs(values[0] - values[1]).max() < 0.2 * max(1e-6, np.abs(values[0]).max())


def test_conversion_keeps_everything_else(tmp_path: Path) -> None:
    source = ensure_model("random-tiny", "f16", tmp_path)
    for weights in TARGETS[1:]:
        made = ensure_model(str(source), weights, tmp_path)
        before, after = gguf.GGUFReader(source), gguf.GGUFReader(made)
        assert GgufFile(made).facts.weights == weights
        assert [tensor.name for tensor in before.tensors] == [tensor.name for tensor in after.tensors]
        for one, other in zip(before.tensors, after.tensors, strict=True):
            if "norm" in one.name:
                assert other.tensor_type == one.tensor_type
                assert (other.data == one.data).all()
            else:
                assert other.tensor_type.name == weights.upper()
        ignored = {"general.file_type"}
        for name in {field for field in before.fields if not field.startswith("GGUF.")} - ignored:
            assert after.fields[name].contents() == before.fields[name].contents(), name


def test_converting_twice_the_same_way(tmp_path: Path) -> None:
    source = ensure_model("random-tiny", "f16", tmp_path)
    converted = ensure_model(str(source), "q4_0", tmp_path)
    direct = ensure_model("random-tiny", "q4_0", tmp_path)
    different = np.mean(np.frombuffer(converted.read_bytes()[-50_000:], np.uint8) != np.frombuffer(direct.read_bytes()[-50_000:], np.uint8))
    assert different < 0.05, "from f16 or from the exact numbers: rounding apart, the same weights"


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    quantised = ensure_model("random-tiny", "q8_0", tmp_path)
    with pytest.raises(GgufError, match="q8_0 already"):
        convert(quantised, "q4_0", tmp_path / "out.gguf")
    assert weights_types(model_facts(str(quantised)), str(quantised)) == ("q8_0",)
    exact = ensure_model("random-tiny", "f16", tmp_path)
    assert weights_types(model_facts(str(exact)), str(exact)) == ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
    assert weights_types(RANDOM_MODELS["random"].facts, "random")[0] == "q8_0"


def test_a_users_file_is_used_as_it_is(tmp_path: Path) -> None:
    source = ensure_model("random-tiny", "f16", tmp_path)
    assert ensure_model(str(source), "f16", tmp_path / "cache") == source
    assert not (tmp_path / "cache").exists()
    assert model_path(str(source), model_facts(str(source)), "q8_0", tmp_path / "cache").parent == tmp_path / "cache"


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOSCOUT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "autoscout" / "llamacpp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "autoscout" / "llamacpp"
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "llamacpp"
    assert cache_folder(str(tmp_path / "given")) == tmp_path / "given"


def test_vocabularies_have_no_doubles() -> None:
    for model in RANDOM_MODELS.values():
        tokens = vocabulary(model.words)
        assert len(set(tokens)) == len(tokens) == model.words


def test_prepare_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare([]) == 2
    assert "usage" in capsys.readouterr().err
    assert prepare([str(tmp_path / "none.gguf"), "q8_0", str(tmp_path)]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert prepare(["random-tiny", "q8_0", str(tmp_path / "file" / "below")]) == 1
    assert "could not be prepared" in capsys.readouterr().err
