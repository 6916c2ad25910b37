"""What the user runs today, as a campaign names it: knobs, a launch command, or a file with one of these.

`from` makes a study of a launch: its workload and hardware become the study's, its knobs the baseline. `baseline` takes knobs alone, for a
study whose workload is given otherwise. Afterwards the campaign holds the baseline as knobs and values, so that it means the same without
the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autoscout.common import document
from autoscout.common.fields import refuse_if, shown
from autoscout.common.templates import lay_over
from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, NoLaunchError
from autoscout.core.protocols import Backend
from autoscout.core.user import UserLaunch
from autoscout.space import Space
from autoscout.study.campaign import Campaign, build_campaign

FROM, BASELINE = "from", "baseline"
SUFFIXES = (".yaml", ".yml", ".json", ".sh", ".service", ".env", ".txt", ".conf")
"""Text that ends like this and has no spaces is meant to be a file."""

MOST_SHOWN = 400  # characters of a value in a message

_NAME = r"[A-Za-z_][\w.-]*"
_ASSIGNMENTS = re.compile(rf"\s*{_NAME}\s*=")
_ENDS = {"[": "]", "{": "}", "(": ")"}


class Own(NamedTuple):
    """A campaign with the baseline as knobs.

    Attributes:
        campaign: It.
        left_out: Of a launch: what means nothing here, one sentence each.
        is_launch: Whether the baseline was read from a launch, which may set what the space of the task lacks.
    """

    campaign: Campaign
    left_out: tuple[str, ...] = ()
    is_launch: bool = False

    def settled(self, space: Space, default: Config) -> Own:
        """Of a launch without the knobs that the space lacks, or that have no effect with the rest: they are left out, too.

        Args:
            space: Of the study, with the pinned knobs.
            default: The engine's default.
        """
        if not self.is_launch:
            return self
        named = {name.replace("-", "_"): value for name, value in own_knobs(self.campaign).items()}
        values = {name: value for name, value in named.items() if name in space.knobs}
        active = space.project({**default, **values})
        knobs = {name: value for name, value in values.items() if name in active}
        why = {name: "has no effect with the rest" if name in values else "is no knob here" for name in named if name not in knobs}
        more = (f"{name}={named[name]} {words}." for name, words in why.items())
        return Own(self.campaign.model_copy(update={"baseline": knobs}), (*self.left_out, *more))


def own_knobs(campaign: Campaign) -> Mapping[str, Value]:
    """The baseline of a campaign that `read_own` has read."""
    return {} if isinstance(campaign.baseline, str) else campaign.baseline


def read_own(campaign: Campaign, backend: Backend, *, pins_go_over: bool = False) -> Own:
    """The campaign with the baseline as knobs.

    Args:
        campaign: As it was written.
        backend: Of its system.
        pins_go_over: Pinned knobs go over those of the launch, for a look at one configuration; else they must not be something else.

    Raises:
        ConfigError: it cannot be read, or says something else than the rest of the campaign; all contradictions at once.
    """
    if campaign.launch is not None:
        if campaign.baseline:
            rule = f"the knobs of `{FROM}` are the baseline already"
            raise ConfigError(Fault(where=BASELINE, value=shown(campaign.baseline), rule=rule, fix=f"Give `{FROM}` or `{BASELINE}`"))
        launch = backend.read_launch(*_text(campaign.launch, FROM))
        return Own(_with_launch(campaign, launch, pins_go_over), launch.left_out, is_launch=True)
    knobs, left_out, is_launch = _baseline(campaign, campaign.baseline, backend)
    refuse_if(list(_contradictions(knobs, _pinned(campaign), "set", "the baseline")))
    return Own(campaign.model_copy(update={"baseline": dict(knobs)}), left_out, is_launch)


def backend_of(text: str) -> str:
    """The backend that reads a launch.

    Raises:
        ConfigError: none does, or several do.
    """
    written, name = _text(text, FROM)
    able: dict[str, Any] = {}
    refusal: ConfigError | None = None
    for backend in plugins.available("backend"):
        try:
            kind: Any = plugins.get("backend", backend)
            if kind.takes_space or kind.read_launch is Backend.read_launch:
                continue
            kind().read_launch(written, name)
        except NoLaunchError:
            continue
        except ConfigError as error:
            refusal = refusal or error
            continue
        except AutoScoutError:
            continue
        able[backend] = kind
    able = {name: kind for name, kind in able.items() if not kind.reads_any} or able
    if len(able) == 1:
        return next(iter(able))
    if refusal is not None and not able:  # somebody's launch, with something wrong in it
        raise refusal
    rule = f"{', '.join(able)} could be meant" if able else "no backend takes it for a launch of its system"
    raise ConfigError(Fault(where=name, value=shown(text), rule=rule, fix="Name the backend: autoscout tune BACKEND --from ..."))


def knobs_in(text: str) -> dict[str, Value] | None:
    """The knobs of `A=1,B=2`; None where the text is something else.

    >>> knobs_in("batch=8, mode=fast")
    {'batch': 8, 'mode': 'fast'}
    >>> knobs_in("CUDA_VISIBLE_DEVICES=0 python train.py") is None
    True
    """
    parts = list(_parts(text))
    if not parts or not all(_ASSIGNMENTS.match(part) for part in parts):
        return None
    values: dict[str, Value] = {}
    for part in parts:
        name, _, raw = part.partition("=")
        if re.search(r"\s", raw.strip()) and raw.strip()[0] not in "[{(\"'":
            return None
        values[name.strip()] = _value(raw.strip())
    return values


def _value(raw: str) -> Any:
    try:
        return document.compose(raw, BASELINE).value if raw else ""
    except ConfigError:
        return raw


def _parts(text: str) -> Iterator[str]:
    """The text cut at the commas outside brackets and quotes."""
    part, ends, quote = "", [], ""
    for letter in text:
        if letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        elif not quote and letter in _ENDS:
            ends.append(_ENDS[letter])
        elif not quote and ends and letter == ends[-1]:
            ends.pop()
        if letter == "," and not ends and not quote:
            yield part
            part = ""
        else:
            part += letter
    if part.strip():
        yield part


def _text(written: str, option: str) -> tuple[str, str]:
    """What a launch says, and where it stands: a file of that name where there is one, else the text itself.

    After a file's name and a `#` stands which of its launches is meant.
    """
    path = Path(written.strip())
    if "\n" not in written and len(written) < 4096:
        name, sign, choice = str(path).partition("#")
        if path.is_file():
            return document.read_text(path), str(path)
        if sign and Path(name).is_file():
            return document.read_text(Path(name)), f"{name}#{choice}"
        path = Path(name)
    if path.suffix in SUFFIXES and not re.search(r"\s", written.strip()):
        raise ConfigError(Fault(where=option, value=shown(written), rule="there is no such file", fix="Check the path"))
    return written, option


def _baseline(
    campaign: Campaign, written: Mapping[str, Value] | str, backend: Backend
) -> tuple[Mapping[str, Value], tuple[str, ...], bool]:
    if not isinstance(written, str):
        return written, (), False
    knobs = knobs_in(written)
    if knobs is not None:
        return knobs, (), False
    text, name = _text(written, BASELINE)
    knobs = _knobs_in_file(text, name, campaign, backend)
    if knobs is not None:
        return knobs, (), False
    launch = backend.read_launch(text, name)
    refuse_if(list(_disagreements(campaign, launch, backend, name)))
    return launch.knobs, launch.left_out, True


def _knobs_in_file(text: str, name: str, campaign: Campaign, backend: Backend) -> dict[str, Value] | None:
    """The knobs of a YAML or JSON file that holds nothing else; None for a launch."""
    try:
        values = document.compose(text, name).value
    except ConfigError:
        return None
    if not isinstance(values, Mapping) or not values:
        return None
    space: Any = backend.space(backend.task(campaign.description))
    names = {str(key).replace("-", "_") for key in values}
    if not names <= set(space.knobs) and type(backend).read_launch is not Backend.read_launch:
        return None  # an engine's own file
    return dict(own_knobs(build_campaign({"system": campaign.system, "baseline": values}, where=name)))


def _with_launch(campaign: Campaign, launch: UserLaunch, pins_go_over: bool) -> Campaign:
    """The campaign with what the launch says; what the campaign says itself stays, and must not be something else.

    Only of the machine it may say something else: a study may run on another one than the launch.
    """
    said = f"the launch of `{FROM}`"
    faults = [
        *_contradictions(launch.workload, campaign.workload, "workload", said),
        *([] if pins_go_over else _contradictions(launch.knobs, _pinned(campaign), "set", said)),
    ]
    refuse_if(faults)
    pinned = _pinned(campaign) if pins_go_over else {}
    blocks = {
        "workload": lay_over(launch.workload, campaign.workload),
        "hardware": lay_over(launch.hardware, campaign.hardware),
        "baseline": {name: value for name, value in launch.knobs.items() if name not in pinned},
        "launch": None,
    }
    return campaign.model_copy(update=blocks)


def _pinned(campaign: Campaign) -> dict[str, Value]:
    return {name.replace("-", "_"): value for name, value in campaign.set.items()}


def _contradictions(launch: Any, own: Any, place: str, said: str) -> Iterator[Fault]:
    """Values that a launch or baseline and the rest of the campaign both give, and differently."""
    if isinstance(launch, Mapping) and isinstance(own, Mapping):
        for name in launch:
            if name in own:
                yield from _contradictions(launch[name], own[name], f"{place}.{name}", said)
    elif not _alike(launch, own):
        block, _, field = place.partition(".")
        rule = f"{said} has {_whole(launch)}"
        yield Fault(where=block, field=field, value=_whole(own), rule=rule, fix="Leave one of the two out")


def _disagreements(campaign: Campaign, launch: UserLaunch, backend: Backend, name: str) -> Iterator[Fault]:
    """What a baseline's launch says of the workload and the study does not: it would not be what the user runs."""
    study = backend.task(campaign.description).workload
    own = backend.task({**campaign.description, "workload": lay_over(campaign.workload, launch.workload)}).workload
    for field in launch.workload:
        one, other = study.get(field), own.get(field)
        if not _alike(one, other):
            rule = f"the launch says {_whole(other)}, and the study's workload {_whole(one)}"
            fix = f"Give the same workload to both, or the launch as `{FROM}`: then it is the study's workload too"
            yield Fault(where=name, field=field, rule=rule, fix=fix)


def _whole(value: Any) -> str:
    """A value as it is, since two paths may differ at their ends alone; a very long one cut."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else shown(value)


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other) or str(one) == str(other)


__all__ = ["BASELINE", "FROM", "Own", "backend_of", "knobs_in", "own_knobs", "read_own"]
