"""Speculative decoding of vLLM and SGLang: what is offered, what goes together, what is searched, and with which load."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from _cli_program import run
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.engines.model import draft_kind
from autoscout.load.plan import PLAN
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
COMMANDS = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
METHOD = {"vllm": "speculative_method", "sglang": "speculative_algorithm"}
DEEPSEEK, QWEN = "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3-8B"
STAND_IN = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "129280"]


def study(engine: str = "vllm", model: str = DEEPSEEK, workload: dict[str, Any] | None = None, **blocks: Any) -> Setup:
    usual = {"model": model, "concurrency": 8, "engine_version": VERSIONS[engine], "engine_command": COMMANDS[engine]}
    data = {"system": engine, "workload": {**usual, **(workload or {})}, "hardware": {"gpus": "8xH200", "cores": 16}, **blocks}
    return prepare(build_campaign(data, where="test"))


def searched(setup: Setup) -> set[str]:
    return {name for name, knob in setup.space.knobs.items() if len(knob.values) > 1}


def line(setup: Setup, **changes: Any) -> str:
    return " ".join(setup.backend.serve(setup.complete(changes), setup.task))


def plan(setup: Setup, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(setup.backend.render(setup.complete(changes), setup.task, 1).files[PLAN])
    return made


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", ""),
        ("Qwen/Qwen3-0.6B", "draft_model"),
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
        ("AngelSlim/Qwen3-8B_eagle3", "eagle3"),
        ("z-lab/Qwen3-8B-DFlash", "dflash"),
        ("deepseek-ai/dspark_qwen3_8b_block7", "dspark"),
        ("lmsys/DeepSeek-R1-NextN", "mtp"),
    ],
)
def test_what_a_draft_model_is_made_for(name: str, kind: str) -> None:
    assert draft_kind(name) == kind


def test_the_architecture_of_a_folder_says_more_than_its_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]}))
    assert draft_kind(str(tmp_path)) == "eagle3"


@pytest.mark.parametrize(
    ("engine", "model", "draft", "methods"),
    [
        ("vllm", DEEPSEEK, "", {"none", "mtp"}),
        ("vllm", QWEN, "", {"none", "ngram"}),
        ("vllm", QWEN, "AngelSlim/Qwen3-8B_eagle3", {"none", "eagle3"}),
        ("vllm", QWEN, "Qwen/Qwen3-0.6B", {"none", "draft_model"}),
        ("sglang", DEEPSEEK, "", {"none", "NEXTN"}),
        ("sglang", QWEN, "AngelSlim/Qwen3-8B_eagle3", {"none", "EAGLE3"}),
        ("sglang", QWEN, "Qwen/Qwen3-0.6B", {"none", "STANDALONE"}),
    ],
)
def test_methods_that_the_model_can_do(engine: str, model: str, draft: str, methods: set[str]) -> None:
    setup = study(engine, model, {"draft_model": draft} if draft else {})
    has_guesser = model == DEEPSEEK or bool(draft)
    assert (METHOD[engine] in searched(setup)) == has_guesser, "searched where the model or its user brings what guesses"
    free = study(engine, model, {"draft_model": draft, "free": [METHOD[engine]]})
    assert set(free.space.choices(METHOD[engine])) == methods


def test_knobs_of_speculation_rest_with_it() -> None:
    for engine, knob in (("vllm", "num_speculative_tokens"), ("sglang", "speculative_num_steps")):
        assert knob in searched(study(engine, DEEPSEEK))
        assert knob not in searched(study(engine, QWEN))
        named = study(engine, QWEN, space={"knobs": {METHOD[engine]: {"values": ["none", "ngram" if engine == "vllm" else "NGRAM"]}}})
        assert ("prompt_lookup_max" if engine == "vllm" else "speculative_num_draft_tokens") in searched(named)
        assert "suffix_decoding_max_tree_depth" not in searched(named)


def test_a_method_that_is_named_brings_its_knobs() -> None:
    setup = study(model=QWEN, space={"knobs": {"speculative_method": {"values": ["none", "suffix"]}}})
    told = line(setup, speculative_method="suffix", num_speculative_tokens=16, suffix_decoding_max_tree_depth=32)
    assert '"suffix_decoding_max_tree_depth": 32' in told
    assert '"num_speculative_tokens": 16' in told
    assert {"suffix_decoding_max_tree_depth", "suffix_decoding_min_token_prob"} <= searched(setup)


def test_first_comes_what_the_model_is_made_for() -> None:
    assert study().backend.hints(study().task)[0]["speculative_method"] == "mtp"
    setup = study("sglang", QWEN, {"draft_model": "x/eagle3"})
    assert setup.backend.hints(setup.task)[0]["speculative_algorithm"] == "EAGLE3"
    assert study(model=QWEN).backend.hints(study(model=QWEN).task)[0].get("speculative_method") == "none"


def test_command_lines() -> None:
    assert '--speculative-config {"method": "mtp", "num_speculative_tokens": 2}' in line(
        study(), speculative_method="mtp", num_speculative_tokens=2
    )
    lookup = line(
        study(model=QWEN, workload={"free": ["speculative_method"]}), speculative_method="ngram", prompt_lookup_max=4, prompt_lookup_min=2
    )
    assert '"prompt_lookup_max": 4, "prompt_lookup_min": 2' in lookup
    eagle = line(study(model=QWEN, workload={"draft_model": "x/eagle3"}), speculative_method="eagle3")
    assert '"model": "x/eagle3"' in eagle
    tree = line(study("sglang", QWEN, {"draft_model": "x/eagle3"}), speculative_algorithm="EAGLE3", speculative_num_steps=5,
                speculative_eagle_topk=4, speculative_num_draft_tokens=16)  # fmt: skip
    for words in ("--speculative-algorithm EAGLE3", "--speculative-num-steps 5", "--speculative-eagle-topk 4",
                  "--speculative-num-draft-tokens 16", "--speculative-draft-model-path x/eagle3"):  # fmt: skip
        assert words in tree
    assert "--speculative-draft-model-path" not in line(study("sglang"), speculative_algorithm="NEXTN")
    assert "--enable-metrics" in tree, "or it would count nothing"


def test_what_sglang_would_change_is_not_proposed() -> None:
    setup = study("sglang")
    chain = setup.complete({"speculative_algorithm": "NEXTN", "speculative_num_steps": 5})
    assert (chain["speculative_eagle_topk"], chain["speculative_num_draft_tokens"]) == (1, 6)
    for wrong in (
        {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 8},
        {"speculative_eagle_topk": 2, "speculative_num_draft_tokens": 32},
    ):
        with pytest.raises(AutoScoutError):
            setup.complete({"speculative_algorithm": "NEXTN", "speculative_num_steps": 3, **wrong})


def test_guesses_come_in_whole_rounds(tmp_path: Path) -> None:
    """vLLM refuses other numbers above the number of layers that guess."""
    config = {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
              "intermediate_size": 512, "vocab_size": 2048, "max_position_embeddings": 4096, "num_nextn_predict_layers": 3}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    setup = study(model=str(tmp_path))
    fits = set(setup.space.choices("num_speculative_tokens", Config(speculative_method="mtp")))
    assert fits == {1, 2, 3, 6, 12}


@pytest.mark.parametrize(
    ("engine", "model", "launch", "words"),
    [
        ("sglang", DEEPSEEK, "--speculative-algo EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
         "--speculative-num-draft-tokens 4",
         "--speculative-algorithm EAGLE "),
        ("sglang", QWEN, "--speculative-algorithm EAGLE3 --speculative-draft-model-path x/y --speculative-num-steps 5 "
         "--speculative-eagle-topk 8 --speculative-num-draft-tokens 64", "--speculative-draft-model-path x/y"),
        ("sglang", QWEN, "--speculative-algorithm NGRAM --speculative-num-draft-tokens 16", "--speculative-num-draft-tokens 16"),
        ("vllm", DEEPSEEK, """--speculative-config '{"method": "mtp", "num_speculative_tokens": 9}'""", '"num_speculative_tokens": 9'),
        ("vllm", QWEN, """--speculative-config '{"method": "suffix", "num_speculative_tokens": 32}'""", '"method": "suffix"'),
        ("vllm", QWEN, """--speculative-config '{"method": "eagle", "model": "x/y", "num_speculative_tokens": 2}'""", '"model": "x/y"'),
    ],
)  # fmt: skip
def test_what_people_run_is_where_a_study_begins(engine: str, model: str, launch: str, words: str) -> None:
    start = {"vllm": f"vllm serve {model}", "sglang": f"python3 -m sglang.launch_server --model-path {model}"}[engine]
    setup = study(engine, model, **{"from": f"{start} {launch}"})
    assert setup.baseline is not None
    assert words in " ".join(setup.backend.serve(setup.baseline, setup.task))
    assert plan(setup)["load"]["text"] == "mixed"


def test_a_model_that_guesses_is_needed() -> None:
    with pytest.raises(AutoScoutError, match="draft_model"):
        study(model=QWEN, set={"speculative_method": "eagle3"})
    setup = study(model=QWEN, set={"speculative_method": "mtp"})
    assert '"method": "mtp"' in line(setup), "what AutoScout does not know of a model is no wall"


def test_the_load_is_text_where_tokens_are_guessed() -> None:
    assert plan(study())["load"]["text"] == "mixed"
    assert "cut from English prose" in study().backend.load(study().task)
    assert plan(study(set={"speculative_method": "mtp"}))["load"]["text"] == "mixed", "it is pinned: always on"
    assert plan(study(set={"speculative_method": "none"}))["load"]["text"] == ""
    assert plan(study(model=QWEN))["load"]["text"] == ""
    assert plan(study(workload={"text": "none"}))["load"]["text"] == "none", "whoever asks for random tokens gets them"
    assert plan(study(workload={"text": "code"}))["load"]["text"] == "code"
    assert plan(study(model=QWEN, workload={"free": ["speculative_method"]}))["load"]["text"] == "mixed"
    carried = {"engine_args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}}
    assert plan(study(workload=carried))["load"]["text"] == "mixed"


def test_answers_are_compared_without_consent() -> None:
    """Guessing should change no answer, so it needs no `--allow-lossy`; whether that holds is measured."""
    setup = study()
    reference = plan(setup, speculative_method="mtp")["check"]["reference"]
    assert "--speculative-config" not in reference["serve"]
    assert plan(study(set={"speculative_method": "mtp"}))["check"]["reference"] is None


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_study_from_campaign_to_report(engine: str, tmp_path: Path) -> None:
    """With the knob of the engine's speculation, a flag and a variable that the campaign adds."""
    knobs: dict[str, Any] = {
        "vllm": {
            "speculative_method": {"values": ["none", "mtp"]},
            "num_speculative_tokens": {"values": [1, 3]},
            "linear_backend": {"values": ["auto", "cutlass"]},
        },
        "sglang": {
            "speculative_algorithm": {"values": ["none", "NEXTN"]},
            "speculative_num_steps": {"values": [1, 3]},
            "scheduler_recv_interval": {"values": [1, 4]},
        },
    }[engine]
    campaign = {
        "system": engine,
        "workload": {
            "model": DEEPSEEK, "engine_version": VERSIONS[engine], "engine_command": STAND_IN, "concurrency": 2, "requests": 12,
            "input_tokens": 64, "output_tokens": 24, "warmup": 2,
        },
        "hardware": {"gpus": 0, "cores": 2},
        "goal": {"metric": "output_throughput"},
        "space": {"knobs": {**knobs, "symm_mem": {"env": "SOME_SWITCH", "values": [0, 1]}}},
        "budget": {"trials": 2},
        "finals": {"rounds": 1, "finalists": 1, "simplify": False},
        "measure": {"dirty_repeats": 0},
        "simulate": {"simulator": "none"},
        "name": "guesses",
    }  # fmt: skip
    (tmp_path / "campaign.json").write_text(json.dumps(campaign))
    done = run(tmp_path, "tune", "campaign.json", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "cut from English prose and Python code" in json.dumps(said)
    trials = [json.loads(text) for text in (tmp_path / "autoscout_results" / "guesses" / "trials.jsonl").read_text().splitlines()]
    guessing = [trial for trial in trials if "acceptance_rate" in json.dumps(trial)]
    assert guessing
    page = (tmp_path / "autoscout_results" / "guesses" / "report.html").read_text()
    assert "acceptance_length" in page
