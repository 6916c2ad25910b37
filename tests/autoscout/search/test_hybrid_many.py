"""Thousands of answers: the model learns from some of them, and a look at the answers costs what is new."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.search.hybrid import HybridSearcher, tuning
from autoscout.search.hybrid.searcher import bounded
from autoscout.space import Grid, Space
from autoscout.testing.searcher import TASK

SPACE = Space([Grid("x", 0, 60), Grid("y", 0, 60)])
MANY = tuning.MAX_ANSWERS + 300


def trials(count: int) -> list[Trial]:
    """Random ones, none twice; one in ten fails."""
    rng, configs = random.Random(5), [Config(x=x, y=y) for x in range(61) for y in range(61)]
    made = []
    for number, config in enumerate(rng.sample(configs, count)):
        value = (config["x"] - 20) ** 2 + (config["y"] - 30) ** 2 + 1.0  # type: ignore[operator]
        failed = number % 10 == 9
        answer = Measurement(status=Status.CRASHED if failed else Status.OK, metrics={} if failed else {TASK.objective.metric: value})
        made.append(Trial(proposal=Proposal(config=config, origin=Origin(by="hybrid", notes={"round": number})), measurement=answer))
    return made


def answers_to(some: list[Trial]) -> list[Answer]:
    answers = AnswerSet(SPACE, TASK.objective)
    answers.add(some)
    return answers.answers()


def keys(answers: Iterable[Answer]) -> set[str]:
    return {answer.key for answer in answers}


def test_few_answers_are_all_learnt_from() -> None:
    few = answers_to(trials(tuning.MAX_ANSWERS))
    assert bounded(few) is few


def test_of_many_answers_the_best_the_newest_and_others_are_learnt_from() -> None:
    many = answers_to(trials(MANY))
    some = bounded(many)
    assert len(some) == tuning.MAX_ANSWERS
    assert list(some) == sorted(some, key=lambda answer: answer.age), "oldest first"
    best = sorted(many, key=lambda answer: answer.loss)[: 2 * tuning.MAX_ANSWERS // 5]
    newest = tuning.MAX_ANSWERS // 5
    for part in (best, many[-newest:]):
        assert keys(part) <= keys(some)
    assert any(answer.failed for answer in some[:-newest]), "failures too"


def test_the_choice_hardly_changes_from_step_to_step() -> None:
    some = trials(MANY)
    before, after = bounded(answers_to(some[:-1])), bounded(answers_to(some))
    assert len(keys(after) - keys(before)) <= 2


def test_each_of_several_goals_has_its_best() -> None:
    many = [Answer(Config(x=n), float(n), Origin(), (n, 0, Config(x=n).key), losses=(float(n), float(MANY - n) % 617)) for n in range(MANY)]
    least = sorted(many, key=lambda answer: (answer.losses[1], answer.key))[: tuning.MAX_ANSWERS // 5]
    assert keys(least) <= keys(bounded(many))


def test_proposals_after_many_trials_depend_on_what_was_told_alone() -> None:
    some = trials(MANY)
    proposals = []
    for order in (some, some[::-1]):
        searcher = HybridSearcher(SPACE, TASK, seed=1)
        for at in range(0, MANY, 100):
            searcher.tell(order[at : at + 100])
        proposals.append(searcher.ask(2))
    assert proposals[0] == proposals[1]
    assert [proposal.origin.notes["round"] for proposal in proposals[0]] == [MANY, MANY + 1], "all are counted"


def test_the_model_never_inverts_a_larger_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    from autoscout.learning.gaussian import Process

    sizes: list[int] = []
    condition = Process.condition

    def watched(self: Process, rows: object, *others: object) -> None:
        sizes.append(len(rows))  # type: ignore[arg-type]
        condition(self, rows, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Process, "condition", watched)
    searcher = HybridSearcher(SPACE, TASK)
    searcher.tell(trials(MANY))
    assert searcher.ask(1)
    assert sizes
    assert max(sizes) <= tuning.MAX_ANSWERS


def test_a_look_at_the_answers_costs_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    make = AnswerSet._answer

    def counting(self: AnswerSet, config: Config) -> Answer:
        nonlocal made
        made += 1
        return make(self, config)

    monkeypatch.setattr(AnswerSet, "_answer", counting)
    answers = AnswerSet(SPACE, TASK.objective)
    for trial in trials(200):
        answers.add([trial])
        answers.answers()
    assert made == 200
    again = trials(200)[7]
    answers.add([Trial(proposal=Proposal(config=again.config, repeat=1), measurement=Measurement(status=Status.CRASHED))])
    (one,) = [answer for answer in answers.answers() if answer.config == again.config]
    assert math.isinf(one.loss), "what is told of it again counts"
    assert made == 201
    assert answers.answers() == sorted(answers.answers(), key=lambda answer: answer.age)
