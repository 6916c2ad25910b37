"""Settings of Slurm that can be changed while it runs: how they are written, their ranges, and what the model calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.traces.slurm_text import seconds_of
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault

PARAMETERS = "SchedulerParameters"
_MOST_WEIGHT = 2**32 - 2
_YEAR_S = 365 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class SlurmKnob:
    """One setting.

    Attributes:
        name: As the model and operators call it.
        key: Of slurm.conf.
        option: Inside `SchedulerParameters`; empty for a line of its own.
        kind: `whole`, `seconds` or `minutes` (inside options), `time` (days-hours:minutes:seconds), `flag`, or `word`.
        default: What Slurm does when nothing is written.
        least, most: Range that slurm.conf's manual gives.
        words: Allowed words.
        step_s: Slurm rounds a `time` up to multiples of this.
        since: First version that has it.
        frozen: Why a search never moves it: it is for operators, who may. Empty where the simulation knows what it does.
    """

    name: str
    key: str
    kind: str
    default: Value
    option: str = ""
    least: float = 0.0
    most: float = _MOST_WEIGHT
    words: tuple[str, ...] = ()
    step_s: int = 1
    since: tuple[int, int] = (0, 0)
    frozen: str = ""

    def write(self, value: Value) -> str:
        """As slurm.conf has it."""
        if self.kind == "flag":
            return "YES" if value else "NO"
        if self.kind == "word":
            return str(value)
        number = float(value or 0)
        if self.kind == "time":
            days, rest = divmod(math.ceil(round(number) / self.step_s) * self.step_s, 86_400)
            return f"{days}-{rest // 3_600:02d}:{rest % 3_600 // 60:02d}:{rest % 60:02d}"
        return str(round(number / 60)) if self.kind == "minutes" else str(round(number))

    def read(self, text: str) -> Value:
        """From what `scontrol show config` or slurm.conf says.

        Raises:
            ValueError: it does not read so.
        """
        text = text.strip()
        if self.kind == "flag":
            return text.upper().startswith(("Y", "T", "1"))
        if self.kind == "word":
            return text
        if self.kind == "time":
            seconds = float(seconds_of([text])[0])
            if seconds != seconds:
                raise ValueError(f"{text!r} is no time")
            return seconds
        number = int(text)
        return float(number * 60) if self.kind == "minutes" else float(number) if self.kind == "seconds" else number

    def faults(self, value: Value, version: tuple[int, int]) -> list[Fault]:
        """Why this version of Slurm would not take a value."""
        where = self.option or self.key
        if version < self.since:
            rule = f"needs Slurm {self.since[0]}.{self.since[1]:02d}, this is {version[0]}.{version[1]:02d}"
            return [Fault(where="slurm.conf", field=where, rule=rule)]
        if self.kind == "word" and value not in self.words:
            return [Fault(where="slurm.conf", field=where, value=repr(value), rule=f"must be one of {', '.join(self.words)}")]
        if self.kind not in ("word", "flag"):
            good = isinstance(value, (int, float)) and not isinstance(value, bool) and self.least <= value <= self.most
            if not good:
                rule = f"must be from {self.least:g} to {self.most:g}"
                return [Fault(where="slurm.conf", field=where, value=repr(value), rule=rule)]
        return []


def _weight(name: str, key: str, **more: object) -> SlurmKnob:
    return SlurmKnob(name=name, key=key, kind="whole", default=0, **more)  # type: ignore[arg-type]


def _backfill(name: str, option: str, kind: str, default: Value, least: float, most: float, **more: object) -> SlurmKnob:
    return SlurmKnob(name=name, key=PARAMETERS, option=option, kind=kind, default=default, least=least, most=most, **more)  # type: ignore[arg-type]


KNOBS: Mapping[str, SlurmKnob] = {
    knob.name: knob
    for knob in (
        _weight("priority_weight_age", "PriorityWeightAge"),
        _weight("priority_weight_fairshare", "PriorityWeightFairshare"),
        _weight("priority_weight_job_size", "PriorityWeightJobSize"),
        _weight("priority_weight_qos", "PriorityWeightQOS", frozen="the quality of service of jobs is not read from a live Slurm"),
        _weight("priority_weight_partition", "PriorityWeightPartition", frozen="the factors of partitions are not read from a live Slurm"),
        _weight("priority_weight_assoc", "PriorityWeightAssoc", frozen="priorities of associations are not simulated", since=(19, 5)),
        SlurmKnob(name="priority_favor_small", key="PriorityFavorSmall", kind="flag", default=False),
        SlurmKnob(name="priority_max_age_s", key="PriorityMaxAge", kind="time", default=604_800.0, least=1, most=_YEAR_S, step_s=60),
        SlurmKnob(name="priority_decay_half_life_s", key="PriorityDecayHalfLife", kind="time", default=604_800.0, most=_YEAR_S, step_s=60),
        _backfill("bf_max_job_test", "bf_max_job_test", "whole", 500, 1, 1_000_000),
        _backfill("bf_window_s", "bf_window", "minutes", 86_400.0, 60, 43_200 * 60),
        _backfill("bf_resolution_s", "bf_resolution", "seconds", 60.0, 1, 3_600),
        _backfill("bf_interval_s", "bf_interval", "seconds", 30.0, 1, 10_800),
        _backfill("bf_max_job_user", "bf_max_job_user", "whole", 0, 0, 1_000_000, frozen="limits per user are not simulated"),
        _backfill(
            "bf_min_age_reserve_s", "bf_min_age_reserve", "seconds", 0.0, 0, 2_592_000, frozen="the simulation reserves for jobs of any age"
        ),
        _backfill(
            "default_queue_depth",
            "default_queue_depth",
            "whole",
            100,
            0,
            1_000_000,
            frozen="the simulation starts jobs in order at any depth",
        ),
        SlurmKnob(
            name="preempt_exempt_time_s",
            key="PreemptExemptTime",
            kind="time",
            default=0.0,
            most=_YEAR_S,
            since=(19, 5),
            frozen="the simulation preempts nobody",
        ),
    )
}
"""By name. Those with a reason under `frozen` are for operators: `propose` takes them, a search leaves them alone."""
FROZEN: Mapping[str, str] = {knob.name: knob.frozen for knob in KNOBS.values() if knob.frozen}
"""Knob -> why no search moves it on a live Slurm."""


def options_of(text: str) -> dict[str, str]:
    """The options of `SchedulerParameters`, in their order."""
    parts = [part.strip() for part in text.split(",") if part.strip() and part.strip() != "(null)"]
    return {name: value for name, _, value in (part.partition("=") for part in parts)}


def read_settings(report: Mapping[str, str]) -> Config:
    """From key -> value as `scontrol show config` prints them.

    Raises:
        ConfigError: a value does not read as it should.
    """
    options = options_of(report.get(PARAMETERS, ""))
    texts = {key.lower(): text for key, text in report.items()}  # PriorityWeightFairShare here is PriorityWeightFairshare in slurm.conf
    values: dict[str, Value] = {}
    faults = []
    for knob in KNOBS.values():
        text = options.get(knob.option) if knob.option else texts.get(knob.key.lower())
        try:
            values[knob.name] = knob.default if text is None or text in ("", "(null)", "NONE", "N/A") else knob.read(text)
        except ValueError as error:
            faults.append(Fault(where="scontrol show config", field=knob.option or knob.key, value=str(text), rule=str(error)))
    if faults:
        raise ConfigError(faults)
    return Config(values)
