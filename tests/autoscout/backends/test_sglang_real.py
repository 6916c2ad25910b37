"""Real SGLang on the CPU, with a tiny model of random weights: a study that begins with the user's script. See `make test-sglang`.

Scheduler, cache, flags, counters and HTTP are SGLang's own. The kernels are torch's (`scripts/setup-sglang` says why), so only limits of
scheduling and batching are tuned here, and nothing is said about speed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from real_engines import SGLANG_PYTHON, START_S, alive, run, tiny_model, trials_of

pytestmark = pytest.mark.engines
KERNELS = {"attention_backend": "torch_native", "mem_fraction_static": 0.05, "disable_overlap_schedule": True, "tokenizer_worker_num": 1}
"""What this environment needs, or has no choice of."""
SCRIPT = """\
#!/bin/sh
export SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 HF_TOKEN=hf_hunter2hunter2
LIMITS="--max-running-requests 4"
exec python3 -m sglang.launch_server --model-path MODEL --device cpu --dtype float32 --attention-backend torch_native \\
  --sampling-backend pytorch --grammar-backend none --disable-overlap-schedule --mem-fraction-static 0.05 --skip-server-warmup \\
  $LIMITS --host 0.0.0.0 --port 30000 2>&1 | tee server.log
"""


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    """A campaign that begins with a script."""
    if not SGLANG_PYTHON.exists():
        pytest.skip("no SGLang: `make test-sglang` installs it, or name its Python in AUTOSCOUT_SGLANG_PYTHON")
    model = tiny_model(tmp_path / "tiny", tokenizer=True)
    (tmp_path / "serve.sh").write_text(SCRIPT.replace("MODEL", str(model)))
    command = [str(SGLANG_PYTHON), "-m", "sglang.launch_server"]
    load = {"input_tokens": 64, "output_tokens": 16, "concurrency": 8, "requests": 24}
    return {
        "system": "sglang",
        "name": "real",
        "from": "serve.sh",
        "workload": {"engine_command": command, "engine_version": "0.5.23", "start_limit_s": START_S, **load},
        "hardware": {"gpus": 0, "cores": 2},
        "set": KERNELS,
        "measure": {"dirty_repeats": 0},
        "budget": {"trials": 3},
        "finals": {"rounds": 0},
    }


def test_a_study_that_begins_with_a_script(tmp_path: Path, study: dict[str, Any]) -> None:
    study["first"] = [{"max_running_requests": 1, "schedule_policy": "lpm"}]
    (tmp_path / "campaign.yaml").write_text(yaml.safe_dump(study))
    done = run(tmp_path, "tune", "campaign.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    trials = trials_of(tmp_path, "real")
    assert [trial["config"]["max_running_requests"] for trial in trials] == [2048, 4, 1], "the default, the script, the one named"
    for trial in trials[:2]:
        assert trial["status"] == "ok", trial["reason"]
        assert trial["metrics"]["completed"] == study["workload"]["requests"]
    assert trials[2]["status"] in ("ok", "bounded"), "it is stopped where it can no longer win"
    assert all(trial["metrics"]["output_throughput"] > 0 for trial in trials)
    home = tmp_path / "autoscout_results" / "real"
    assert "sglang.launch_server" in (home / "best" / "run.sh").read_text()
    assert yaml.safe_load((home / "best" / "config.yaml").read_text())["device"] == "cpu"
    written = "".join(path.read_text(errors="replace") for path in home.rglob("*") if path.is_file())
    assert "hunter2" not in written, "secrets are kept nowhere"
    assert not alive(str(tmp_path / "tiny"))
