from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from report_studies import DEFAULT, KNOBS, Note, make_study, make_task, make_trial, page_of, result_of, simulated

from autoscout.core.config import Config
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Status, Trial
from autoscout.report.page import page
from autoscout.report.view import StudyView

VOID = {"meta", "input", "br"}


class Reader(HTMLParser):
    """Reads a page strictly: every element must be closed in order; gathers elements and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, text: str) -> None:
        self.words.append(text)

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.elements if found == name]


def make_page(task: Task, trials: list[Trial], default: Config = DEFAULT, knobs: tuple[Note, ...] = KNOBS) -> str:
    view = StudyView(
        result=result_of(task, trials, default, knobs=knobs),
        commands=["./best/run.sh --port <port>"],
        starts={"default": "engine --threads 4"},
        links={trial.number: f"trials/{trial.number}/stderr.log" for trial in trials if not trial.ok},
    )
    return page(view)


def data_of(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def test_a_whole_study() -> None:
    trials = make_study(60)
    text = make_page(make_task(limits=["p95_ttft_ms<=90"]), trials)
    reader = Reader(text)
    assert len([1 for attributes in reader.named("tr") if attributes.get("data-i")]) == len(trials)
    lines = [attributes for attributes in reader.named("path") if "line" in (attributes.get("class") or "").split()]
    assert len(lines) == len(trials)
    dots = [a for name in ("circle", "path") for a in reader.named(name) if "dot" in (a.get("class") or "").split()]
    assert len([a for a in dots if a.get("data-i")]) == len(trials), "of the search"
    for kind in ("convergence", "timeline", "tradeoff", "importance", "slice", "contour", "parallel"):
        assert any(kind in (a.get("class") or "").split() for a in reader.named("svg")), kind
    rows = data_of(text)["trials"]
    assert isinstance(rows, dict)
    assert len(rows) == len(trials)
    words = " ".join(reader.words)
    for word in (
        "Default and best",
        "Knob importance",
        "predicted",
        "Failures",
        "Measured with",
        "./best/run.sh --port <port>",
        "xllamacpp",
        "engine --threads 4",
        "Workers and failures over time",
        "Load: prompt_tokens 128",
    ):
        assert word in words


def test_nothing_is_fetched_and_only_our_script_runs() -> None:
    text = make_page(make_task(), make_study(20))
    reader = Reader(text)
    policy = next(a["content"] for a in reader.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    for _, attributes in reader.elements:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "trials/"))
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(reader.named("script")) == 2


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--<script>",
    "]]></style><svg onload=alert(1)>",
    "&lt;b&gt; &amp; &#60;",
    "\x1b[31mred\x1b[0m \x00\x07 \u202egnp.exe \ud800",
    "{{7*7}} ${x} %s {0}",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text(hostile: str) -> None:
    word = hostile.replace("\ud800", "")  # names are made of knobs; a lone surrogate cannot be hashed into one
    default = Config({word: word, "other": 1})
    trials = [make_trial(0, default, 10.0)]
    for number in range(1, 14):
        config = Config({word: word + str(number % 3), "other": number})
        if number % 4 == 0:
            trials.append(make_trial(number, config, status=Status.CRASHED, reason=hostile, log_tail=hostile * 3))
        else:
            trials.append(make_trial(number, config, 10.0 + number, origin={hostile: hostile}, metrics={hostile: 1.0}))
    task = Task(
        system=hostile,
        objective=make_task().objective,
        workload={hostile: hostile, "list": [hostile]},
        hardware={"cpu": hostile},
        software={hostile: {"deep": hostile}},
    )
    knobs = (Note(word, unit=hostile, help=hostile),)
    harmless = Reader(make_page(make_task(), [make_trial(i, DEFAULT.extend(noise=i), 1.0 + i) for i in range(14)]))
    result = result_of(task, trials, default, knobs=knobs, study=hostile)
    vars(result)["name_of"] = lambda config: hostile
    text = page(StudyView(result=result, commands=[hostile]))
    text.encode("utf-8")
    reader = Reader(text)
    assert {name for name, _ in reader.elements} - {name for name, _ in harmless.elements} <= {
        "summary",
        "details",
        "pre",
        "h3",
        "ins",
        "del",
        "figcaption",
    }
    assert len(reader.named("script")) == 2
    assert not reader.named("img")
    for _, attributes in reader.elements:
        assert not any(name.startswith("on") for name in attributes)
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert isinstance(data_of(text)["trials"], dict)


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [make_trial(0, DEFAULT, 10.0)],
        [make_trial(0, DEFAULT, status=Status.OOM_START, reason="no memory")],
        [make_trial(i, DEFAULT.extend(noise=i), status=Status.CRASHED) for i in range(20)],
        [make_trial(0, DEFAULT, 10.0), make_trial(1, DEFAULT.extend(noise=1), 10.0)],
        [simulated(0, DEFAULT, 1.0), simulated(1, DEFAULT.extend(noise=1), 2.0), make_trial(2, DEFAULT, 1.5)],
        [make_trial(i, DEFAULT.extend(noise=i), float(i - 5)) for i in range(12)],
        [make_trial(i, DEFAULT.extend(noise=i), 10.0 ** (i - 4)) for i in range(12)],
        [make_trial(i, DEFAULT.extend(noise=i), 0.0) for i in range(12)],
    ],
    ids=["empty", "one", "one failed", "all failed", "equal", "simulated", "negative", "wide", "zero"],
)
@pytest.mark.parametrize("direction", list(Direction))
def test_studies_of_every_shape_give_a_page(trials: list[Trial], direction: Direction) -> None:
    text = make_page(make_task(direction=direction), trials)
    reader = Reader(text)
    assert reader.named("h1")
    assert "nan" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL).lower().split('"')
    data_of(text)


def test_the_verdict_is_the_first_thing_said() -> None:
    words = Reader(make_page(make_task(), make_study(40))).words
    text = " ".join(words)
    assert text.index("gain") < text.index("Default and best")
    assert "Keep the default." not in text
    none = " ".join(Reader(make_page(make_task(), [make_trial(0, DEFAULT, 10.0)])).words)
    assert "not decided" in none
    assert "Until then keep the default." in none


def test_a_huge_study_draws_a_choice_of_lines_but_lists_every_trial() -> None:
    trials = [make_trial(i, DEFAULT.extend(noise=i), 10.0 + (i * 7919) % 1000) for i in range(2000)]
    task = make_task()
    text = page_of(task, trials)
    reader = Reader(text)
    lines = [attributes for attributes in reader.named("path") if "line" in (attributes.get("class") or "").split()]
    assert 1500 <= len(lines) < 1600
    assert len([1 for attributes in reader.named("tr") if attributes.get("data-i")]) == 2000
    assert "of 2000 trials" in text
    rows = data_of(text)["trials"]
    assert isinstance(rows, dict)
    assert rows[lines[0]["data-i"]]["places"] is not None
