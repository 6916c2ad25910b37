from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from autoscout.catalog.models import model
from autoscout.catalog.own_studies import LocalFit
from autoscout.cli.estimate import estimate
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError
from autoscout.estimate import search
from autoscout.estimate.layouts import Ground, layouts
from autoscout.estimate.pins import read_system, serving_pins, training_pins
from autoscout.report.breakdown import breakdown_svg

app = typer.Typer()
app.command()(estimate)
runner = CliRunner()


def test_layouts_use_all_gpus_and_divide_evenly() -> None:
    ground = Ground(shape=model("llama-3.1-8b"), gpus=16, node_gpus=8, sequence=8192, global_batch=64)
    found = list(layouts(ground, {}))
    assert found
    for layout in found:
        assert layout["tp"] * layout["pp"] * layout["cp"] * layout["dp"] == 16  # type: ignore[operator]
        assert 64 % (layout["dp"] * layout["mbs"]) == 0  # type: ignore[operator]
    assert all(layout["tp"] == 4 for layout in layouts(ground, {"tp": 4}))


def test_every_whole_split_of_a_pipeline_is_offered_embedding_and_loss_counted_where_they_can_be() -> None:
    ground = Ground(shape=model("llama-3.1-405b"), gpus=2048, node_gpus=8, sequence=8192, global_batch=2048, ends=2)
    parts = {int(str(one["vp"])) for one in layouts(ground, {"tp": 8, "pp": 16, "cp": 1, "mbs": 1, "ar": "none"})}
    assert parts == {1, 2, 4, 8}  # 126 + 2 over 16
    plain = replace(ground, ends=0)
    assert 16 in {one["pp"] for one in layouts(ground, {"tp": 8})}
    assert 16 not in {one["pp"] for one in layouts(plain, {"tp": 8})}
    assert {int(str(one["vp"])) for one in layouts(plain, {"tp": 8, "pp": 2, "cp": 1, "mbs": 1, "ar": "none"})} == {1, 3, 7, 9, 21, 63}


def test_deep_pipelines_are_recommended_only_where_nothing_else_fits() -> None:
    found = search.estimate("megatron", model="llama-3.1-405b", gpus="2048xH100", sequence=8192, global_batch=2048, top=50)
    assert all(int(str(one.config["pp"])) <= 16 for one in found.candidates)
    deep = search.estimate("megatron", model="megatron-1t", gpus="128xA100-40", sequence=2048, global_batch=128, top=50)
    assert any(int(str(one.config["pp"])) > 16 for one in deep.candidates)


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"tp": 3}, "must divide the model's 32 attention heads"),
        ({"pp": 5}, "must divide the model's 32 layers"),
        ({"ep": 2}, "the model has no experts"),
        ({"tp": 4, "pp": 4}, "must divide the 8 GPUs"),
        ({"mbs": 3}, "must divide the global batch of 128"),
    ],
)
def test_why_nothing_fits_is_said(pins: dict[str, Value], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        search.estimate("megatron", model="llama-3.1-8b", gpus="8xA100-80", sequence=4096, global_batch=128, pins=pins)


def test_near_names_of_gpus_are_suggested_and_limits_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'H100'"):
        search.estimate("megatron", model="llama-3.1-8b", gpus="8xH1000")
    for limit in ("p95_ttft_ms<=-5", "p95_ttft_ms<=0", "p95_ttft_ms>=5"):
        with pytest.raises(ConfigError, match="positive upper bound"):
            search.estimate("vllm", model="llama-3.1-8b", gpus="1xH100", limits=[limit])


def test_the_best_layouts_come_first_with_their_parts() -> None:
    found = search.estimate("megatron", model="llama-3.1-8b", gpus="8xA100-80", sequence=4096, global_batch=128)
    expected = [candidate.metrics["step_s"] / candidate.feasible for candidate in found.candidates]
    assert expected == sorted(expected), "a layout that may not fit is worth less"
    best = found.candidates[0]
    assert sum(best.parts.values()) == pytest.approx(best.metrics["step_s"])
    assert best.feasible >= 0.5
    assert found.made_from
    assert best.to_json()["fidelity"] == "simulated"


def test_faster_gpus_are_faster() -> None:
    times = [
        search.estimate("megatron", model="llama-3.1-8b", gpus=f"8x{gpu}", sequence=4096, global_batch=128).candidates[0].metrics["step_s"]
        for gpu in ("A100-80", "H100", "B200")
    ]
    assert times[0] > times[1] > times[2]


def test_impossible_pins_are_refused() -> None:
    with pytest.raises(ConfigError, match="no layout"):
        search.estimate("megatron", model="llama-3.1-8b", gpus="8xA100-80", sequence=4096, global_batch=128, pins={"tp": 3})


def test_serving_picks_layouts_that_hold_the_model() -> None:
    found = search.estimate("vllm", model="llama-3.1-70b", gpus="4xH100", input_tokens=512, output_tokens=128, concurrency=32)
    assert found.candidates[0].config["tensor_parallel_size"] in (2, 4)
    assert found.candidates[0].metrics["output_throughput"] > 100


def test_the_command_prints_breakdown_and_json() -> None:
    shown = runner.invoke(app, ["megatron", "--model", "llama-3.1-8b", "--gpus", "8xA100-80"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "simulated" in shown.output
    assert "matrix products" in shown.output
    assert "constants from" in shown.output
    told = runner.invoke(app, ["vllm", "--model", "qwen3-8b", "--gpus", "2xH100", "--json", "--top", "2"])
    answer = json.loads(told.output)
    assert [one["is_default"] for one in answer["candidates"]] == [False, False, True], "the engine's default is always a row"
    assert (answer["system"], answer["fidelity"], answer["compared"], answer["warnings"]) == ("vllm", "simulated", 13, [])
    assert answer["load"] == "prompts of 1024 tokens, answers of 256, 64 requests at once"


def test_the_command_predicts_for_a_gpu_one_does_not_own() -> None:
    args = ["megatron", "--model", "llama-3.1-8b", "--gpus", "8xA40", "--json", "--top", "1"]
    mine, theirs = runner.invoke(app, args), runner.invoke(app, [*args, "--gpu", "B200"])
    assert (
        json.loads(mine.output)["candidates"][0]["metrics"]["step_s"]
        > 3 * (json.loads(theirs.output)["candidates"][0]["metrics"]["step_s"])
    )


def test_a_bad_pin_is_explained() -> None:
    result = runner.invoke(app, ["megatron", "--model", "llama-3.1-8b", "--gpus", "8xA100-80", "--set", "tp"])
    assert isinstance(result.exception, ConfigError)
    assert "NAME=VALUE" in str(result.exception)


def test_the_picture_has_a_part_for_every_share(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    args = ["megatron", "--model", "llama-3.1-8b", "--gpus", "8xA100-80", "--json", "--top", "1", "--picture", str(path)]
    parts = json.loads(runner.invoke(app, args).output)["candidates"][0]["parts_s"]
    root = ElementTree.fromstring(path.read_text())
    bars = [float(bar.get("width", "0")) for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.get("height") == "36.0"]
    assert sum(bars) == pytest.approx(720, abs=2)
    assert bars[0] == pytest.approx(720 * max(parts.values()) / sum(parts.values()), abs=0.1)
    assert "simulated" in path.read_text()


def test_names_cannot_break_the_picture() -> None:
    root = ElementTree.fromstring(breakdown_svg({"<a>&": 1.0, "b": 2.0}, 'x="<y>"'))
    text = " ".join(root.itertext())
    assert all(name in text for name in ("<a>&", "b", 'x="<y>"'))


def test_those_that_likely_fit_come_first_then_the_closest() -> None:
    found = search.estimate("megatron", model="qwen3-30b-a3b", gpus="16xA100-80+8xA40", sequence=4096, global_batch=240, top=10_000)
    assert 0 < found.fitting < found.compared == len(found.candidates)
    likely, others = found.candidates[: found.fitting], found.candidates[found.fitting :]
    assert all(candidate.feasible >= 0.5 for candidate in likely)
    expected = [candidate.metrics["step_s"] / candidate.feasible for candidate in likely]
    assert expected == sorted(expected)
    chances = [candidate.feasible for candidate in others]
    assert max(chances) < 0.5
    assert chances == sorted(chances, reverse=True)
    assert not found.warnings


def test_where_nothing_fits_the_closest_come_first_with_a_warning() -> None:
    found = search.estimate("megatron", model="qwen3-30b-a3b", gpus="4xA100-80+4xA40", sequence=4096, global_batch=256, top=10_000)
    assert found.fitting == 0
    chances = [candidate.feasible for candidate in found.candidates]
    assert chances[0] > chances[-1]
    assert chances == sorted(chances, reverse=True)
    hopeless = [sum(one.memory.values()) for one in found.candidates if one.feasible == chances[-1]]
    assert hopeless == sorted(hopeless)
    assert "nothing is predicted to fit" in found.warnings[0]
    serving = search.estimate("vllm", model="llama-3.1-405b", gpus="2xH100", input_tokens=512, output_tokens=128, concurrency=32)
    assert serving.warnings
    assert serving.candidates[0].config["tensor_parallel_size"] == 2


@pytest.mark.parametrize("rate", [0.5, 4.0, 16.0, 400.0])
def test_no_server_answers_more_than_it_is_asked(rate: float) -> None:
    found = search.estimate(
        "vllm",
        model="llama-3.1-8b",
        gpus="8xH100",
        input_tokens=1024,
        output_tokens=16,
        request_rate=rate,
        limits=["p95_ttft_ms<=5000"],
        top=99,
    )
    for candidate in found.candidates:
        assert 0 < candidate.metrics["request_goodput"] <= candidate.metrics["request_throughput"] <= rate * (1 + 1e-9)
        assert candidate.metrics["output_throughput"] <= rate * 16 * (1 + 1e-9)


def test_pins_are_known_by_all_their_names() -> None:
    found = search.estimate(
        "megatron", model="llama-3.1-8b", gpus="8xA100-80", sequence=4096, global_batch=128, pins={"tensor_model_parallel_size": 4}
    )
    assert {candidate.config["tp"] for candidate in found.candidates} == {4}
    served = search.estimate(
        "sglang", model="llama-3.1-8b", gpus="8xH100", input_tokens=512, output_tokens=64, concurrency=8, pins={"tp": 4}
    )
    layouts_found = {
        (each.config["tensor_parallel_size"], each.config["data_parallel_size"]) for each in served.candidates if not each.is_default
    }
    assert layouts_found == {(4, 2)}


def test_all_wrong_pins_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        training_pins({"zz": 4, "tpp": 2, "tp": 0, "pp": "x", "zero": [1], "mbs": 2, "micro_batch_size": 4})
    assert [fault.field for fault in caught.value.faults] == ["zz", "tpp", "tp", "pp", "zero", "micro_batch_size"]
    assert "mbs" in caught.value.faults[0].fix
    assert caught.value.faults[1].fix.startswith("Did you mean 'tp'")
    with pytest.raises(ConfigError, match="Did you mean 'max_num_seqs'"):
        serving_pins({"max_num_seq": 4})


def test_unknown_systems_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"megatron, .*vllm"):
        read_system("nonsense")
    with pytest.raises(ConfigError, match="Did you mean 'deepspeed'"):
        read_system("deepspeeed")
    assert read_system("DEFAULT") == "default"


def test_an_unknown_model_is_met_with_names_that_work() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'llama-3\.1-8b") as caught:
        model("meta/Llama3.1-8")
    assert "gpt3-175b" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"llama-3\.1-8b, .*qwen-moe"):
        model("zzzz")


def test_a_downloaded_model_that_no_list_knows_is_estimated(cached_config: Callable[..., Path]) -> None:
    asked = ["vllm", "--model", "google/gemma-9-31B-it", "--gpus", "8xH200", "--rate", "1", "--json"]
    assert isinstance(runner.invoke(app, asked).exception, ConfigError)
    text = {"hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
            "intermediate_size": 21504, "vocab_size": 262144, "model_type": "gemma4_text", "tie_word_embeddings": True}  # fmt: skip
    cached_config("google/gemma-9-31B-it", {"model_type": "gemma4", "text_config": text, "vision_config": {}})
    answer = json.loads(runner.invoke(app, asked).output)
    assert answer["candidates"][0]["metrics"]["request_throughput"] == pytest.approx(1.0, rel=0.2)


def test_one_function_answers_for_training_and_for_serving() -> None:
    trained = search.estimate("megatron", model="llama-3.1-8b", gpus="8xA100-80", global_batch=128, pins={"tp": 4})
    assert trained.candidates[0].config["tp"] == 4
    served = search.estimate("vllm", model="llama-3.1-8b", gpus="1xH100", precision="fp8", limits=["p95_ttft_ms<=500"])
    assert served.objective == "capacity_rps"
    loaded = search.estimate("vllm", model="llama-3.1-8b", gpus="1xH100", request_rate=2.0, limits=["p95_ttft_ms<=500"])
    assert loaded.objective == "distance to the limits where 2 requests/s are held"
    assert 0.0 <= loaded.candidates[0].metrics["goodput_share"] <= 1.0
    assert served.candidates[0].config["precision"] == "fp8"
    with pytest.raises(ConfigError, match="give the load once"):
        search.estimate("vllm", model="llama-3.1-8b", gpus="1xH100", concurrency=3, request_rate=1.0)


def test_mixed_clusters_are_balanced_by_speed_or_used_in_part() -> None:
    found = search.estimate("megatron", model="llama-3.2-3b", gpus="8xA100-80+4xA40", global_batch=96, top=10_000)
    ways = {(candidate.config.get("a40", 4), candidate.config.get("a40_share", 1.0)) for candidate in found.candidates}
    assert ways == {(4, 1.0), (4, 0.45), (0, 1.0)}
    all_used = [candidate for candidate in found.candidates if candidate.feasible > 0.5 and "a40" not in candidate.config]
    by_speed = [candidate.metrics["step_s"] for candidate in all_used if "a40_share" in candidate.config]
    equally = [candidate.metrics["step_s"] for candidate in all_used if "a40_share" not in candidate.config]
    assert min(by_speed) < 0.8 * min(equally)
    pinned = search.estimate(
        "megatron", model="llama-3.2-3b", gpus="8xA100-80+4xA40", global_batch=96, pins={"a40": 0, "tp": 2}, top=10_000
    )
    assert {candidate.config["a40"] for candidate in pinned.candidates} == {0}
    assert all(math.prod(int(c.config[name]) for name in ("tp", "pp", "dp", "cp")) == 8 for c in pinned.candidates)


@pytest.mark.parametrize(
    ("pins", "fields"),
    [
        ({"a40": 9, "a40_share": 0}, ["a40", "a40_share"]),
        ({"h100": 4, "a100": 1.5}, ["h100", "a100"]),
        ({"a40_share": "half"}, ["a40_share"]),
        ({"a100": 0, "a40": 0}, ["a100, a40"]),
    ],
)
def test_kinds_that_the_cluster_does_not_have(pins: dict[str, object], fields: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        search.estimate("megatron", model="llama-3.2-3b", gpus="8xA100-80+4xA40", global_batch=96, pins=pins)  # type: ignore[arg-type]
    assert [fault.field for fault in caught.value.faults] == fields


def test_experts_narrower_numbers_and_prompts_apart_are_choices() -> None:
    asked = {"model": "qwen3-30b-a3b", "gpus": "4xH100", "input_tokens": 512, "output_tokens": 64, "concurrency": 16, "top": 200}
    plain = search.estimate("vllm", **asked)
    assert {one.config.get("enable_expert_parallel") for one in plain.candidates} == {False, True}
    assert all("precision" not in one.config and "prefill_gpus" not in one.config for one in plain.candidates)
    lossy = search.estimate("vllm", **asked, allow_lossy=True)
    assert {one.config["precision"] for one in lossy.candidates} == {"auto", "fp8"}
    apart = search.estimate("vllm", **asked, disaggregated=True)
    assert {one.config.get("prefill_gpus") for one in apart.candidates} == {None, 1, 2}


def test_own_studies_scale_later_estimates_and_say_so(tmp_path: Path) -> None:
    for name, log_factor in (("one", 0.3), ("two", 0.32), ("other gpu", 2.0)):
        gpu = "A40" if "other" in name else "H100"
        fit = LocalFit(study=name, simulator="serving", gpu=gpu, system="vllm", trials=9, log_factor=log_factor, log_spread=0.05)
        (tmp_path / name).mkdir()
        (tmp_path / name / "calibration.json").write_text(fit.to_json())
    asked = {"model": "llama-3.1-8b", "gpus": "1xH100", "input_tokens": 256, "output_tokens": 32, "concurrency": 4, "top": 1}
    before, after = search.estimate("vllm", **asked), search.estimate("vllm", **asked, results=tmp_path)
    assert before.local == ""
    assert "2 of your studies (18 configurations on H100 with vllm): times x 1.3" in after.local
    ratio = after.candidates[0].metrics["median_tpot_ms"] / before.candidates[0].metrics["median_tpot_ms"]
    assert ratio == pytest.approx(1.31, abs=0.03)
    ratio = after.candidates[0].metrics["output_throughput"] / before.candidates[0].metrics["output_throughput"]
    assert ratio == pytest.approx(1 / 1.31, abs=0.03)


SERVED = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpus": "1xH100", "limits": ["p95_ttft_ms<=500"]}


def test_nothing_is_recommended_that_is_predicted_worse_than_the_default() -> None:
    found = search.estimate("vllm", **SERVED, top=20)
    (default,) = [candidate for candidate in found.candidates if candidate.is_default]
    assert default.config["max_num_seqs"] == 1024, "as vLLM itself has it there"
    assert default.metrics["capacity_rps"] >= max(candidate.metrics["capacity_rps"] for candidate in found.candidates)
    assert found.recommended is default


def test_ties_go_to_the_default() -> None:
    """At a low rate every setting of one GPU answers alike: nothing but the default is a reason to set anything."""
    found = search.estimate("vllm", **SERVED, request_rate=4.0, top=20)
    assert found.candidates[0].is_default
    assert found.recommended.is_default


def test_at_a_rate_layouts_are_ranked_by_what_their_users_feel() -> None:
    """All of them answer one request a second; how soon the last ones drain says nothing."""
    found = search.estimate(
        "vllm", model="meta-llama/Llama-3.3-70B-Instruct", gpus="8xH100", request_rate=1.0, limits=["p95_tpot_ms<=40"], top=20
    )
    best = found.candidates[0]
    assert best.config["tensor_parallel_size"] == 8
    fitting = [candidate for candidate in found.candidates if candidate.feasible >= 0.5]
    assert best.metrics["p95_tpot_ms"] == min(candidate.metrics["p95_tpot_ms"] for candidate in fitting)
    assert best.gain is not None
    assert best.gain > 1.0 + best.spread
    assert found.recommended is best
    unlimited = search.estimate("vllm", model="meta-llama/Llama-3.3-70B-Instruct", gpus="8xH100", request_rate=1.0, top=20)
    assert unlimited.candidates[0].config["tensor_parallel_size"] == 8


def test_what_cannot_hold_the_rate_comes_last() -> None:
    found = search.estimate("vllm", **SERVED, request_rate=20.0, top=20)
    assert found.candidates[0].config["max_num_seqs"] != 64
    assert found.candidates[-1].config["max_num_seqs"] == 64


def test_a_layout_that_may_not_fit_is_not_above_one_that_does() -> None:
    found = search.estimate("megatron", model="llama-3.1-8b", gpus="8xH100", top=50)
    best = found.candidates[0]
    for candidate in found.candidates:
        if candidate.feasible >= 0.5:
            assert best.metrics["step_s"] / best.feasible <= candidate.metrics["step_s"] / candidate.feasible
    assert best.feasible > 0.9
    assert found.load == "256 sequences of 4096 tokens a step"


def test_the_default_is_written_where_nothing_gains_more_than_the_error(tmp_path: Path) -> None:
    command = ["vllm", "--model", "llama-3.1-8b", "--gpus", "1xH100", "--slo", "p95_ttft_ms<=500", "--export", str(tmp_path)]
    shown = " ".join(runner.invoke(app, command, env={"COLUMNS": "200"}).output.split())
    assert "(default)" in shown
    assert "load: prompts of 1024 tokens, answers of 256, at the highest rate within the limits" in shown
    assert "{}" in (tmp_path / "config.yaml").read_text()
