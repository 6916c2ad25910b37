"""The tables that the benchmarks bring along: recorded on a GPU, and synthetic."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks.synthetic import MEMORY_GB, SPACES, memory_gb, space, step_s, write  # noqa: E402

from autoscout.core.config import Config  # noqa: E402
from autoscout_lab.bench import Table, find_tables, load_table  # noqa: E402


def test_recorded_tables() -> None:
    found = {source.name: load_table(source) for source in find_tables(str(ROOT / "benchmarks" / "tables"))}
    assert len(found) == 16
    for name, one in found.items():
        assert one.row(one.space.default()) is not None, name
        assert one.optimum < one.middle, name
    assert found["triton_matmul"].failures == 90, "out of shared memory"
    assert found["torch_training"].failures == 54, "out of memory"
    assert found["torch_decoding"].failures == 148, "out of memory"
    sizes = [one for one in found.values() if one.family == "triton_matmul"]
    assert sorted(one.task.workload["m"] for one in sizes) == [128, 512, 512, 2048]
    assert len({one.space.fingerprint() for one in sizes}) == 1
    assert len({one.configs[int(np.nanargmin(one.losses))] for one in sizes}) > 1, "what is best depends on the size"


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = write(tmp_path_factory.mktemp("tables") / "synthetic")
    return {source.name: load_table(source) for source in find_tables(str(folder)) if source.name != "megatron-full"}


def test_synthetic_tables_are_whole_spaces(synthetic: dict[str, Table]) -> None:
    assert synthetic.keys() < SPACES.keys()
    for name, found in synthetic.items():
        assert set(found.space.knobs) == set(SPACES[name])
        assert set(found.configs) == set(space(name).enumerate()), "conditions are read back as they were"
        assert 0 < found.failures < len(found)
        assert found.task.workload["synthetic"] is True
        default = found.row(space(name).default())
        assert default == found.row(found.space.default()), "the manifest gives the default"
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
