"""Loads whose prompts are cut from a text."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from serving_trials import plan, run

from autoscout.core.errors import ConfigError
from autoscout.core.seeds import stream
from autoscout.core.trial import Status
from autoscout.load.goals import description, file_faults
from autoscout.load.plan import Load, TrialPlan
from autoscout.load.text import PIECE, SHIPPED, PromptText, even_parts, pieces, read_text
from autoscout.load.workload import PlannedRequest, RequestSource

MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
WORDS = [f"w{number} " for number in range(5000)]
LENGTHS = {"input_tokens": 100, "input_spread": 60, "output_tokens": 20, "output_spread": 10}


def requests(name: str, text: PromptText | None, **load: Any) -> list[PlannedRequest]:
    source = RequestSource(Load.model_validate({**LENGTHS, **load}), 1000, 7, text)
    return [request for session in islice(source.sessions(name), 50) for request in session]


def test_prompts_have_the_lengths_of_random_ones() -> None:
    text = PromptText(range(5000), [[1, 2, 3], [4, 5, 6, 7]])
    for load in ({}, {"prefix_tokens": 30}, {"workload": "multi_turn", "turns": 3}, {"workload": "multi_turn", "context": 300}):
        cut, random = requests("a", text, **load), requests("a", None, **load)
        assert [(one.input_tokens, one.output_tokens) for one in cut] == [(one.input_tokens, one.output_tokens) for one in random]


def test_prompts_are_passages_and_no_two_begin_alike() -> None:
    prompts = [one.prompt for name in "ab" for one in requests(name, PromptText(range(5000)))]
    assert all(isinstance(prompt, list) for prompt in prompts)
    assert len({tuple(prompt[:16]) for prompt in prompts}) == len(prompts)
    steps = [later - earlier for prompt in prompts for earlier, later in pairwise(prompt[4:])]  # type: ignore[operator]
    assert steps.count(1) > 0.99 * len(steps)
    assert requests("a", PromptText(range(5000))) == requests("a", PromptText(range(5000)))


def test_a_prompt_longer_than_the_text_repeats_it() -> None:
    assert len(PromptText(range(10), [[1]]).draw(stream(1, "x"), 333)) == 333
    assert len(PromptText(range(10), [[1]]).draw(stream(1, "x"), 2)) == 2


def test_words_become_one_text() -> None:
    (first, *_) = requests("a", PromptText(WORDS))
    assert isinstance(first.prompt, str)
    assert len(first.prompt.split()) == len(requests("a", None)[0].prompt)


def test_texts_that_come_along() -> None:
    prose, code = read_text("prose"), read_text("code")
    assert len(prose) > 100_000
    assert len(code) > 300_000
    assert " the " in prose
    assert "\ndef " in code
    assert read_text("mixed") == f"{prose}\n\n{code}"
    for text in (prose, code, "x" * 5000, "short"):
        parts = list(pieces(text))
        assert "".join(parts) == text
        assert max(map(len, parts)) <= PIECE
    assert "".join(even_parts("some words here", 4)) == "some words here"


def test_a_text_is_no_text(tmp_path: Path) -> None:
    binary = tmp_path / "weights.bin"
    binary.write_bytes(b"\xff\x00\xfe" * 10)
    for name in (str(tmp_path / "absent.txt"), str(binary)):
        (fault,) = file_faults(Load(text=name))
        assert fault.field == "text"
        assert all(word in fault.fix for word in SHIPPED)


@pytest.mark.parametrize(
    ("load", "rule"),
    [
        ({"workload": "sharegpt", "file": "x.json", "text": "prose"}, "are the text"),
        ({"client": "vllm", "text": "code"}, "only builtin"),
        ({"endpoint": "chat", "text": "none"}, "chat sends words"),
    ],
)
def test_loads_that_have_no_use_for_a_text(load: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        TrialPlan.of({"serve": ["{port}"], "model": "m", "load": load})


def test_the_load_says_which_text() -> None:
    assert "cut from English prose and Python code" in description(Load(text="mixed"), "offline")
    assert "cut from the text of notes.txt" in description(Load(text="/home/me/notes.txt"), "offline")
    assert "cut from" not in description(Load(text="none"), "offline")
    assert "cut from English prose" in description(Load(endpoint="chat"), "offline"), "a chat sends words"


def test_guesses_are_right_on_text_only(tmp_path: Path) -> None:
    found = {}
    for text in ("none", "mixed"):
        (folder := tmp_path / text).mkdir()
        found[text], _ = run(plan(*MTP, load={"text": text, "input_tokens": 80}), folder)
        assert found[text].status is Status.OK, found[text].reason
    random, real = found["none"].metrics, found["mixed"].metrics
    assert real["acceptance_rate"] > 3 * random["acceptance_rate"]
    assert real["acceptance_length"] > 1.8
    assert (real["input_tokens"], real["output_tokens"]) == (random["input_tokens"], random["output_tokens"])
    assert real["prefix_hit_share"] == 0


def test_own_text_as_words_of_a_chat(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("\n".join(f"line {number} of my own notes" for number in range(2000)))
    found, _ = run(plan(*MTP, load={"text": str(tmp_path / "notes.txt"), "endpoint": "chat"}), tmp_path)
    assert found.status is Status.OK, found.reason
    assert found.metrics["acceptance_length"] > 1.8


def test_a_server_without_a_tokenizer(tmp_path: Path) -> None:
    found, _ = run(plan(load={"text": "prose"}, tokenize_path="/nothing"), tmp_path)
    assert found.status is Status.CRASHED
    assert "turns no text into tokens" in found.reason
