"""Tasks, spaces, launches and hand-overs of `vllm` and `sglang`; nothing is started."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscout.backends.sglang import SglangBackend
from autoscout.backends.vllm import VllmBackend
from autoscout.backends.vllm.backend import own_defaults
from autoscout.common.files import write_folder
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, SpaceError
from autoscout.core.task import Guard, Task
from autoscout.engines.engine import Engine
from autoscout.engines.table import versions
from autoscout.load.plan import PLAN
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import prepare
from autoscout.study.start import find_simulator

SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 16384,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def vllm(
    model: Path | str, gpus: str = "1xH200", slo: tuple[str, ...] = ("p95_ttft_ms<=500",), metric: str | None = None, **workload: Any
) -> tuple[VllmBackend, Task]:
    backend = VllmBackend()
    given = {
        "workload": {"model": str(model), "engine_version": "0.24.0", "engine_command": ["vllm", "serve"], **workload},
        "hardware": {"gpus": gpus, "cores": 16},
        "objective": {"slo": list(slo), **({"metric": metric} if metric else {})},
    }
    return backend, backend.task(given)


def line(backend: VllmBackend, task: Task, **changes: Any) -> list[str]:
    space = backend.space(task)
    config = space.project({**space.default(), **changes})
    assert all(config[name] == value for name, value in changes.items())
    return list(backend.serve(config, task))


def test_a_downloaded_model_is_known_and_its_missing_weights_are_no_reason_for_random_ones(cached_config: Callable[..., Path]) -> None:
    cached_config("org/unheard-of", {**SHAPE, "vocab_size": 154880})
    backend, task = vllm("org/unheard-of")
    assert backend.plan(backend.space(task).default(), task, seed=0).vocab_size == 154880
    assert "--load-format" not in line(backend, task)
    assert backend.space(task).facts["heads"] == 32


def test_a_model_of_which_nothing_is_known_is_named_with_the_next_step(caplog: pytest.LogCaptureFixture) -> None:
    vllm("org/never-heard-of")
    assert "hf download org/never-heard-of config.json" in caplog.text


def test_the_default_is_the_engine_without_flags(folder: Path) -> None:
    (folder / "model.safetensors").write_text("")
    backend, task = vllm(folder)
    assert line(backend, task) == ["vllm", "serve", str(folder), "--host", "127.0.0.1", "--port", "{port}"]


def test_a_folder_without_weights_gets_random_ones(folder: Path) -> None:
    backend, task = vllm(folder)
    assert line(backend, task)[3:5] == ["--load-format", "dummy"]
    assert "whose answers are nonsense" in backend.export(backend.space(task).default(), task)["config.yaml"]
    (folder / "tokenizer.json").unlink()
    backend, task = vllm(folder)
    assert "--skip-tokenizer-init" in line(backend, task)
    for text in ({"endpoint": "chat"}, {"client": "vllm"}):
        with pytest.raises(ConfigError, match=r"model: its folder holds no tokenizer, which .* needs"):
            vllm(folder, concurrency=4, **text)


@pytest.mark.parametrize(
    ("kind", "memory", "version", "tokens", "requests"),
    [
        ("H200", 141.0, "0.24.0", 8192, 1024),
        ("H100", 80.0, "0.24.0", 8192, 1024),
        ("A100-80", 80.0, "0.24.0", 2048, 256),
        ("L40S", 48.0, "0.24.0", 2048, 256),
        ("B200", 180.0, "0.24.0", 8192, 1024),
        ("B200", 180.0, "0.32.0", 16384, 1024),
        ("", 0.0, "0.24.0", 2048, 256),
    ],
)
def test_limits_that_vllm_chooses_by_itself(kind: str, memory: float, version: str, tokens: int, requests: int) -> None:
    own = own_defaults({"gpus": 1, "gpu": kind, "gpu_memory_gb": memory}, version)
    assert (own["max_num_batched_tokens"], own["max_num_seqs"]) == (tokens, requests)


def test_a_gpu_that_nobody_knows_has_to_tell_its_memory(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"hardware: gpu: unknown GPU \(found 'H20O'\)\. .*give gpu_memory_gb\. .*H200"):
        vllm(folder, gpus="8xH20O")
    given = {"workload": {"model": str(folder), "concurrency": 4}, "hardware": {"gpus": "2xNew", "gpu_memory_gb": 80.0}}
    assert VllmBackend().task(given).hardware["gpu"] == "New"


def test_vllm_on_a_cpu_chooses_smaller_limits() -> None:
    own = own_defaults({"gpus": 0}, "0.32.0")
    assert (own["max_num_batched_tokens"], own["max_num_seqs"]) == (2048, 128)


def test_words_of_every_kind(folder: Path) -> None:
    backend, task = vllm(folder, allow_lossy=True)
    words = line(backend, task, max_num_seqs=64, enable_prefix_caching=False, cudagraph_mode="PIECEWISE", quantization="fp8")
    assert words[words.index("--max-num-seqs") + 1] == "64"
    assert "--no-enable-prefix-caching" in words
    assert json.loads(words[words.index("--compilation-config") + 1]) == {"cudagraph_mode": "PIECEWISE"}
    assert words[words.index("--quantization") + 1] == "fp8"


def test_guesses_need_their_settings(folder: Path) -> None:
    backend, task = vllm(folder, allow_lossy=True, draft_model="small")
    words = line(backend, task, speculative_method="draft_model", num_speculative_tokens=4, async_scheduling=False)
    told = json.loads(words[words.index("--speculative-config") + 1])
    assert told == {"method": "draft_model", "num_speculative_tokens": 4, "model": "small"}
    backend, task = vllm(folder, allow_lossy=True)
    assert "draft_model" not in backend.space(task).choices("speculative_method")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"max_num_batched_tokens": 512, "max_num_seqs": 1024}, "number of requests in it"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 8192}, "a whole prompt must fit one step"),
    ],
)
def test_what_vllm_refuses_is_never_proposed(folder: Path, wrong: dict[str, Any], why: str) -> None:
    backend, task = vllm(folder)
    space = backend.space(task)
    told = space.check(Config({**space.default(), **wrong}))
    assert any(why in reason for reason in told), told


def test_parallelism_fits_gpus_and_heads(folder: Path) -> None:
    backend, task = vllm(folder, gpus="8xH100")
    space = backend.space(task)
    assert space.choices("tensor_parallel_size") == (1, 2, 4, 8), "3, 5 and 6 do not divide 32 heads"
    assert space.choices("data_parallel_size", Config(tensor_parallel_size=4)) == (1, 2)
    backend, task = vllm(folder)
    assert "tensor_parallel_size" not in backend.space(task).knobs, "one GPU leaves no choice"


def test_a_large_model_is_spread_over_as_few_gpus_as_hold_it() -> None:
    backend, task = vllm("meta-llama/Llama-3.3-70B-Instruct", gpus="8xH100")
    assert backend.space(task).default()["tensor_parallel_size"] == 2
    assert backend.render(backend.space(task).default(), task, 1).resources.gpus == 2
    backend, task = vllm("meta-llama/Llama-3.1-8B-Instruct", gpus="8xH100")
    assert backend.space(task).default()["tensor_parallel_size"] == 1


def study(folder: Path, **blocks: Any) -> Any:
    workload = {"model": str(folder), "engine_version": "0.24.0", **blocks.pop("workload", {})}
    data = {"system": "vllm", "workload": workload, "hardware": {"gpus": "1xH200", "cores": 16}, "goal": {"slo": ["p95_ttft_ms<=500"]}}
    return prepare(build_campaign({**data, **blocks}, where="test"))


def searched(setup: Any) -> set[str]:
    return {name for name, knob in setup.space.knobs.items() if len(knob.values) > 1}


def test_only_what_matters_is_searched(folder: Path) -> None:
    setup = study(folder)
    assert {"max_num_seqs", "max_num_batched_tokens"} <= searched(setup)
    assert not {"quantization", "kv_cache_dtype", "speculative_method", "num_speculative_tokens", "block_size"} & searched(setup)


def test_knobs_are_freed_and_lossy_ones_allowed(folder: Path) -> None:
    assert "block_size" in searched(study(folder, workload={"free": ["block_size"]}))
    everything = searched(study(folder, workload={"free": ["all"]}))
    assert {"block_size", "stream_interval", "attention_backend"} <= everything
    assert "quantization" not in everything, "answers change only where that is allowed"
    assert {"quantization", "kv_cache_dtype"} <= searched(study(folder, workload={"allow_lossy": True}))


def test_a_knob_that_is_set_need_not_be_freed(folder: Path) -> None:
    setup = study(folder, set={"block-size": 32, "quantization": "fp8"})
    assert (setup.default["block_size"], setup.default["quantization"]) == (32, "fp8")
    with pytest.raises(SpaceError, match="no such knob"):
        study(folder, set={"blok_size": 32})
    with pytest.raises(ConfigError, match=r"set: max_num_seqs: --max-num-seqs takes a whole number \(found 'many'\)"):
        study(folder, set={"max_num_seqs": "many"})
    assert study(folder, set={"max_num_seqs": 5000}).default["max_num_seqs"] == 5000, "whatever the engine takes"


def test_what_is_run_today_need_not_be_on_a_grid(folder: Path) -> None:
    setup = study(folder, set={"max-num-seqs": 100}, first=[{"gpu_memory_utilization": 0.873}])
    assert setup.default["max_num_seqs"] == 100
    assert setup.first[0]["gpu_memory_utilization"] == 0.873
    words = setup.backend.serve(setup.first[0], setup.task)  # type: ignore[attr-defined]
    assert words[words.index("--max-num-seqs") + 1] == "100"
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.873"
    assert 100 not in study(folder).space.knobs["max_num_seqs"], "nobody else searches it"


def test_all_faults_at_once(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        vllm(folder, slo=("p95_ttf_ms<=5",), free=["blok_size"], engine_args={"max_num_seqs": "x", "no-such-flag": 1})
    told = str(caught.value)
    faults = ("p95_ttf_ms", "blok_size", "Did you mean 'block_size'?", "--max-num-seqs takes a whole number", "no_such_flag")
    assert all(part in told for part in faults)
    with pytest.raises(ConfigError, match="there is no such folder"):
        vllm("/no/such/folder")
    with pytest.raises(ConfigError, match=r"input_tokens: .*up to 20000 tokens .*the engine takes 16384 \(found 19000\)\. Give smaller"):
        vllm(folder, input_tokens=19000, output_tokens=1000)
    with pytest.raises(ConfigError, match=r"max_model_len: .*the engine takes 64 \(found 64\)\. Give .*, or a larger max_model_len"):
        vllm(folder, max_model_len=64)
    with pytest.raises(ConfigError, match=r"file: random reads none: workload=sharegpt or trace do \(found 'config\.json'\)"):
        vllm(folder, file="config.json")
    for slo in ("p95_ttft_ms>=500", "p95_ttft_ms<=-5"):
        with pytest.raises(ConfigError, match=r"goal\.slo: a latency is to stay below a number above zero \(found 'p95_ttft_ms"):
            vllm(folder, slo=(slo,))
    with pytest.raises(ConfigError, match=r"arrivals that are burst have a rate\. Example: request_rate=8"):
        vllm(folder, slo=(), arrival="burst")
    with pytest.raises(ConfigError, match="arrivals that are poisson have a rate"):
        VllmBackend().task({"workload": {"model": str(folder)}, "objective": {"metric": "goodput", "slo": ["p95_ttft_ms<=1"]}})
    with pytest.raises(ConfigError, match=r"how many requests are under way\? \(found p99_itl_ms\)\. Give -w concurrency=8"):
        vllm(folder, slo=(), metric="p99_itl_ms")


def test_a_version_keeps_its_zeros(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine_version: .* \(found 0\.1\)\. Write all three parts"):
        vllm(folder, engine_version=0.10)


def test_a_version_that_is_taken_for_granted_is_told(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "installed", lambda _: "")
    vllm(folder, engine_version="", engine_command=["sh", "serve.sh"])
    assert f"taken to be {versions('vllm')[-1]}; -w engine_version=... says another" in caplog.text
    caplog.clear()
    vllm(folder, engine_version="", engine_command=["/no/such/program"])
    assert not caplog.text, "nothing can be started here anyway"


def test_a_guard_that_became_a_limit_does_not_change_the_measurement(folder: Path) -> None:
    backend, task = vllm(folder, slo=(), metric="output_throughput")
    guarded = replace(task.objective, guards=(Guard.parse("p95_ttft_ms<=1.2x"),)).bound({"p95_ttft_ms": 100.0})
    assert [limit.metric for limit in guarded.limits] == ["p95_ttft_ms"]
    plans = [backend.plan(backend.space(task).default(), each, 1) for each in (task, replace(task, objective=guarded))]
    assert plans[0].goal.kind == plans[1].goal.kind == "offline"


def test_paths_hold_in_the_folders_of_trials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "day.csv").write_text("timestamp,input_tokens,output_tokens\n0,8,8\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "vllm").write_text("")
    _, task = vllm(".", workload="trace", file="day.csv", engine_command="bin/vllm serve", draft_model="org/small")
    told = task.workload
    assert (told["model"], told["file"], told["draft_model"]) == (str(folder), str(folder / "day.csv"), "org/small")
    assert told["engine_command"] == [str(folder / "bin" / "vllm"), "serve"]
    _, task = vllm(folder, client="vllm", client_command=["./bin/vllm", "bench", "serve"], concurrency=4)
    assert task.workload["client_command"][0] == str(folder / "bin" / "vllm")
    with pytest.raises(ConfigError, match=r"there is no such file \(found 'no\.csv'\)"):
        vllm(folder, workload="trace", file="no.csv")


def test_a_broken_file_is_refused_before_anything_starts(folder: Path) -> None:
    (folder / "talks.json").write_text('[{"a": 1}]')
    with pytest.raises(ConfigError, match=r"talks\.json: holds no conversation .*Give a list of"):
        vllm(folder, workload="sharegpt", file=str(folder / "talks.json"), concurrency=4)
    (folder / "day.csv").write_text("timestamp,input_tokens,output_tokens\n0,8,?\n")
    with pytest.raises(ConfigError, match=r"day\.csv:2: output_tokens"):
        vllm(folder, workload="trace", file=str(folder / "day.csv"))
    vllm(folder, workload="sharegpt", file=str(folder / "talks.json"), concurrency=4, client="vllm")  # vLLM's own client reads it


def test_more_settings_of_the_engine(folder: Path) -> None:
    backend, task = vllm(folder, engine_args={"max-logprobs": 5, "trust-remote-code": True}, max_model_len=4096)
    words = line(backend, task)
    assert words[words.index("--max-logprobs") + 1] == "5"
    assert "--trust-remote-code" in words
    assert words[words.index("--max-model-len") + 1] == "4096"
    read = yaml.safe_load(backend.export(backend.space(task).default(), task)["config.yaml"])
    assert read == {"max-logprobs": 5, "trust-remote-code": True, "max-model-len": 4096, "load-format": "dummy"}


def test_variables_of_the_engine_are_text(folder: Path) -> None:
    given = {"HF_HUB_OFFLINE": 1, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_USE_V1": True}
    backend, task = vllm(folder, env=given)
    files = backend.export(backend.space(task).default(), task)
    assert files["env"] == "VLLM_NO_USAGE_STATS=1\nHF_HUB_OFFLINE=1\nVLLM_LOGGING_LEVEL=ERROR\nVLLM_USE_V1=true\n"
    assert vllm(folder, env={**given, "HF_HUB_OFFLINE": "1"})[1] == task, "the same study"
    with pytest.raises(ConfigError, match=r"env\.A: must be text"):
        vllm(folder, env={"A": [1]})


@pytest.mark.parametrize(
    ("workload", "slo", "named", "metric", "kind"),
    [
        ({}, ("p95_ttft_ms<=500",), None, "capacity_rps", "capacity"),
        ({"request_rate": 8.0}, ("p95_ttft_ms<=500",), None, "goodput", "goodput"),
        ({"concurrency": 8}, ("p95_ttft_ms<=500",), None, "output_throughput", "latency"),
        ({"concurrency": 8}, (), None, "output_throughput", "latency"),
        ({}, (), None, "output_throughput", "offline"),
        ({"concurrency": 8}, (), "p99_itl_ms", "p99_itl_ms", "latency"),
        ({}, (), "cost_per_million_tokens", "cost_per_million_tokens", "offline"),
        ({}, ("p95_ttft_ms<=500",), "cost_per_million_tokens", "cost_per_million_tokens", "capacity"),
        ({}, ("p95_ttft_ms<=500",), "output_throughput", "output_throughput", "capacity"),
    ],
)
def test_the_goal_follows_from_load_and_limits(
    folder: Path, workload: dict[str, Any], slo: tuple[str, ...], named: str | None, metric: str, kind: str
) -> None:
    backend, task = vllm(folder, slo=slo, metric=named, **workload)
    assert task.objective.metric == metric
    plan = json.loads(backend.render(backend.space(task).default(), task, 3).files[PLAN])
    assert (plan["goal"]["kind"], plan["seed"], plan["model"]) == (kind, 3, str(folder))
    assert plan["load"]["arrival"] == ("poisson" if kind in ("capacity", "goodput") else "closed")
    assert plan["vocab_size"] == 32000


@pytest.mark.parametrize(
    ("workload", "slo", "metric", "arrival", "told"),
    [
        ({}, ("p95_ttft_ms<=500",), "goodput", "closed", "lengths of day.csv; arrivals of the trace."),
        ({"request_rate": 4.0}, ("p95_ttft_ms<=500",), "goodput", "closed", "lengths of day.csv; 4 requests/s, arrivals of the trace."),
        ({"request_rate": 4.0, "arrival": "burst"}, (), "output_throughput", "burst", "lengths of day.csv; 4 requests/s, burst arrivals."),
        ({"concurrency": 4}, ("p95_ttft_ms<=500",), "output_throughput", "closed", "lengths of day.csv; 4 requests in flight."),
        ({}, (), "output_throughput", "closed", "lengths of day.csv; arrivals of the trace."),
    ],
)
def test_a_trace_keeps_its_arrivals(
    folder: Path, workload: dict[str, Any], slo: tuple[str, ...], metric: str, arrival: str, told: str
) -> None:
    (folder / "day.csv").write_text("timestamp,input_tokens,output_tokens\n0,8,8\n")
    backend, task = vllm(folder, slo=slo, workload="trace", file=str(folder / "day.csv"), **workload)
    assert task.objective.metric == metric
    assert backend.plan(backend.space(task).default(), task, 0).load.arrival == arrival
    assert backend.load(task).endswith(told)
    with pytest.raises(ConfigError, match="arrivals that are poisson have a rate"):
        vllm(folder, workload="trace", file=str(folder / "day.csv"), arrival="poisson")


def test_lossy_studies_compare_with_the_default(folder: Path) -> None:
    backend, task = vllm(folder, allow_lossy=True)
    config = backend.space(task).project({**backend.space(task).default(), "quantization": "fp8"})
    plan = json.loads(backend.render(config, task, 1).files[PLAN])
    assert "--quantization" in plan["serve"]
    assert "--quantization" not in plan["check"]["reference"]["serve"]
    backend, task = vllm(folder, free=["speculative_method"])
    freed = json.loads(backend.render(backend.space(task).default(), task, 1).files[PLAN])
    assert freed["check"]["reference"]["serve"] == freed["serve"], "a knob that is freed is guarded too"
    backend, task = vllm(folder)
    plain = json.loads(backend.render(backend.space(task).default(), task, 1).files[PLAN])
    assert plain["check"]["reference"] is None


def test_hints_follow_from_the_limits(folder: Path) -> None:
    backend, task = vllm(folder, slo=("p99_itl_ms<=40",))
    assert [hint["max_num_batched_tokens"] for hint in backend.hints(task)] == [1024, 512]
    backend, task = vllm(folder, slo=("p99_itl_ms<=40",), allow_lossy=True)
    first = backend.hints(task)[0]
    assert (first["max_num_batched_tokens"], first["quantization"], first["kv_cache_dtype"]) == (1024, "fp8", "fp8")
    backend, task = vllm(folder, slo=("p95_ttft_ms<=500",))
    assert backend.hints(task)[0]["max_num_batched_tokens"] == 16384
    assert all(not backend.space(task).check(hint) for hint in backend.hints(task))


def test_the_simulator_is_found_without_being_named(folder: Path) -> None:
    for slo, workload in ((("p99_itl_ms<=40",), {}), ((), {"concurrency": 16})):
        backend, task = vllm(folder, slo=slo, **workload)
        assert find_simulator(backend.space(task).rest(backend.resting(task)), task) == "serving"


def test_sglang_speaks_its_own_words(folder: Path) -> None:
    backend = SglangBackend()
    command = ["python3", "-m", "sglang.launch_server"]
    task = backend.task({"workload": {"model": str(folder), "engine_command": command}, "hardware": {"gpus": "1xH200", "cores": 8}})
    space = backend.space(task)
    assert (space.default()["chunked_prefill_size"], space.default()["max_running_requests"]) == (8192, 2048)
    words = list(backend.serve(space.project({**space.default(), "disable_radix_cache": True, "schedule_policy": "lof"}), task))
    assert words[:5] == [*command, "--model-path", str(folder)]
    assert "--disable-radix-cache" in words
    assert words[words.index("--schedule-policy") + 1] == "lof"


@pytest.mark.parametrize("name", ["plain", "two words", "it's", 'a "quoted" $HOME {name} `pwd` \\\\ end', "}"])
def test_the_start_script_starts_the_engine(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE))
    (folder / "model.safetensors").write_text("")
    (folder / "tokenizer.json").write_text("{}")
    backend, task = vllm(folder, env={"SALT": "$HOME"})
    home = tmp_path / "best"
    made = backend.export(backend.space(task).default(), task)
    write_folder(home, made)
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$SALT"\n')
    program.chmod(0o755)

    def told(**env: str) -> list[str]:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PORT": "9", **env}
        return subprocess.check_output(["sh", str(home / "run.sh"), "--more"], env=env, text=True).split("\n")

    rest = ["--config", str(home / "config.yaml"), "--host", "127.0.0.1", "--port", "9", "--more", "$HOME", ""]
    assert told() == ["serve", str(folder), *rest]
    assert told(MODEL="its new place") == ["serve", "its new place", *rest]
    pod = next(yaml.safe_load_all(made["k8s_deploy.yaml"]))["spec"]["template"]["spec"]
    literal = str(folder).replace("$", "$$")  # both would fill in variables
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "model")
    assert (pod["containers"][0]["args"][0], volume["hostPath"]["path"]) == (literal, str(folder))
    assert {"name": "SALT", "value": "$$HOME"} in pod["containers"][0]["env"]
    service = yaml.safe_load(made["compose.yaml"])["services"]["llm"]
    assert (service["command"][0], service["volumes"][-1]["source"], service["volumes"][-1]["target"]) == (literal, literal, literal)
    assert service["environment"]["SALT"] == "$$HOME"


def test_containers_get_what_is_not_in_their_image(folder: Path) -> None:
    def containers(model: Path | str, **workload: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        backend, task = vllm(model, draft_model=str(folder), free=["speculative_method"], **workload)
        space = backend.space(task)
        guessing = {"speculative_method": "draft_model", "async_scheduling": False}
        made = backend.export(space.project({**space.default(), **guessing}), task)
        pod = next(yaml.safe_load_all(made["k8s_deploy.yaml"]))["spec"]["template"]["spec"]["containers"][0]
        return pod, yaml.safe_load(made["compose.yaml"])["services"]["llm"]

    pod, service = containers("meta-llama/Llama-3.1-8B-Instruct")
    assert {"name": "draft-model", "mountPath": str(folder), "readOnly": True} in pod["volumeMounts"]
    assert service["volumes"][-1]["source"] == str(folder)
    token = next(entry for entry in pod["env"] if entry["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hf-token", "key": "token", "optional": True}
    assert service["environment"]["HF_TOKEN"] is None, "Compose takes that of whoever starts it"
    for model, given in ((folder, {}), ("meta-llama/Llama-3.1-8B-Instruct", {"HF_TOKEN": "mine"})):
        pod, service = containers(model, env=given)
        assert [entry.get("value") for entry in pod["env"] if entry["name"] == "HF_TOKEN"] == list(given.values())
        assert service["environment"].get("HF_TOKEN", "absent") == given.get("HF_TOKEN", "absent")
