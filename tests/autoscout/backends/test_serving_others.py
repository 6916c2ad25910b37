"""Other programs that produce load: their command lines, and their results under our names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from serving_trials import plan, run

from autoscout.core.errors import ConfigError
from autoscout.core.trial import Status
from autoscout.load.others import PROGRAMS, Unreadable, command, read

DETAILED = {
    "duration": 2.0,
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.03], [0.02, 0.02], []],
    "input_lens": [10, 20, 30],
    "output_lens": [3, 3, 0],
    "errors": ["", "", "Bad Request"],
}
DISTRIBUTION = {"mean": 20.0, "median": 19.0, "total_sum": 60.0, "percentiles": {"p50": 19.0, "p90": 30.0, "p95": 35.0, "p99": 40.0}}
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "request_totals": {"successful": 3, "errored": 0, "incomplete": 0, "total": 3},
                **{
                    name: {"successful": DISTRIBUTION}
                    for name in (
                        "requests_per_second",
                        "request_latency",
                        "prompt_token_count",
                        "output_token_count",
                        "time_to_first_token_ms",
                        "inter_token_latency_ms",
                        "output_tokens_per_second",
                        "tokens_per_second",
                    )
                },
            }
        }
    ]
}
TOLD = {"unit": "ms", "avg": 20.0, "p50": 19.0, "p90": 30.0, "p95": 35.0, "p99": 40.0}
AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 1.5},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 3.0},
    "request_count": {"unit": "requests", "avg": 3.0},
    "total_osl": {"unit": "tokens", "avg": 6.0},
    "total_isl": {"unit": "tokens", "avg": 30.0},
    "time_to_first_token": TOLD,
    "inter_token_latency": TOLD,
    "inter_chunk_latency": TOLD,
    "request_latency": TOLD,
}
GOLDEN = Path(__file__).parents[2] / "golden" / "clients"
RESULTS: dict[str, Any] = {"vllm": DETAILED, "sglang": DETAILED, "guidellm": GUIDELLM, "aiperf": AIPERF}


def with_client(client: str, **load: Any) -> Any:
    return plan(load={"client": client, **load}, goal={"kind": "latency", "slo": ["p95_ttft_ms<=150"]}, tokenizer="folder")


@pytest.mark.parametrize("client", PROGRAMS)
def test_results_have_our_names(tmp_path: Path, client: str) -> None:
    path = tmp_path / PROGRAMS[client].output
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(RESULTS[client]) + "\n")
    found = read(with_client(client), tmp_path)
    assert {"output_throughput", "request_throughput", "completed", "failed", "input_tokens", "output_tokens"} <= found.keys()
    assert {f"{name}_{latency}_ms" for name in ("mean", "median", "p99") for latency in ("ttft", "tpot", "e2el")} <= found.keys()


@pytest.mark.parametrize("client", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_what_the_programs_themselves_wrote(tmp_path: Path, client: str) -> None:
    """Of 24 requests of 32 tokens with answers of 8, shortened to what is read; see test_serving_clients_real.py."""
    path = tmp_path / PROGRAMS[client].output
    path.parent.mkdir(exist_ok=True)
    path.write_text((GOLDEN / f"{client}.json").read_text())
    found = read(with_client(client), tmp_path)
    assert (found["completed"], found["failed"], found["output_tokens"]) == (24, 0, 24 * 8)
    assert found["input_tokens"] == pytest.approx(24 * 32, rel=0.1)
    assert found["output_throughput"] == pytest.approx(8 * found["request_throughput"], rel=0.1)
    assert 0 < found["median_ttft_ms"] <= found["p95_ttft_ms"] <= found["p99_ttft_ms"] <= found["p99_e2el_ms"]


@pytest.mark.parametrize("client", ["vllm", "sglang"])
def test_our_metrics_are_those_that_the_program_computed_itself(tmp_path: Path, client: str) -> None:
    text = (GOLDEN / f"{client}.json").read_text()
    (tmp_path / PROGRAMS[client].output).write_text(text)
    found, told = read(with_client(client), tmp_path), json.loads(text)
    same = [f"{name}_{latency}_ms" for name in ("mean", "median", "p99") for latency in ("ttft", "tpot", "itl")]
    for name in ("output_throughput", "request_throughput", *same):
        assert found[name] == pytest.approx(told[name], rel=0.05), name


def test_every_request_counts_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / PROGRAMS["vllm"].output).write_text(json.dumps(DETAILED))
    found = read(with_client("vllm"), tmp_path)
    assert found["completed"] == 2
    assert found["failed"] == 1
    assert found["output_throughput"] == 3
    assert found["goodput"] == 0.5
    assert found["mean_tpot_ms"] == pytest.approx(20)


def test_the_last_line_of_a_file_that_is_appended_to(tmp_path: Path) -> None:
    older = {**DETAILED, "duration": 100.0}
    (tmp_path / PROGRAMS["sglang"].output).write_text(f"{json.dumps(older)}\n{json.dumps(DETAILED)}\n")
    assert read(with_client("sglang"), tmp_path)["output_throughput"] == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"benchmarks": []}'])
@pytest.mark.parametrize("client", PROGRAMS)
def test_a_result_that_cannot_be_read(tmp_path: Path, client: str, text: str) -> None:
    path = tmp_path / PROGRAMS[client].output
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(Unreadable, match=client):
        read(with_client(client), tmp_path)


def test_command_lines_say_what_the_load_is() -> None:
    shape = {"input_tokens": 100, "input_spread": 50, "output_tokens": 20, "output_spread": 5}
    words = command(with_client("vllm", **shape), 8000, 40)
    assert words[:3] == ["vllm", "bench", "serve"]
    assert words[words.index("--random-range-ratio") + 1] == '{"input": 0.5, "output": 0.25}'
    assert words[words.index("--max-concurrency") + 1] == "4"
    assert "--request-rate" not in words
    rate = {"request_rate": 3.0, "arrival": "burst", "burstiness": 0.5, "concurrency": 0}
    words = command(with_client("vllm", **rate), 8000, 40)
    assert words[words.index("--burstiness") + 1] == "0.5"
    assert "--max-concurrency" not in words
    words = command(with_client("sglang", **shape), 8000, 40)
    assert words[words.index("--random-input-len") + 1] == "150"  # its lengths lie between a share of the longest and the longest
    assert float(words[words.index("--random-range-ratio") + 1]) == pytest.approx(50 / 150)
    words = command(with_client("guidellm", **shape, **rate), 8000, 40)
    assert words[words.index("--profile") + 1] == "kind=poisson,rate=3.0"
    assert "prompt_tokens_min=50,prompt_tokens_max=150" in words[words.index("--data") + 1]
    words = command(with_client("aiperf", **shape, **rate), 8000, 40)
    assert words[words.index("--arrival-pattern") + 1] == "gamma"
    assert words[words.index("--arrival-smoothness") + 1] == "0.5"


def test_the_capacity_is_found_by_the_built_in_client_only() -> None:
    with pytest.raises(ConfigError, match="built-in client only"):
        plan(load={"client": "vllm"}, goal={"kind": "capacity", "slo": ["p95_ttft_ms<=150"]})


def test_a_trial_with_another_client(tmp_path: Path) -> None:
    program = tmp_path / "bench.py"
    good = {**DETAILED, "errors": ["", "", ""], "output_lens": [3, 3, 1]}
    program.write_text(f"import json, pathlib\npathlib.Path('vllm-bench.json').write_text(json.dumps({good!r}))\n")
    given = {"client": "vllm", "client_command": [sys.executable, str(program)]}
    found, _ = run(plan(load=given), tmp_path)
    assert found.status is Status.OK, found.reason
    assert found.metrics["completed"] == 3


def test_a_client_that_fails(tmp_path: Path) -> None:
    given = {"client": "vllm", "client_command": [sys.executable, "-c", "raise SystemExit('no such dataset')"]}
    found, _ = run(plan(load=given), tmp_path)
    assert found.status is Status.CRASHED
    assert "no such dataset" in found.reason


@pytest.mark.parametrize("client", PROGRAMS)
def test_the_tokenizer_that_is_named_makes_the_prompts(client: str) -> None:
    """A GGUF file has none that these programs read: without a name AIPerf ended before its first request."""
    asked = plan(load={"client": client, "client_tokenizer": "/my/tokenizer"}, goal={"kind": "latency"})
    words = " ".join(command(asked, 8000, 10))
    assert "/my/tokenizer" in words
    assert ("--tokenizer builtin" in " ".join(command(plan(load={"client": client}), 8000, 10))) == (client == "aiperf")
