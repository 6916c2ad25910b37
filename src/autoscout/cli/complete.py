"""What the Tab key offers for values: names of plug-ins, knobs and their values, metrics, result folders.

Each function is asked by the shell while somebody types: it never raises, never prints, and imports only when it is asked.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import typer

MOST = 200
"""Values that are offered; nobody reads more."""
VARIABLE = "_AUTOSCOUT_COMPLETE"
"""By which a shell asks, and in which it says which one it is."""

Answer = TypeVar("Answer")
Offer = list[tuple[str, str]]
"""Words with their help, which zsh and fish show."""


def targets(incomplete: str) -> Offer:
    """Backends, and campaign files."""
    return [*_plugins("backend", incomplete), *((path, "") for path in _paths(incomplete, _is_campaign))]


def systems(incomplete: str) -> Offer:
    """Systems whose speed can be predicted."""
    from autoscout.estimate.pins import SERVING_SYSTEMS, TRAINING_SYSTEMS

    return _beginning({**dict.fromkeys(SERVING_SYSTEMS, "serving"), **dict.fromkeys(TRAINING_SYSTEMS, "training")}, incomplete)


def models(incomplete: str) -> Offer:
    """Models whose shape is known."""
    from autoscout.catalog.models import accepted_names

    return _beginning(dict.fromkeys(accepted_names(), ""), incomplete)


def searchers(incomplete: str) -> Offer:
    """Who can propose."""
    return _plugins("searcher", incomplete)


def executors(incomplete: str) -> Offer:
    """Where trials can run."""
    return _plugins("executor", incomplete)


def trackers(incomplete: str) -> Offer:
    """Where a study can be shown."""
    return _plugins("tracker", incomplete)


def simulators(incomplete: str) -> Offer:
    """Who can predict."""
    return [*_beginning({"auto": "one that fits", "none": "measure only"}, incomplete), *_plugins("simulator", incomplete)]


def directions(incomplete: str) -> Offer:
    """Which way is better."""
    return _beginning({"minimize": "", "maximize": ""}, incomplete)


def metrics(ctx: typer.Context, incomplete: str) -> Offer:
    """Metrics by name; those that a campaign reads itself come first."""
    from autoscout.report.meanings import LATENCIES, MEANINGS, STATISTICS

    own: list[str] = _spare(lambda: _own_metrics(_given(ctx)), [])
    latencies = {f"{statistic}_{name}": text for statistic in STATISTICS for name, text in LATENCIES.items()}
    meanings = {name: text for group in MEANINGS.values() for name, text in group.items()}
    return _beginning({**latencies, **meanings, **dict.fromkeys(own, "of this campaign")}, incomplete)


def folders(incomplete: str) -> Offer:
    """Result folders: those in the usual place, and those that a path leads to."""
    from autoscout.study.folder import DEFAULT

    usual = [str(home) for home in _entries(DEFAULT) if _is_result(home)]
    offer = [path for path in usual if path.startswith(incomplete)]
    return [(path, "") for path in dict.fromkeys([*offer, *_paths(incomplete, _is_result)])][:MOST]


def knob_names(ctx: typer.Context, incomplete: str) -> Offer:
    """Knobs of the target, for `--free`."""
    return _beginning({name: knob.help for name, knob in _knobs(ctx).items()}, incomplete)


def settings(ctx: typer.Context, incomplete: str) -> Offer:
    """`KNOB=VALUE` for the knobs of the target: names first, and values where only one knob is left."""
    from autoscout.common.text import show

    name, equals, _ = incomplete.partition("=")
    knobs = _knobs(ctx)
    names = [name] if equals and name in knobs else [] if equals else [each for each in knobs if each.startswith(name)]
    if len(names) != 1:
        return [(f"{each}=", knobs[each].help) for each in names[:MOST]]
    values = [show(value) for value in islice(knobs[names[0]].values, MOST)]
    words = [f"{names[0]}={value}" for value in values if " " not in value]
    offer = [word for word in words if word.startswith(incomplete)]
    return [(word, "") for word in offer]


def rejoined(words: list[str], index: int) -> tuple[list[str], int]:
    """The words of a line as people see them: bash makes three of `KNOB=VALUE`.

    Args:
        words: As bash gives them.
        index: Of the one that is being typed.
    """
    whole: list[str] = []
    place = index
    for number, word in enumerate(words[: index + 1]):
        is_part = bool(whole) and (word.startswith("=") or whole[-1].endswith("=")) and not whole[-1].startswith("--")
        if is_part:
            whole[-1] += word
        else:
            whole.append(word)
        place = len(whole) - 1 if number == index else place
    return whole, place


@contextmanager
def answering() -> Iterator[None]:
    """Around the program: where bash asks for words, it asks and is answered as if it did not end words at "="."""
    words, index = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if not (_asked_by("bash") and index.isdigit() and int(index) < len(words)):
        yield
        return
    whole, place = rejoined(words, int(index))
    os.environ.update(COMP_WORDS="\n".join(whole), COMP_CWORD=str(place))
    name, equals, _ = whole[place].partition("=")
    answer = io.StringIO()
    try:
        with redirect_stdout(answer):
            yield
    finally:
        for line in answer.getvalue().splitlines():
            print(line.removeprefix(name + equals) if equals else line)


def _asked_by(shell: str) -> bool:
    return os.environ.get(VARIABLE, "").endswith(f"_{shell}")


def _beginning(words: Mapping[str, str], incomplete: str) -> Offer:
    return [(word, text) for word, text in words.items() if word.startswith(incomplete)][:MOST]


def _plugins(kind: str, incomplete: str) -> Offer:
    from autoscout.core import plugins

    return [(name, "") for name in plugins.available(kind) if name.startswith(incomplete)]


def _paths(incomplete: str, is_one: Callable[[Path], bool]) -> list[str]:
    """Paths that are what is looked for, and folders on the way to them."""
    folder, _, beginning = incomplete.rpartition("/")
    home = Path(f"{folder}/" if incomplete.startswith("/") or folder else ".")
    offer = []
    for path in _entries(home):
        if path.name.startswith(beginning) and not path.name.startswith("."):
            text = f"{folder}/{path.name}" if "/" in incomplete else path.name
            if is_one(path):
                offer.append(text)
            elif path.is_dir():
                offer.append(f"{text}/")
    return offer[:MOST]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_campaign(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml", ".json") and path.is_file()


def _is_result(path: Path) -> bool:
    return (path / "campaign.yaml").is_file() and (path / "trials.jsonl").is_file()


def _knobs(ctx: typer.Context) -> Mapping[str, Any]:
    return _spare(lambda: _space_knobs(_given(ctx)), {})


def _given(ctx: typer.Context) -> Mapping[str, Any]:
    """What was typed so far, by the names of the verb's parameters.

    The parser gives up at the flag whose value is being typed, and knows nothing then; without that flag it reads the rest.
    """
    if _asked_by("bash"):
        words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"])]
    else:
        line = os.environ["_TYPER_COMPLETE_ARGS"]
        words = shlex.split(line)[: None if line.endswith(" ") else -1]
    typed = words[len(ctx.command_path.split()) : -1 if words[-1].startswith("-") else None]
    parameters: Mapping[str, Any] = ctx.command.make_context(ctx.info_name, typed, parent=ctx.parent, resilient_parsing=True).params
    return parameters


def _space_knobs(given: Mapping[str, Any]) -> Mapping[str, Any]:
    from autoscout.cli import options
    from autoscout.core.reading import only_reading
    from autoscout.study.setup import prepare

    workload = options.settings(given.get("workload"), "--workload")
    commands = {"serve": given.get("serve_cmd"), "bench": given.get("bench_cmd"), "command": given.get("train_cmd")}
    workload |= options.given(
        model=given.get("model"), free=list(given.get("free") or ()), allow_lossy=given.get("allow_lossy") or None, **commands
    )
    hardware = {**options.settings(given.get("hardware"), "--hardware"), **options.given(gpus=given.get("gpus"))}
    space = given.get("space")
    blocks = options.given(workload=workload, hardware=hardware, space=space and str(space))
    with only_reading():  # whoever presses Tab has not decided to run anything
        knobs: Mapping[str, Any] = prepare(options.load(str(given["target"]), blocks)).space.knobs
    return knobs


def _own_metrics(given: Mapping[str, Any]) -> list[str]:
    from autoscout.cli import options

    metrics = options.load(str(given["target"])).workload.get("metrics")
    return [str(name) for name in metrics] if isinstance(metrics, Mapping) else []


def _spare(work: Callable[[], Answer], otherwise: Answer) -> Answer:
    """What some work gives, or nothing: a line that is half typed may be wrong in any way."""
    try:
        return work()
    except Exception:  # whatever it is, the one who types has asked for words and not for an error
        return otherwise


__all__ = [
    "answering",
    "directions",
    "executors",
    "folders",
    "knob_names",
    "metrics",
    "rejoined",
    "searchers",
    "settings",
    "simulators",
    "targets",
]
