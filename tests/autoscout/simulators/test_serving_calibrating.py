"""Serving tables as jobs, constants from them, and what the fit says about itself."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from autoscout.common.stats import spread_of
from autoscout.core.errors import ConfigError
from autoscout.simulators.serving.calibration import START, calibrate_serving, fit_serving, models_left_out, serving_calibration
from autoscout.simulators.serving.job import bytes_per_weight, precision_named
from autoscout.simulators.serving.step import token_interval_s
from autoscout.simulators.serving.tables import ServingTable, read_serving_table, serving_table

SILICON = Path(__file__).resolve().parents[4] / "shared" / "ground-truth" / "serve_silicon_a.csv"
HEAD = (
    "model_path,system,backend,isl,osl,concurrency,batch_size,tp_size,attention_dp_size,moe_tp_size,moe_ep_size,precision,silicon_tpot_ms"
)


def table(*lines: str) -> ServingTable:
    return serving_table("made up", csv.DictReader(io.StringIO("\n".join([HEAD, *lines]))))


def test_double_booked_ranks_are_counted_once() -> None:
    found = table(
        "x/deepseek-v3,b200_sxm,sglang,1024,1024,16,16,64,1,8,8,fp8,9",
        "x/deepseek-v3,b200_sxm,trtllm,1024,1024,256,4,1,64,8,8,fp8,9",
        "x/qwen3-235b-a22b,h200_sxm,vllm,1000,100,5,5,1,,4,1,fp8,9",
        "x/qwen3-235b-a22b,h100_sxm,trtllm,1000,100,5,5,4,,1,4,fp8,9",
    ).job
    layouts = np.stack([found.tp, found.attention_dp, found.moe_tp, found.moe_ep, found.batch], axis=1)
    assert layouts.tolist() == [[8, 1, 1, 8, 16], [1, 8, 1, 8, 32], [1, 4, 4, 1, 5], [4, 1, 1, 4, 5]]


def test_formats_by_the_names_that_engines_give_them() -> None:
    names = ("bfloat16", "FP8_block", "nvfp4", "w4a16_mxfp4", "int4_wo", "awq", "auto", "fp9")
    assert [precision_named(name) for name in names] == ["bf16", "fp8", "fp4", "int4", "int4_wo", "awq", "bf16", None]
    assert bytes_per_weight("int4_wo") == bytes_per_weight("awq") < bytes_per_weight("fp8") < bytes_per_weight("bf16")
    found = table("x/qwen3-32b,h100_sxm,vllm,1024,128,8,8,1,,,,int4_wo,9", "x/qwen3-32b,h100_sxm,vllm,1024,128,8,8,1,,,,fp9,9")
    assert (len(found.rows), len(found.left_out)) == (1, 1)
    assert found.job.gemm_flops[0] == found.job.flops[0]


def test_a_fit_finds_a_slower_host_and_leaves_what_it_cannot_see() -> None:
    lines = [
        f"x/{name},h100_sxm,vllm,64,512,{n},{n},1,,,,bf16,1" for name in ("llama-3.1-8b", "qwen3-8b", "qwen3-4b") for n in (1, 2, 4, 8)
    ]
    found = table(*lines)
    slow = token_interval_s(found.job, START) + 3e-3
    fitted = fit_serving(ServingTable(**{**vars(found), "tpot_s": slow}))
    assert fitted.vllm_s > 1.5 * START.vllm_s
    assert fitted.sglang_s == pytest.approx(START.sglang_s)
    assert fitted.expert_scale == pytest.approx(START.expert_scale)


def test_own_runs_begin_at_the_shipped_constants() -> None:
    found = table("x/llama-3.1-8b,h100_sxm,vllm,1024,256,8,8,1,,,,bf16,8.5")
    own = calibrate_serving(found, found.models, name="mine", made_from="one run")
    shipped = serving_calibration()
    assert own.mape is None
    assert (own.spread, own.first_margin) == (shipped.spread, shipped.first_margin)
    assert own.constants.expert_scale == pytest.approx(shipped.constants.expert_scale, rel=1e-3)


def test_few_rows_do_not_make_the_model_sure_of_itself() -> None:
    found = table(*(f"x/{name},h100_sxm,vllm,1024,256,8,8,1,,,,bf16,1" for name in ("llama-3.1-8b", "qwen3-8b")))
    exact = ServingTable(**{**vars(found), "tpot_s": token_interval_s(found.job, serving_calibration().constants)})
    own = calibrate_serving(exact, exact.models, name="mine", made_from="two runs")
    assert own.mape is not None
    assert own.mape < 0.02
    assert 0.8 * serving_calibration().spread < own.spread < serving_calibration().spread
    assert own.margin == serving_calibration().margin


def test_times_that_cannot_be_are_refused_by_row() -> None:
    rows = [f"x/llama-3.1-8b,h100_sxm,vllm,1024,256,8,8,1,,,,bf16,{value}" for value in ("9", "-3", "0", "inf", "fast", "")]
    with pytest.raises(ConfigError) as refused:
        table(*rows)
    assert [fault.value for fault in refused.value.faults] == ["'-3'", "'0'", "'inf'", "'fast'"]
    assert refused.value.faults[0].where.endswith(":2")
    assert np.isfinite(table(rows[0], rows[-1]).tpot_s).tolist() == [True, False]


def test_the_spread_of_normal_errors_is_their_standard_deviation() -> None:
    errors = np.random.default_rng(5).normal(0.0, 0.2, size=20_000)
    assert spread_of(errors) == pytest.approx(0.2, rel=0.03)


@pytest.mark.external
@pytest.mark.skipif(not SILICON.is_file(), reason="the ground-truth tables are not there")
def test_models_that_were_left_out_are_met() -> None:
    found = read_serving_table(SILICON)
    found = ServingTable(**{**vars(found), "ttft_s": np.full_like(found.ttft_s, np.nan)})  # not judged here, and slow to fit
    families = [name.split("-")[0] for name in found.models]  # makers of models: stricter than single models
    error = np.abs(models_left_out(found, families).tpot_s / found.tpot_s - 1.0)
    moe = found.job.experts > 0
    assert float(np.mean(error[~moe])) < 0.19  # which runs draw lengths is not in the file
    assert float(np.mean(error[moe])) < 0.25
