"""The user's own `llama-server`: what it says of itself, which knobs that offers, and real measurements on Debian's build."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llamacpp_programs import GPU_HELP, SERVER, gpu_program, needs_server
from llamacpp_running import HARDWARE, SMALL, config_of, measure, small_task

from _cli_program import run
from autoscout.backends.llamacpp import LlamaCppBackend, engine
from autoscout.backends.llamacpp.flags import SWITCHES, VALUES, server_arguments
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.backends.llamacpp.program import ask, placement, read_help
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.core.trial import Status

gguf = pytest.importorskip("gguf", reason="needs the extra llamacpp")
BACKEND = LlamaCppBackend()


def task_of(**workload: Any) -> Task:
    return BACKEND.task({"workload": workload, "hardware": HARDWARE})


def experts(path: Path, layers: int = 8) -> Path:
    """A header of a mixture of experts."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(layers)
    writer.add_embedding_length(128)
    writer.add_head_count(2)
    writer.add_context_length(4096)
    writer.add_expert_count(64)
    writer.add_tensor("a.weight", np.zeros((2, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def talks(path: Path) -> Path:
    """Conversations in which words come again."""
    text = " ".join(["bada kuno lira", *["bada kuno mepo zufi"] * 6])
    turns = [{"from": "human", "value": text}, {"from": "gpt", "value": "bada kuno mepo zufi " * 8}]
    path.write_text(json.dumps([{"id": str(number), "conversations": turns} for number in range(8)]))
    return path


def test_a_help_text_says_names_defaults_and_values() -> None:
    flags = read_help(GPU_HELP)
    assert flags["-ngl"] is flags["--n-gpu-layers"]
    assert (flags["-ngl"].default, flags["-b"].default, flags["-kvu"].default) == ("auto", "2048", "enabled if number of slots is auto")
    assert flags["--flash-attn"].values == ("on", "off", "auto")
    assert flags["--cache-type-k"].values == ("f32", "f16", "q8_0")
    assert (flags["-nkvo"].off, flags["-nkvo"].takes_value, flags["-m"].takes_value) == ("--no-kv-offload", False, True)
    assert "--draft-max" not in flags, "it says that this one was removed"
    assert flags["-np"].env == "LLAMA_ARG_N_PARALLEL"


def test_gpus_and_experts_decide_which_knobs_there_are(tmp_path: Path) -> None:
    two, one = gpu_program(tmp_path / "two"), gpu_program(tmp_path / "one", gpus=1)
    dense = str(ensure_model("random-tiny", "f16", tmp_path))
    moe = str(experts(tmp_path / "moe.gguf"))
    knobs = {name: set(BACKEND.space(task_of(server=str(server), model=model)).knobs) for name, server, model in
             (("dense", two, dense), ("moe", two, moe), ("one", one, moe))}  # fmt: skip
    assert {"gpu_layers", "split_mode", "tensor_split", "main_gpu", "override_tensor"} <= knobs["dense"] & knobs["moe"]
    assert "n_cpu_moe" in knobs["moe"] & knobs["one"]
    assert "n_cpu_moe" not in knobs["dense"]
    assert not {"split_mode", "tensor_split", "main_gpu"} & knobs["one"]
    assert not {"load_mode", "spec_type", "poll", "n_cpu_ffn"} & (knobs["dense"] | knobs["moe"]), "this build has no such flags"


def test_a_placement_by_hand_excludes_the_engines_own_fitting(tmp_path: Path) -> None:
    task = task_of(server=str(gpu_program(tmp_path / "bin")), model=str(experts(tmp_path / "moe.gguf")))
    space = BACKEND.space(task)
    assert space.default()["gpu_layers"] == "auto"
    assert "n_cpu_moe" not in space.default()
    config = config_of(task, gpu_layers="all", n_cpu_moe=8, tensor_split="3,4")
    line = json.loads(BACKEND.render(config, task, seed=1).files["plan.json"])["serve"]
    told = dict(zip(line[3::2], line[4::2], strict=False))
    assert told.items() >= {"--n-gpu-layers": "all", "--n-cpu-moe": "8", "--tensor-split": "3,4"}.items()
    assert "--flash-attn" not in line, "what the program does by itself is not said"
    assert BACKEND.render(config, task, seed=1).resources.gpus == 2


def test_what_fitting_chooses_is_the_second_baseline(tmp_path: Path) -> None:
    fit = r'-c 4096 -ngl 5 -ts 3,2 -ot "blk\.4\.ffn_(up|down)_exps=CPU"'
    task = task_of(server=str(gpu_program(tmp_path / "bin", fit)), model=str(experts(tmp_path / "moe.gguf")))
    assert task.software["fit"] == fit
    assert placement(fit)["-ot"] == r"blk\.4\.ffn_(up|down)_exps=CPU"
    hint = BACKEND.hints(task)[0]
    assert BACKEND.space(task).check(hint) == []
    assert (hint["gpu_layers"], hint["tensor_split"], hint["override_tensor"]) == (5, "3,2", r"blk\.4\.ffn_(up|down)_exps=CPU")
    whole = task_of(server=str(gpu_program(tmp_path / "whole", "-c 8192 -ngl -1")), model=str(experts(tmp_path / "other.gguf")))
    assert BACKEND.hints(whole)[0]["gpu_layers"] == "all"
    assert any(hint.get("n_cpu_moe") == 8 for hint in BACKEND.hints(whole)), "all layers on the GPU, the experts in main memory"


def test_a_program_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\necho nothing\n")
    (tmp_path / "llama-server").chmod(0o755)
    for server in (str(tmp_path / "llama-server"), "/nowhere/llama-server"):
        with pytest.raises(ConfigError, match="is no llama-server that can be started"):
            BACKEND.task({"workload": {**SMALL, "server": server}})


def test_flags_of_the_users_own(tmp_path: Path) -> None:
    server = str(gpu_program(tmp_path / "bin"))
    task = task_of(server=server, engine_args={"--fit": "off", "override-tensor": "x=CPU", "cpu_moe": True}, env={"A": "1"})
    plan = json.loads(BACKEND.render(config_of(task), task, seed=1).files["plan.json"])
    assert [word for word in plan["serve"] if word in ("--fit", "off", "--override-tensor", "x=CPU", "--cpu-moe")] == [
        "--fit", "off", "--override-tensor", "x=CPU", "--cpu-moe"]  # fmt: skip
    assert plan["env"]["A"] == "1"
    assert "override_tensor" not in BACKEND.space(task).knobs, "it is set already"
    with pytest.raises(ConfigError, match=r"engine_args\.fot: llama-server 6543-abc1234 has no such flag"):
        task_of(server=server, engine_args={"fot": 1})
    with pytest.raises(ConfigError, match="the wheel has none"):
        task_of(engine_args={"fit": "off"})


def test_the_program_of_the_path_where_there_is_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(gpu_program(tmp_path / "bin").parent), prepend=":")
    assert engine.usual_command() == (), "the wheel is here"
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert engine.usual_command() == ("llama-server",)
    assert task_of().software["llama_server"] == "6543-abc1234"


@needs_server
def test_the_real_program_says_what_it_is() -> None:
    server = ask((str(SERVER),))
    assert server is not None
    assert server.version != "unknown"
    assert server.openmp
    assert server.devices == ()
    own = engine.build_of((str(SERVER),)).defaults
    assert (own["batch"], own["parallel"], own["kv_unified"], own["flash_attention"]) == (2048, engine.SERVER_SLOTS, True, "auto")
    known = [setting for setting, flags in VALUES.items() if any(flag in server.flags for flag in flags)]
    assert len(known) > 25, "the flags of our settings are the program's"
    assert all(on in server.flags and (not off or off in server.flags) for on, off in SWITCHES.values())


@needs_server
def test_the_real_program_is_measured(tmp_path: Path) -> None:
    task = small_task(tmp_path / "cache", server=str(SERVER))
    done = measure(task, tmp_path / "run")
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert done.metrics["divergence"] < 0.01
    changed = config_of(task, parallel=2, kv_unified=False, flash_attention="off", batch=64, ubatch=32, context_size="load", repack=False)
    done = measure(task, tmp_path / "run", changed)
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"


@needs_server
def test_the_real_program_takes_every_flag_that_we_may_give(tmp_path: Path) -> None:
    """Flags of GPUs too: a build without one reads them, and has nothing to do."""
    server = ask((str(SERVER),))
    assert server is not None
    model = ensure_model("random-tiny", "q8_0", tmp_path)
    told: dict[str, Any] = {
        "context": 512, "threads": 1, "threads_batch": 1, "poll": 0, "numa": "distribute", "batch": 64, "ubatch": 32, "parallel": 2,
        "flash_attention": "on", "cache_type_k": "q8_0", "cache_type_v": "q8_0", "load_mode": "none", "gpu_layers": 1,
        "split_mode": "layer", "tensor_split": "3,1", "main_gpu": 0, "override_tensor": r"\.ffn_up\.=CPU", "n_cpu_ffn": 1,
        "cache_reuse": 64, "cache_ram": 64, "ctx_checkpoints": 4, "slot_prompt_similarity": 0.5, "spec_type": "ngram-mod",
        "ngram_max": 16, "ngram_match": 4, "pin_threads": True, **dict.fromkeys(SWITCHES, True)}  # fmt: skip
    words = server_arguments(told, server.flags)
    assert len([word for word in words if word.startswith("--")]) >= 35
    with subprocess.Popen([SERVER, "--model", model, *words, "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        log = ""
        for line in process.stderr:
            log += line
            if "listening" in line:
                break
        process.kill()
    assert "listening" in log, log[-2000:]


@needs_server
def test_a_flag_that_the_real_program_refuses(tmp_path: Path) -> None:
    task = small_task(tmp_path / "cache", server=str(SERVER), engine_args={"split-mode": "diagonal"})
    done = measure(task, tmp_path / "run")
    assert done.status is Status.INVALID, done.log_tail
    assert "invalid" in done.reason


@needs_server
@pytest.mark.parametrize("server", ["", str(SERVER)], ids=["wheel", "program"])
def test_text_that_repeats_itself_is_guessed(tmp_path: Path, server: str) -> None:
    load = {"workload": "sharegpt", "file": str(talks(tmp_path / "talks.json")), "context": 512}
    task = small_task(tmp_path / "cache", **load, **({"server": server} if server else {}))
    space = BACKEND.space(task)
    assert {"ngram-mod", "ngram-simple"} <= set(space.knobs["spec_type"].values)
    assert not [kind for kind in space.knobs["spec_type"].values if str(kind).startswith("draft")], "no model that could guess"
    assert "ngram_max" not in space.default()
    assert {"ngram_max", "ngram_match"} <= set(config_of(task, spec_type="ngram-mod"))
    assert "spec_type" not in BACKEND.space(small_task(tmp_path / "cache")).knobs, "random prompts say nothing of it"
    done = measure(task, tmp_path / "run", config_of(task, spec_type="ngram-simple", ngram_max=8, ngram_match=2))
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"


@needs_server
def test_guesses_on_text_are_counted(tmp_path: Path) -> None:
    """The program's own tokenizer reads the text, and its counters say how many guesses were right."""
    task = small_task(tmp_path / "cache", server=str(SERVER), text="mixed", input_tokens=96, output_tokens=32)
    assert "cut from English prose and Python code" in BACKEND.load(task)
    done = measure(task, tmp_path / "run", config_of(task, spec_type="ngram-simple", ngram_max=8, ngram_match=2))
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert 0 <= done.metrics["acceptance_rate"] <= 1
    assert 1 <= done.metrics["acceptance_length"] <= 9
    assert done.metrics["input_tokens"] == 96 * done.metrics["completed"]


@needs_server
@pytest.mark.parametrize("server", ["", str(SERVER)], ids=["wheel", "program"])
def test_a_small_model_guesses_for_another(tmp_path: Path, server: str) -> None:
    draft = str(ensure_model("random-tiny", "q4_0", tmp_path / "cache"))
    task = small_task(tmp_path / "cache", draft_model=draft, **({"server": server} if server else {}))
    assert BACKEND.space(task).knobs["spec_type"].values[:2] == ("none", "draft-simple")
    assert task.workload["text"] == "mixed", "what follows random tokens cannot be guessed"
    done = measure(task, tmp_path / "run", config_of(task, spec_type="draft-simple", draft_max=2))
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"


@needs_server
def test_the_folder_that_is_handed_over_starts_the_program(tmp_path: Path) -> None:
    task = small_task(tmp_path / "cache", server=str(SERVER))
    files = BACKEND.export(config_of(task, parallel=2), task)
    assert "server.py" not in files
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    with subprocess.Popen([tmp_path / "run.sh", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("listening" in line for line in process.stderr)
        process.kill()
    refused = subprocess.run([tmp_path / "run.sh"], env={"HOST": "0.0.0.0", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert (refused.returncode, "LLAMA_API_KEY" in refused.stderr) == (2, True)


@needs_server
@pytest.mark.slow
@pytest.mark.parametrize("server", ["", str(SERVER)], ids=["wheel", "program"])
def test_the_same_study_on_the_wheel_and_on_the_program(tmp_path: Path, server: str) -> None:
    """As the guide has it: measured, decided, handed over."""
    words = ["model=random-tiny", "input_tokens=8", "output_tokens=4", "concurrency=2", "requests=4", "repeats=1", "max_divergence=1"]
    told = [word for name in (words + ([f"server={SERVER}"] if server else [])) for word in ("-w", name)]
    done = run(tmp_path, "tune", "llamacpp", "-e", "home", "--set", "omp_wait_policy=passive", "--budget", "40s", *told)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("--model" in (tmp_path / "autoscout_results" / "home" / "best" / "run.sh").read_text()) or not server
    rows = [json.loads(line) for line in (tmp_path / "autoscout_results" / "home" / "trials.jsonl").read_text().splitlines()]
    assert rows[0]["status"] == "ok", rows[0]
