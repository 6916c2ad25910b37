"""Tables of flags, what people know about them, and the choice of a table."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscout.backends.sglang.backend import SGLANG
from autoscout.backends.vllm.backend import VLLM
from autoscout.core.log import NOTICES
from autoscout.engines.engine import missing_flags, unknown_to
from autoscout.engines.table import nearest, numbers, table, table_for, versions
from autoscout.space import Constraint

ROOT = Path(__file__).parents[3]
ENGINES = ("vllm", "sglang")
TABLES = [(engine, version) for engine in ENGINES for version in versions(engine)]


@pytest.mark.parametrize(("engine", "version"), TABLES)
def test_knobs_fit_the_flags(engine: str, version: str) -> None:
    found = table(engine, version)
    assert found.version == version
    for row in found.knobs.values():
        if row.env:
            continue
        flag = found.flags[row.setting]
        assert row.trades, f"{row.name} says what it trades"
        assert 0.0 < row.matters <= 1.0
        assert not (row.grid and row.values)
        if not row.grid and not row.values:
            assert flag.type in ("bool", "switch"), f"{row.name} is on or off, its flag is {flag.type}"
        if flag.type == "switch":
            assert flag.default is False, f"{row.name}: a switch that is on cannot be switched off"
        if flag.type == "choice" and not row.key:
            assert {value for value in row.values if value != row.left_out} <= set(flag.choices)
        if row.key:
            assert flag.type == "json"
            assert row.left_out is not None or row.always or row.default is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_every_knob_is_a_flag_of_some_version(engine: str) -> None:
    import yaml

    listed = yaml.safe_load((ROOT / "src" / "autoscout" / "backends" / engine / "knobs.yaml").read_text())
    offered = {name for version in versions(engine) for name in table(engine, version).knobs}
    assert set(listed["knobs"]) == offered
    for entry in listed["constraints"]:
        assert entry["why"]
        assert Constraint(entry["rule"]).names()


def test_the_nearest_table_is_not_newer() -> None:
    assert versions("vllm")[0] == "0.24.0"
    assert nearest("vllm", "0.24.0") == "0.24.0"
    assert nearest("vllm", "0.29.1") == "0.24.0"
    assert nearest("vllm", "0.32.0+cpu") == "0.32.0"
    assert nearest("vllm", "1.0") == versions("vllm")[-1]
    assert nearest("vllm", "0.9.2") == "0.24.0", "older than every table: the oldest"
    assert nearest("vllm", "") == versions("vllm")[-1]
    assert numbers("0.10.0") > numbers("0.9.2")


def test_flags_that_the_engine_does_not_know_are_not_offered() -> None:
    known = table("vllm", "0.24.0")
    told = "\n".join(row.flag for row in known.flags.values() if row.name not in ("async_scheduling", "compilation_config"))
    missing = unknown_to(told, known)
    assert missing == {"async_scheduling", "compilation_config"}
    left = table_for("vllm", "0.24.0", missing)
    assert "async_scheduling" not in left.knobs
    assert "cudagraph_mode" not in left.knobs, "its flag is compilation_config"
    assert "max_num_seqs" in left.knobs
    assert unknown_to("no flags at all", known) == frozenset(), "a help that says nothing proves nothing"


def test_an_unknown_version_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    flags = " ".join(row.flag for row in table("vllm", "0.24.0").flags.values() if row.name != "stream_interval")
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho '{flags}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        assert missing_flags(VLLM, "0.27.5", [str(program)]) == {"stream_interval"}
    assert (tmp_path / "asked").read_text().count("asked") == 1
    said = "no table of flags of vLLM 0.27.5: that of 0.24.0 is used, without stream_interval, which it does not know"
    assert (NOTICES, logging.WARNING, said) in caplog.record_tuples, "`autoscout` shows notices, not logs"
    assert missing_flags(VLLM, "0.24.0", [str(program)]) == frozenset(), "an exact table needs no question"
    assert missing_flags(SGLANG, "9.9", ["/no/such/program"]) == frozenset()


WHEELS = os.environ.get("AUTOSCOUT_WHEELS", "")


@pytest.mark.engines
@pytest.mark.parametrize(("engine", "version"), TABLES)
def test_tables_say_what_the_wheels_say(engine: str, version: str, tmp_path: Path) -> None:
    found = [path for path in Path(WHEELS or "/nowhere").glob("*.whl") if path.name.startswith(engine) and f"-{version}-" in path.name]
    if not found:
        pytest.skip(f"no wheel of {engine} {version}: `pip download --no-deps` it into a folder and name that in AUTOSCOUT_WHEELS")
    subprocess.run(["unzip", "-q", str(found[0]), "*.py", "*/METADATA", "-d", str(tmp_path)], check=True)
    script = ROOT / "scripts" / "knob_tables.py"
    done = subprocess.run([sys.executable, str(script), engine, str(tmp_path), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
