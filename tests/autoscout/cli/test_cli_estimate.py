from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from autoscout.cli.main import main
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.training.calibration import training_calibration

LLAMA = ["--model", "llama-3.1-8b", "--gpus", "8xA100-80"]
HEADER = "model,gpu,n_gpus,seq,gbs,mbs,tp,iter_s"


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as leave:
        main(arguments)
    assert isinstance(leave.value.code, int)
    return leave.value.code


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nonsense", *LLAMA], "megatron"),
        (["megatron", *LLAMA, "--set", "zz=4"], "no such knob"),
        (["megatron", *LLAMA, "--set", "tp=["], "must be a whole number"),
        (["megatron", "--model", "lama-3.1-8b", "--gpus", "8xA100-80"], "llama-3.1-8b"),
        (["vllm", "--model", "qwen3-8b", "--gpus", "eight"], "COUNTxGPU"),
        (["vllm", *LLAMA, "--rate", "-1"], "must be above 0"),
        (["vllm", *LLAMA, "--concurrency", "-1"], "must be above 0"),
        (["vllm", *LLAMA, "--rate", "5", "--concurrency", "8"], "give the load once"),
        (["vllm", *LLAMA, "--rate", "5", "--slo", "p95_foo_ms<=3"], "not a latency"),
        (["vllm", *LLAMA, "--rate", "5", "--set", "tp=16"], "needs 16 GPUs"),
        (["vllm", *LLAMA, "--rate", "5", "--set", "tp=3"], "attention heads"),
        (["vllm", *LLAMA, "--rate", "5", "--precision", "fp9"], "unknown format"),
        (["vllm", *LLAMA, "--rate", "5", "--set", "gpu_memory_utilization=1.7"], "share of the memory"),
        (["vllm", "--model", "qwen3-8b", "--gpus", "4xH100+4xA40", "--rate", "5"], "one kind of GPU"),
    ],
)
def test_wrong_input_is_refused(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", *arguments]) == 2
    shown = capsys.readouterr()
    assert word in shown.err
    assert not shown.out


@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        (["megatron", "--model", "qwen3-30b-a3b", "--gpus", "16xA100-80+8xA40", "--batch", "240", "--set", "cp=2"], "step s"),
        (["vllm", "--model", "llama-3.1-8b", "--gpus", "8xH100", "--rate", "4", "--slo", "p95_ttft_ms<=1000"], "good/s"),
    ],
)
def test_the_table_has_one_line_per_configuration_at_80_columns(
    arguments: list[str], header: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["estimate", *arguments, "--top", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("configuration"))
    assert header in lines[start]
    assert all(line.split()[0].count("=") == 1 and line.endswith("%") for line in lines[start + 1 : start + 5])
    assert lines[start + 5] == "" or "(default)" in lines[start + 5]
    assert max(map(len, lines)) <= 80
    assert not any(" tp=1 " in line or line.startswith("tp=1 ") or "ar=none" in line for line in lines)


def test_precision_counts_for_servers_and_no_line_repeats_another(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimate", "vllm", "--model", "llama-3.1-70b", "--gpus", "2xH100", "--concurrency", "4", "--json"]
    assert run(command) == 0
    wide = json.loads(capsys.readouterr().out)
    assert run([*command, "--precision", "fp8"]) == 0
    narrow = json.loads(capsys.readouterr().out)
    assert narrow["candidates"][0]["memory_bytes"]["cache_tokens"] > 2 * wide["candidates"][0]["memory_bytes"]["cache_tokens"]
    told = [(found["config"]["tensor_parallel_size"], tuple(found["metrics"].values())) for found in narrow["candidates"]]
    assert len(told) == len(set(told))


def test_a_wide_terminal_shows_every_column(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["estimate", "vllm", "--model", "llama-3.1-8b", "--gpus", "8xH100"]) == 0
    text = capsys.readouterr().out
    assert "tpot50" in text
    assert "no room for" not in text


def test_where_nothing_fits_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["estimate", "megatron", "--model", "qwen3-30b-a3b", "--gpus", "4xA100-80+4xA40"]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "WARNING: nothing is predicted to fit" in text
    assert "ranked by chance to fit" in text
    assert run([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["fitting"] == 0
    assert "nothing is predicted to fit" in answer["warnings"][0]


def _table(path: Path, models: tuple[str, ...]) -> str:
    rows = [f"{name},A100-80,8,1024,32,{mbs},{tp},{1.0 / (mbs + tp)}" for name in models for mbs in (1, 2) for tp in (1, 2)]
    path.write_text("\n".join([HEADER, *rows]))
    return str(path)


def test_one_workload_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = _table(tmp_path / "one.csv", ("gpt3-1.3b",)), tmp_path / "cal.yaml"
    arguments = ["calibrate", table, "--out", str(out), "--constant", "gemm_scale"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(arguments) == 0
    shown = capsys.readouterr()
    assert "cannot be judged: needs at least two workloads" in shown.out
    assert "nan" not in shown.out + out.read_text()
    found = training_calibration(path=out)
    assert (found.mape, found.rows, found.spread) == (None, 4, training_calibration("default").spread)
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mape"] is None


def test_two_files_of_one_workload_each_judge_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [_table(tmp_path / f"{name}.csv", (name,)) for name in ("gpt3-1.3b", "gpt3-2.7b")]
    assert run(["calibrate", *tables, "--out", str(tmp_path / "cal.yaml"), "--constant", "gemm_scale", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["rows"], answer["out"]) == ("training", 8, str(tmp_path / "cal.yaml"))
    assert answer["mape"] > 0


def test_one_served_model_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "served.csv", tmp_path / "cal.yaml"
    lines = ["model_path,system,backend,isl,osl,concurrency,batch_size,tp_size,silicon_tpot_ms"]
    lines += [f"meta/llama-3.1-8b,h100_sxm,vllm,1024,256,{batch},{batch},1,{7 + batch / 20}" for batch in (1, 8, 32)]
    table.write_text("\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(["calibrate", "--serving", str(table), "--out", str(out)]) == 0
    assert "cannot be judged: needs at least two models" in capsys.readouterr().out
    found, shipped = serving_calibration(out), serving_calibration()
    assert (found.mape, found.rows, found.spread, found.margin) == (None, 3, shipped.spread, shipped.margin)
    table.write_text(lines[0])
    assert run(["calibrate", "--serving", str(table), "--out", str(out)]) == 2
    assert "no row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"hidden_size": 1', "not valid JSON"), ("[]", "must be a JSON object"), ("{}", "hidden_size")],
)
def test_a_config_that_is_none_is_named(tmp_path: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.json").write_text(text)
    assert run(["estimate", "megatron", "--model", str(tmp_path / "mine.json"), "--gpus", "8xH100"]) == 2
    told = " ".join(capfd.readouterr().err.split())
    assert "mine.json" in told
    assert said in told


def test_an_unknown_precision_is_refused_with_those_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "megatron", *LLAMA, "--precision", "int3"]) == 2
    assert "bf16" in capfd.readouterr().err


@pytest.mark.parametrize(("system", "setting"), [("vllm", "tensor-parallel-size: 8"), ("sglang", "tp-size: 8")])
def test_the_first_candidate_is_written_as_files(tmp_path: Path, system: str, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--model", "llama-3.3-70b", "--gpus", "8xH100", "--concurrency", "8", "--set", "tensor_parallel_size=8"]
    assert run(["estimate", system, *wanted, "--export", str(tmp_path / "launch")]) == 0
    assert setting in (tmp_path / "launch" / "config.yaml").read_text()
    assert (tmp_path / "launch" / "run.sh").stat().st_mode & 0o100
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{tmp_path / 'launch'}; llama-3.3-70b is a name of AutoScout's own" in shown


def test_the_folder_of_a_config_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 32000}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    monkeypatch.chdir(tmp_path)
    assert run(["estimate", "vllm", "--model", "config.json", "--gpus", "2xH100", "--export", "launch"]) == 0
    assert f"model={tmp_path}\n" in (tmp_path / "launch" / "run.sh").read_text()
    assert "load-format: dummy" in (tmp_path / "launch" / "config.yaml").read_text()


def test_files_are_written_for_engines_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "megatron", *LLAMA, "--export", str(tmp_path)]) == 2
    assert "vllm and sglang only" in capsys.readouterr().err
