"""What a study tells an executor: of `slots` and `folder` those that its options declare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoscout.core import plugins
from autoscout.core.errors import ConfigError
from autoscout.study.assemble import build_executor
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare

GET = plugins.get


@dataclass(frozen=True, kw_only=True)
class Both:
    slots: int = 1
    folder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Neither:
    queue: str = "short"


class WithBoth:
    def __init__(self, options: Both | None = None) -> None:
        self.options = options


class WithNeither:
    def __init__(self, options: Neither | None = None) -> None:
        self.options = options


class WithoutOptions:
    options = None


def setup(monkeypatch: pytest.MonkeyPatch, kind: type, **options: Any) -> Setup:
    data = {
        "system": "function",
        "workload": {"function": "math:sqrt"},
        "space": {"knobs": {"x": {"range": [0, 3]}}},
        "search": {"workers": 3},
        "execute": {"executor": "mine", "options": options},
    }
    found = prepare(build_campaign(data, where="test"))
    monkeypatch.setattr(plugins, "get", lambda asked, name: kind if asked == "executor" else GET(asked, name))
    return found


def test_both_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = build_executor(setup(monkeypatch, WithBoth), Path("results"))
    assert made.options == Both(slots=3, folder="results")
    assert build_executor(setup(monkeypatch, WithBoth), None).options == Both(slots=3)  # type: ignore[attr-defined]


def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = build_executor(setup(monkeypatch, WithBoth, slots=2), Path("results"))
    assert made.options == Both(slots=2, folder="results")


def test_an_executor_that_declares_neither_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = build_executor(setup(monkeypatch, WithNeither, queue="long"), Path("results"))
    assert made.options == Neither(queue="long")
    assert isinstance(build_executor(setup(monkeypatch, WithoutOptions), Path("results")), WithoutOptions)


def test_what_a_user_sets_must_be_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"execute\.options \(mine\): slots: unknown option"):
        build_executor(setup(monkeypatch, WithNeither, slots=2), Path("results"))
