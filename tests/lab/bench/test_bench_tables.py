from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from bench_tables import rows, square, write_folder

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.journal import encode
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout_lab.bench import find_tables, load_table

SHARED = Path(__file__).parents[4] / "shared" / "tables"


def test_a_manifest_folder(tmp_path: Path) -> None:
    (source,) = find_tables(str(write_folder(tmp_path / "tables")))
    found = load_table(source)
    assert (found.name, len(found), found.failures, found.unit) == ("toy", 12, 1, "s")
    assert found.space.check(found.configs[0]) == []
    row = found.row(Config(x=2, kind="b", extra=5))
    assert row is not None
    assert found.values[row] == 10.0
    assert found.row(Config(x=8, kind="a")) is not None, "an inactive knob is left out, whatever the file holds"
    assert found.optimum == 1.0


def test_the_direction_turns_the_losses(tmp_path: Path) -> None:
    (source,) = find_tables(str(write_folder(tmp_path / "tables", objective="max")))
    found = load_table(source)
    assert found.optimum == -15.0
    assert found.measurement(found.row(Config(x=1, kind="b", extra=5)) or 0).metrics == {"value": 15.0}


def test_faults_of_rows_are_told_together(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tables")
    text = (folder / "toy.csv").read_text().replace("4,a", "5,a").replace("8,a", "9,a")
    (folder / "toy.csv").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_table(find_tables(str(folder))[0])
    assert len(caught.value.faults) == 2
    assert "row 6.x" in str(caught.value)
    assert {fault.where for fault in caught.value.faults} == {str(folder / "toy.csv")}


def test_a_file_without_rows_says_so(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tables")
    (folder / "toy.csv").write_text((folder / "toy.csv").read_text().splitlines()[0] + "\n")
    with pytest.raises(ConfigError, match=r"toy\.csv: holds no rows"):
        load_table(find_tables(str(folder))[0])


def test_unknown_tables_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tables")
    with pytest.raises(ConfigError, match="toy"):
        find_tables(str(folder), ["other"])
    with pytest.raises(ConfigError, match="no tables"):
        find_tables(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("zipped", [False, True])
def test_kernel_tuner_results(tmp_path: Path, zipped: bool) -> None:
    results = [
        {
            "configuration": {"block": block, "unroll": unroll},
            "invalidity": "compile" if block == 512 and unroll else "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 1e20 if block == 512 else 10.0 / block + unroll, "unit": "ms"}],
            "objectives": ["time"],
        }
        for block in (32, 64, 128, 512)
        for unroll in (0, 1)
    ]
    raw = json.dumps({"results": results, "schema_version": "1.0.0"}).encode()
    file = tmp_path / ("conv.json.gz" if zipped else "conv.json")
    file.write_bytes(gzip.compress(raw) if zipped else raw)
    (source,) = find_tables(str(file))
    found = load_table(source)
    assert (source.name, len(found), found.failures, found.unit) == ("conv", 8, 2, "ms")
    assert {found.statuses[row] for row in range(8)} == {Status.OK, Status.INVALID, Status.CRASHED}
    assert found.space.knobs["block"].ordered
    assert found.optimum == pytest.approx(10.0 / 128)


def test_rates_are_maximised(tmp_path: Path) -> None:
    results = [
        {"configuration": {"b": b}, "invalidity": "correct", "measurements": [{"name": "GFLOP/s", "value": b}], "objectives": ["GFLOP/s"]}
        for b in (1.0, 2.0, 3.0)
    ]
    (tmp_path / "rate.json").write_text(json.dumps({"results": results}))
    assert load_table(find_tables(str(tmp_path))[0]).optimum == -3.0


def test_a_past_study(tmp_path: Path) -> None:
    trials = []
    for number, (x, kind, extra, value) in enumerate(rows()):
        config = Config({"x": x, "kind": kind, **({"extra": extra} if kind == "b" else {})})
        status = Status.OOM_RUN if value is None else Status.OK
        measurement = Measurement(status=status, metrics={} if value is None else {"time_s": value})
        trials.append(Trial(proposal=Proposal(config=config), measurement=measurement, study="s", number=number, batch=number))
    trials.append(
        Trial(proposal=Proposal(config=trials[0].config, repeat=1), measurement=trials[0].measurement, study="s", number=99, batch=99)
    )
    (tmp_path / "trials.jsonl").write_text("".join(encode(trial) + "\n" for trial in trials))
    found = load_table(find_tables(str(tmp_path))[0])
    assert len(found) == 12
    assert found.space.knobs["extra"].when == "kind in ['b']"
    assert Status.OOM_RUN in found.statuses
    assert found.measurement(found.row(Config(x=4, kind="a")) or 0).metrics == {"value": 4.0}


def test_the_rows_are_the_space() -> None:
    holed = square(hole=True)
    assert set(holed.space.enumerate()) == set(holed.configs)
    assert holed.space.check(Config(x=2, y=3, c="q"))


def test_a_manifest_may_say_the_default(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tables")
    entries = json.loads((folder / "manifest.json").read_text())
    assert load_table(find_tables(str(folder))[0]).space.default() == Config(x=2, kind="a")
    entries["toy"]["params"][0]["default"] = 4
    entries["toy"]["params"][1]["default"] = "b"
    other = write_folder(tmp_path / "others")
    (other / "manifest.json").write_text(json.dumps(entries))
    assert load_table(find_tables(str(other))[0]).space.default() == Config(x=4, kind="b", extra=0)


def test_regret_runs_from_optimum_to_median() -> None:
    found = square()
    assert found.regret(found.optimum) == 0.0
    assert found.regret(found.middle) == 1.0
    assert found.regret(found.middle * 10) == 1.0
    assert 0 < found.regret(found.optimum + 1) < 1


@pytest.mark.external
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not here")
def test_the_shared_tables_are_what_their_manifest_says() -> None:
    pytest.importorskip("pyarrow")
    manifest = json.loads((SHARED / "manifest.json").read_text())
    for source in find_tables(str(SHARED)):
        found = load_table(source)
        assert (len(found), found.failures) == (manifest[source.name]["rows"], manifest[source.name]["failures"])
        assert found.space.check(found.configs[-1]) == []


@pytest.mark.parametrize(
    "result",
    [3, {}, {"configuration": {"x": [1]}}, {"configuration": {}, "measurements": [3]}, {"configuration": {}, "objectives": [[1]]}],
)
def test_t4_results_with_holes(tmp_path: Path, result: object) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"results": [{"configuration": {"x": 1}, "measurements": [{"name": "time", "value": 1}]}, result]}))
    with pytest.raises(ConfigError, match=r"results\[1\]"):
        load_table(find_tables(str(path))[0])


def test_a_manifest_with_holes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tables")
    for text in ("[]", '{"toy": 3}', '{"toy": {"params": [{"name": "x"}]}}'):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(ConfigError, match=r"manifest\.json"):
            find_tables(str(folder))
