"""Commands and files in which people start `llama-server` today, read into workload and knobs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from llamacpp_programs import SERVER, gpu_program, needs_server
from llamacpp_running import HARDWARE, measure
from test_llamacpp_program import experts

from autoscout.backends.llamacpp import LlamaCppBackend
from autoscout.backends.llamacpp.launch import command_in
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Status
from autoscout.core.user import UserLaunch

BACKEND = LlamaCppBackend()


def read(text: str) -> UserLaunch:
    return BACKEND.read_launch(text, "--from")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return ensure_model("random-tiny", "f16", tmp_path)


def test_a_command_becomes_workload_and_knobs(model: Path) -> None:
    launch = read(
        f"/opt/llama-server -m {model} -ngl 99 -c 8192 -np 2 -fa on -ctk q8_0 --no-mmap -t 6 --port 9000 --temp 0.7 --jinja -nkvo"
    )
    assert launch.workload["server"] == ["/opt/llama-server"]
    assert (launch.workload["model"], launch.workload["context"]) == (str(model), 4096)
    assert launch.workload["engine_args"] == {"temp": "0.7", "jinja": True}
    assert launch.knobs == {
        "gpu_layers": "all",  # the model has 2
        "parallel": 2,
        "kv_unified": False,  # as the program has it where slots are counted
        "flash_attention": "on",
        "cache_type_k": "q8_0",
        "load_mode": "none",
        "threads": 6,
        "threads_batch": 6,  # as the program has it
        "kv_offload": False,
    }
    assert launch.left_out == ("--port changes no speed: every trial has its own.",)


def test_secrets_are_kept_nowhere(model: Path) -> None:
    launch = read(f"HF_TOKEN=hunter2 LLAMA_API_KEY=hunter2 A=1 /opt/llama-server -m {model}")
    assert "hunter2" not in repr(launch)
    assert launch.workload["env"] == {"A": "1"}
    assert any(sentence.startswith("HF_TOKEN and LLAMA_API_KEY: their values are kept nowhere") for sentence in launch.left_out)


def test_what_is_not_known_is_said(model: Path) -> None:
    launch = read(f"/opt/llama-server -m {model} -np $SLOTS -ub 256\n  -ngl 9")
    assert launch.knobs == {"ubatch": 256}
    assert launch.left_out == (
        "-ngl begins a command of its own and is not read: the line before it does not end with a backslash.",
        "-np is not read: SLOTS is known only where it runs.",
    )


@pytest.mark.parametrize("text", ["tmux new -d '/opt/llama-server -m MODEL -np 8'", "docker exec llm llama-server -m MODEL -np 8"])
def test_a_server_within_something_else(text: str, model: Path) -> None:
    launch = read(text.replace("MODEL", str(model)))
    assert (launch.knobs["parallel"], launch.workload["model"]) == (8, str(model))
    assert launch.workload.get("server") in (["/opt/llama-server"], None)


@pytest.mark.parametrize(
    "text",
    [
        "exec /opt/llama-server -m MODEL --parallel=8 -ub 256 -kvu",
        "# a server\nexport A=1\n/opt/llama-server \\\n  --model MODEL \\\n  --parallel 8 --ubatch-size 256 --kv-unified 2>&1 | tee log\n",
        "[Service]\nUser=llm\nExecStart=/opt/llama-server -m MODEL -np 8 -ub 256 -kvu\n",
        "models:\n  small:\n    cmd: |\n      /opt/llama-server --port ${PORT}\n      -m MODEL -np 8 -ub 256 -kvu\n",
        "services:\n  llm:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    command: [-m, MODEL, -np, '8', -ub, '256', -kvu]\n",
        "docker run --rm -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m MODEL -np 8 -ub 256 -kvu",
        "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n        - image: ghcr.io/ggml-org/llama.cpp:server\n"
        "          env: [{name: A, value: '1'}]\n          args: [-m, MODEL, -np, '8', -ub, '256', -kvu]\n",
    ],
    ids=["command", "script", "systemd", "llama-swap", "compose", "docker", "kubernetes"],
)  # fmt: skip
def test_where_people_write_it_down(text: str, model: Path) -> None:
    launch = read(text.replace("MODEL", str(model)))
    assert launch.workload["model"] == str(model)
    assert launch.knobs == {"parallel": 8, "ubatch": 256, "kv_unified": True}


def test_words_before_it_and_variables(model: Path) -> None:
    launch = read(f"CUDA_VISIBLE_DEVICES=0,1 numactl -N 0 /opt/llama-server -m {model}")
    assert launch.workload["server"] == ["numactl", "-N", "0", "/opt/llama-server"]
    assert (launch.workload["env"], launch.hardware) == ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"gpus": 2})


def test_a_program_that_can_be_asked_says_what_its_flags_are(tmp_path: Path) -> None:
    server, moe = gpu_program(tmp_path / "bin"), experts(tmp_path / "moe.gguf")
    launch = read(f"LLAMA_ARG_N_PARALLEL=3 {server} -m {moe} -ngl 5 -ncmoe 3 -ts 3,1")
    assert launch.knobs.items() >= {"parallel": 3, "gpu_layers": 5, "n_cpu_moe": 3, "tensor_split": "3,1"}.items()
    with pytest.raises(ConfigError, match="this llama-server has no such flag"):
        read(f"{server} -m {moe} --flash-attention on")


def test_speculation_and_caches(model: Path) -> None:
    launch = read(f"/opt/llama-server -m {model} -md {model} --spec-type draft-simple --draft-max 8 --cache-reuse 256 --cache-ram -1")
    assert launch.workload["draft_model"] == str(model)
    assert launch.knobs == {"spec_type": "draft-simple", "draft_max": 8, "cache_reuse": 256, "cache_ram": -1}
    launch = read(f"/opt/llama-server -m {model} --spec-type ngram-mod --spec-ngram-mod-n-max 16")
    assert launch.knobs == {"spec_type": "ngram-mod", "ngram_max": 16}


def test_what_is_not_understood_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no llama-server command"):
        read("vllm serve x")
    with pytest.raises(ConfigError) as caught:
        read("/opt/llama-server -np many stray -c x")
    told = "\n".join(str(fault) for fault in caught.value.faults)
    assert all(word in told for word in ("'many'", "'stray'", "'x'"))
    with pytest.raises(ConfigError, match="names no model"):
        read("/opt/llama-server -np 2")
    with pytest.raises(ConfigError, match="not on this machine yet"):
        read("/opt/llama-server -hf nobody/nothing-GGUF:Q8_0")


def test_shell_words_of_other_commands_are_no_launch() -> None:
    assert command_in("echo hello; make server-tests") is None


@needs_server
def test_what_is_read_runs(tmp_path: Path, model: Path) -> None:
    line = [str(SERVER), "-m", str(model), "-c", "2048", "-np", "2", "-b", "64", "-ub", "32", "-fa", "off", "-t", "1", "--no-webui", "-nr"]
    launch = read(shlex.join(line))
    load = {"input_tokens": 8, "output_tokens": 4, "concurrency": 2, "requests": 2, "repeats": 1}
    task = BACKEND.task({"workload": {**launch.workload, **load}, "hardware": {**HARDWARE, **launch.hardware}})
    space = BACKEND.space(task)
    config = space.project({**space.default(), **launch.knobs}, Config(launch.knobs))
    assert space.check(config) == []
    serve = BACKEND.plan(config, task, seed=1).serve
    told = dict(zip(serve[1::2], serve[2::2], strict=False))
    assert (
        told.items()
        >= {"--ctx-size": "2048", "--parallel": "2", "--batch-size": "64", "--ubatch-size": "32", "--flash-attn": "off"}.items()
    )
    assert measure(task, tmp_path / "run", config).status is Status.OK
