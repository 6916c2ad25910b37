"""The other load generators themselves, against the small server: started by a trial, read by a trial. See `make test-vllm`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from llamacpp_programs import SERVER
from serving_trials import plan, run

from _cli_program import run as run_verb
from autoscout.core.trial import Status
from autoscout.load.others import PROGRAMS

pytestmark = pytest.mark.engines
ROOT = Path(__file__).parents[3]
VLLM_PYTHON = Path(os.environ.get("AUTOSCOUT_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python")))
SGLANG = VLLM_PYTHON.parents[1] / "sglang"
CLIENTS = Path(os.environ.get("AUTOSCOUT_CLIENTS", str(ROOT / ".venv-clients" / "bin")))
WORDS = 2000
MARKS = ("single_word", "lstrip", "rstrip", "normalized")  # of a special token
REQUESTS, INPUT, OUTPUT = 24, 32, 8
BENCH_SERVING = """
import runpy, sys
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock
from transformers import AutoProcessor
names = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.transforms.v2")
sys.modules |= {name: MagicMock(__spec__=ModuleSpec(name, None)) for name in names}
runpy.run_module("sglang.bench_serving", run_name="__main__")
"""
"""It imports torchvision for some models' shapes and calls nothing of it; the ordinary build does not go with a torch for CPUs."""
NEEDED = {"vllm": VLLM_PYTHON, "sglang": SGLANG, "guidellm": CLIENTS / "guidellm", "aiperf": CLIENTS / "aiperf"}
COMMANDS = {
    "vllm": [str(VLLM_PYTHON), "-m", "vllm.entrypoints.cli.main", "bench", "serve"],
    "sglang": ["env", f"PYTHONPATH={SGLANG}", str(VLLM_PYTHON), "-c", BENCH_SERVING],
    "guidellm": [str(CLIENTS / "guidellm"), "run"],
    "aiperf": [str(CLIENTS / "aiperf"), "profile"],
}


def tokenizer(folder: Path) -> Path:
    """A tokenizer for which a token is a word, as it is for the small server; an unknown word is the ordinary word `t0`."""
    folder.mkdir()
    vocab = {"t0": 0, "[EOS]": 1, **{f"t{number}": number for number in range(2, WORDS)}}
    special = [{"id": 1, "content": "[EOS]", "special": True, **dict.fromkeys(MARKS, False)}]
    made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"}}  # fmt: skip
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "[EOS]", "model_max_length": 4096}
    shape = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": WORDS, "max_position_embeddings": 4096}
    for name, data in (("tokenizer.json", made), ("tokenizer_config.json", named), ("config.json", shape)):
        (folder / name).write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("arrival", ["closed", "poisson"])
@pytest.mark.parametrize("client", PROGRAMS)
def test_a_trial_with_the_program_itself(tmp_path: Path, client: str, arrival: str) -> None:
    command, needed = COMMANDS[client], NEEDED[client]
    if not needed.exists():
        pytest.skip(f"no {needed}: `make test-vllm` installs it")
    folder = tokenizer(tmp_path / "tokenizer")
    load = {"client": client, "client_command": command, "requests": REQUESTS, "input_tokens": INPUT, "output_tokens": OUTPUT}
    load |= {"concurrency": 4} if arrival == "closed" else {"concurrency": 0, "arrival": arrival, "request_rate": 20.0}
    goal = {"kind": "latency", "slo": ["p95_ttft_ms<=10000"]}
    served = ("--served-model-name", str(folder), "--vocab-size", str(WORDS))
    given = plan(*served, load=load, goal=goal, tokenizer=str(folder), vocab_size=WORDS, limit_s=600.0).model_copy(
        update={"model": str(folder)}
    )
    offline = {} if client == "aiperf" else {"HF_HUB_OFFLINE": "1"}  # offline, AIPerf takes a folder for the name of a download
    found, done = run(given, tmp_path, env=offline, limit_s=660.0)
    log = tmp_path / "client.log"
    assert found.status is Status.OK, f"{found.reason}\n{log.read_text()[-3000:] if log.exists() else done.stderr}"
    metrics = found.metrics
    assert (metrics["completed"], metrics["failed"]) == (REQUESTS, 0)
    assert metrics["output_tokens"] == REQUESTS * OUTPUT
    assert metrics["input_tokens"] == pytest.approx(REQUESTS * INPUT, rel=0.1)
    assert 0 < metrics["median_ttft_ms"] <= metrics["p99_ttft_ms"] <= metrics["p99_e2el_ms"]
    assert metrics["request_throughput"] > 0
    assert {f"{name}_{latency}_ms" for name in ("mean", "median", "p95", "p99") for latency in ("ttft", "tpot", "e2el")} <= metrics.keys()


def test_aiperf_loads_a_real_llama_server(tmp_path: Path) -> None:
    """The way of the guide: a GGUF file has no tokenizer that AIPerf reads, so one is named."""
    for needed in (SERVER, NEEDED["aiperf"]):
        if not needed.exists():
            pytest.skip(f"no {needed}: `make test-llama-server` and `make test-vllm` install them")
    load = {"client": "aiperf", "client_command": COMMANDS["aiperf"], "client_tokenizer": str(tokenizer(tmp_path / "tokenizer"))}
    load |= {"requests": 8, "input_tokens": 32, "output_tokens": OUTPUT, "concurrency": 2, "repeats": 1, "context": 2048}
    data = {"system": "llamacpp", "workload": {"model": "random-tiny", "server": [str(SERVER)], **load}, "measure": {"dirty_repeats": 0}}
    (tmp_path / "campaign.yaml").write_text(yaml.dump(data))
    done = run_verb(tmp_path, "profile", "campaign.yaml", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measurements"][0]
    assert measured["status"] == "ok", measured["reason"]
    assert (measured["metrics"]["completed"], measured["metrics"]["output_tokens"]) == (8, 8 * OUTPUT)
    assert 0 < measured["metrics"]["median_ttft_ms"] <= measured["metrics"]["p99_e2el_ms"]
