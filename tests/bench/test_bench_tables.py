from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from bench_tables import rows, square, write_folder

from autoscout.bench import find_tables, load_table
from autoscout.bench.synthetic import MEMORY_GB, SPACES, memory_gb, step_s, table
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.journal import encode
from autoscout.core.seeds import stream
from autoscout.core.trial import Measurement, Proposal, Status, Trial

SHARED = Path(__file__).parents[3] / "shared" / "tables"


def test_a_manifest_folder(tmp_path: Path) -> None:
    (source,) = find_tables(str(write_folder(tmp_path / "tables")))
    found = load_table(source)
    assert (found.name, len(found), found.failures, found.unit, found.complete) == ("toy", 12, 1, "s", True)
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


def test_the_nearest_row() -> None:
    holed = square(hole=True)
    rng = stream(0, "test")
    assert holed.nearest(Config(x=2, y=2, c="q"), rng) == holed.row(Config(x=2, y=2, c="q"))
    wanted = Config(x=2, y=3, c="q")
    near = {holed.configs[holed.nearest(wanted, rng)] for _ in range(60)}
    assert near == {Config(x=x, y=y, c="q") for x, y in ((1, 3), (3, 3), (2, 2), (2, 4))}, (
        "ties at random, and a step is less than a category"
    )
    free = np.zeros(len(holed), dtype=np.bool_)
    free[5] = True
    assert holed.nearest(wanted, rng, free) == 5


def test_regret_runs_from_optimum_to_median() -> None:
    found = square()
    assert found.regret(found.optimum) == 0.0
    assert found.regret(found.middle) == 1.0
    assert found.regret(found.middle * 10) == 1.0
    assert 0 < found.regret(found.optimum + 1) < 1


@pytest.mark.parametrize("name", ["megatron-3dp", "megatron-5dp"])
def test_synthetic_tables_are_whole_spaces(name: str) -> None:
    found = table(name)
    assert set(found.space.knobs) == set(SPACES[name])
    assert len(found) == found.space.count().value
    assert 0 < found.failures < len(found)
    assert found.task.workload["synthetic"] is True
    default = found.row(found.space.default())
    assert default is not None
    assert 1.2 * found.optimum < found.losses[default] < 4 * found.optimum, "the default works, and leaves something to find"


def test_the_synthetic_model_has_the_trade_offs_of_the_real_thing() -> None:
    base = Config(tp=2, pp=2, dp=4, cp=1, ep=4, sp=False, mbs=1, ar=False, tp_comm=14, ddp=4, ddp_bucket=4)
    recomputed = base.extend(ar=True)
    assert memory_gb(recomputed) < memory_gb(base) < memory_gb(base.extend(mbs=4))
    assert step_s(recomputed) > step_s(base)
    assert memory_gb(base.extend(sp=True)) < memory_gb(base)
    buckets = [step_s(base.extend(ddp=count)) for count in (1, 4, 16)]
    assert buckets[1] < min(buckets[0], buckets[2]), "neither one bucket nor very many"
    assert MEMORY_GB == 80.0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not here")
def test_the_shared_tables_are_what_their_manifest_says() -> None:
    pytest.importorskip("pyarrow")
    manifest = json.loads((SHARED / "manifest.json").read_text())
    for source in find_tables(str(SHARED)):
        found = load_table(source)
        assert (len(found), found.failures) == (manifest[source.name]["rows"], manifest[source.name]["failures"])
        assert found.space.check(found.configs[-1]) == []


def test_recorded_tables_come_with_the_package() -> None:
    found = {source.name: load_table(source) for source in find_tables("recorded")}
    assert len(found) == 16
    for name, one in found.items():
        assert one.complete, name
        assert one.row(one.space.default()) is not None, name
        assert one.optimum < one.middle, name
    assert found["triton_matmul"].failures == 90, "out of shared memory"
    assert found["torch_training"].failures == 54, "out of memory"
    assert found["torch_decoding"].failures == 148, "out of memory"
    sizes = [one for one in found.values() if one.family == "triton_matmul"]
    assert sorted(one.task.workload["m"] for one in sizes) == [128, 512, 512, 2048]
    assert len({one.space.fingerprint() for one in sizes}) == 1
    assert len({one.configs[int(np.nanargmin(one.losses))] for one in sizes}) > 1, "what is best depends on the size"
    assert [source.name for source in find_tables("recorded:triton_norm")] == ["triton_norm"]
    with pytest.raises(ConfigError, match=r"there are: .*triton_matmul"):
        find_tables("recorded:nothing")
