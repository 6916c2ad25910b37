"""The program that measured the recorded tables, without a GPU: what it lists, and that it goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import record_gpu  # noqa: E402

RECORDED = ROOT / "benchmarks" / "tables"
MANIFEST = json.loads((RECORDED / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        *((name, 0) for name in MANIFEST if name.startswith("triton_matmul")),
        *((f"triton_{name}", 0) for name in ("attention", "decode", "convolution", "gated", "quantized", "columns")),
        ("triton_loss", 27),
        ("triton_stencil", 108),
        ("triton_scan", 120),
        ("torch_training", 160),
        ("torch_decoding", 48),
    ],
)
def test_a_recorded_table_holds_every_combination(name: str, refused: int) -> None:
    rows = [line.rpartition(",")[0] for line in (RECORDED / f"{name}.csv").read_text().splitlines()[1:]]
    assert len(rows) == len(set(rows)) == len(list(record_gpu._configs(MANIFEST[name]["params"]))) - refused


def test_every_table_that_can_be_measured_comes_with_the_package() -> None:
    assert set(MANIFEST) == set(record_gpu.NAMES)


@pytest.mark.parametrize("name", record_gpu.TORCH)
def test_started_again_it_measures_what_is_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = [
        {"name": "way", "values": ["plain", "split"]},
        {"name": "parts", "values": [2, 4], "when": {"way": ["split"]}},
        {"name": "warps", "values": [4, 8]},
    ]
    asked: list[int] = []

    def two(table: str, configs: list[dict[str, Any]], seconds: float) -> Iterator[tuple[dict[str, Any], float | None, str]]:
        assert table == name
        asked.append(len(configs))
        yield from ((config, None if config["warps"] == 8 else 0.5, "") for config in configs[:2])

    complete: list[bool] = []
    monkeypatch.setattr(record_gpu, "_described", lambda name: (params, bool))
    monkeypatch.setattr(record_gpu, "_describe", lambda *_, complete: seen(complete))
    monkeypatch.setattr(record_gpu, "_steps", two)
    seen = complete.append
    for _ in range(4):
        record_gpu._record(name, tmp_path, 1.0, 1)
    assert asked == [6, 4, 2, 0]
    assert complete == [False, False, True, True]
    lines = (tmp_path / f"{name}.csv").read_text().splitlines()
    assert lines[0] == "way,parts,warps,value"
    assert len(set(lines)) == 7
    assert {line.endswith(",") for line in lines if ",8," in line} == {True}, "a failure is an empty value"
