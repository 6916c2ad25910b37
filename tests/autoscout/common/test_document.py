"""YAML, JSON and CSV that are broken, endless or far too large."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from autoscout.common import document
from autoscout.common.document import compose, from_plain, load, load_json, parse_json, read_rows
from autoscout.core.errors import ConfigError

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, r"doc:\d+: aliases may stand for at most 100,000 values"),
        ("a: &a [*a]", "must not contain itself"),
        ("a: &a {b: {c: *a}}", "must not contain itself"),
        ("a: " + "[" * 150 + "]" * 150, "nested at most 100 deep"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deep"),
        ("a: [1", "not valid YAML"),
        (r'b: 1\na: {"\ud800": 2}'.replace(r"\n", "\n"), "doc:2: half of a character can be written into no file"),
    ],
)
def test_documents_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compose(text, "doc")


@pytest.mark.parametrize("value", ["!!bool x", "!!timestamp x", "!!int x", "!!binary é", "1" + "0" * 400, "!!omap [a]", "{? [a] : b}"])
def test_values_that_are_not_what_their_tag_says(value: str) -> None:
    with pytest.raises(ConfigError, match="doc:1: cannot be read"):
        _ = compose(f"a: {value}", "doc").value


def test_honest_aliases_are_followed() -> None:
    assert compose("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n", "doc").value["b"] == [{"x": 1}, {"x": 1}]


def test_a_character_in_two_escapes_as_json_writes_it() -> None:
    assert compose(json.dumps({"a": "\U0001f600"}), "doc").value == {"a": "\U0001f600"}


def test_plain_values_that_contain_themselves() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="must not contain itself"):
        from_plain({"a": endless}, "given")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "9" * 5000, "9" * 400])
def test_json_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"here(:1)?: not valid JSON"):
        parse_json(text, "here")


def test_json_that_is_nested_too_deep() -> None:
    assert parse_json("[" * 100 + "]" * 100, "here")
    with pytest.raises(ConfigError, match="nested at most 100 deep"):
        parse_json("[" * 102 + "]" * 102, "here")


def test_a_packed_file_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**21))
    with pytest.raises(ConfigError, match="a document has at most 1 MiB"):
        load_json(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigError, match=r"bomb\.json\.gz: cannot be read"):
        load_json(path)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    for read in (load, load_json, read_rows):
        with pytest.raises(ConfigError, match="is not UTF-8 text"):
            read(tmp_path / "x.yaml")


def test_a_cell_longer_than_any(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1," + "x" * 200_000 + "\n")
    with pytest.raises(ConfigError, match=r"x\.csv:\d: not valid CSV"):
        read_rows(tmp_path / "x.csv")
