"""Trace: the jobs of a cluster as numpy columns, sorted by arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscout.core.errors import ConfigError, Fault

MOST_SPANS = 20  # runs of lines that a message lists


@dataclass(frozen=True)
class Labels:
    """A column of few distinct texts: a code per row and the texts once."""

    codes: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str] | NDArray[np.str_]) -> Labels:
        names, codes = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)
        return cls(codes.astype(np.int64).reshape(-1), tuple(str(name) for name in names))

    @classmethod
    def constant(cls, text: str, rows: int) -> Labels:
        return cls(np.zeros(rows, np.int64), (text,))

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Labels:
        return Labels(self.codes[index], self.names)

    def texts(self) -> NDArray[np.str_]:
        return np.asarray(self.names, dtype=np.str_)[self.codes] if self.names else np.empty(0, np.str_)

    def code(self, name: str) -> int:
        """The code of a text, -1 when no row has it."""
        return self.names.index(name) if name in self.names else -1

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Jobs sorted by arrival; jobs that arrive together keep the order of their source.

    Attributes:
        job_id: Unique names.
        submit_s: Arrival, in seconds (of the epoch, or from the start of the trace where the source says no more).
        duration_s: Seconds of work at full speed; never counts waiting.
        gpus: GPUs wanted: whole numbers, or a share of one GPU below 1.
        user, vc, status, name: Labels; one empty label where the source does not say.
        extra: Further numeric columns: `estimate_s`, `cpus`, `skew`, `gpu_util`, `memory_mb`.
        kind: GPU type wanted; the empty label is "any".
        source: Where the rows come from.
        filters: What was done to them since, in order, in words.
    """

    job_id: NDArray[np.str_]
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    user: Labels
    vc: Labels
    status: Labels
    name: Labels
    kind: Labels
    extra: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    source: str = ""
    filters: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        submit_s: ArrayLike,
        duration_s: ArrayLike,
        gpus: ArrayLike,
        *,
        job_id: Sequence[str] | NDArray[np.str_] | None = None,
        user: Sequence[str] | NDArray[np.str_] | None = None,
        vc: Sequence[str] | NDArray[np.str_] | None = None,
        status: Sequence[str] | NDArray[np.str_] | None = None,
        name: Sequence[str] | NDArray[np.str_] | None = None,
        kind: Sequence[str] | NDArray[np.str_] | None = None,
        extra: Mapping[str, ArrayLike] | None = None,
        source: str = "memory",
        filters: tuple[str, ...] = (),
    ) -> Trace:
        """Check and sort columns of equal length.

        Raises:
            ConfigError: with every rule that some row breaks, and all rows that break it.
        """
        submit = np.asarray(submit_s, np.float64)
        rows = len(submit)
        ids = np.asarray(job_id, np.str_) if job_id is not None else np.char.add("job-", np.arange(rows).astype(np.str_))
        work, demand = np.asarray(duration_s, np.float64), np.asarray(gpus, np.float64)
        numbers = {key: np.asarray(value, np.float64) for key, value in (extra or {}).items()}
        lengths = {len(column) for column in (ids, work, demand, *numbers.values())} | {rows}
        if len(lengths) > 1:
            raise ConfigError(Fault(where=source, rule="all columns of a trace must be equally long", value=str(sorted(lengths))))
        faults = check_columns(source, ids, submit, work, demand)
        if faults:
            raise ConfigError(faults)
        labels = [Labels.of(column) if column is not None else Labels.constant("", rows) for column in (user, vc, status, name, kind)]
        order = np.argsort(submit, kind="stable")
        return cls(
            job_id=ids[order],
            submit_s=submit[order],
            duration_s=work[order],
            gpus=demand[order],
            user=labels[0].take(order),
            vc=labels[1].take(order),
            status=labels[2].take(order),
            name=labels[3].take(order),
            kind=labels[4].take(order),
            extra={key: value[order] for key, value in numbers.items()},
            source=source,
            filters=filters,
        )

    def __len__(self) -> int:
        return len(self.submit_s)

    def keep(self, chosen: NDArray[np.bool_], why: str) -> Trace:
        """The rows where `chosen`; `why` is recorded with the number of rows that stayed."""
        return replace(self.take(np.flatnonzero(chosen)), filters=(*self.filters, f"{why}: {int(chosen.sum())} of {len(self)} jobs kept"))

    def take(self, index: NDArray[np.int64] | slice) -> Trace:
        """Some rows, in the order of this trace; a slice copies nothing."""
        return replace(
            self,
            job_id=self.job_id[index],
            submit_s=self.submit_s[index],
            duration_s=self.duration_s[index],
            gpus=self.gpus[index],
            user=self.user.take(index),
            vc=self.vc.take(index),
            status=self.status.take(index),
            name=self.name.take(index),
            kind=self.kind.take(index),
            extra={key: value[index] for key, value in self.extra.items()},
        )

    def between(self, start_s: float, end_s: float) -> Trace:
        """Jobs that arrive in [start, end)."""
        return self.keep((self.submit_s >= start_s) & (self.submit_s < end_s), f"arrival in [{start_s:g}, {end_s:g})")

    def with_status(self, *outcomes: str) -> Trace:
        """Jobs that ended in one of the given ways, whatever the case of the letters."""
        names = {text.lower() for text in outcomes}
        codes = [code for code, name in enumerate(self.status.names) if name.lower() in names]
        return self.keep(np.isin(self.status.codes, codes), f"status in {', '.join(sorted(names))}")

    def with_extra(self, **columns: ArrayLike) -> Trace:
        """This trace with more numeric columns."""
        added = {key: np.asarray(value, np.float64) for key, value in columns.items()}
        bad = [key for key, value in added.items() if len(value) != len(self)]
        if bad:
            raise ConfigError(Fault(where=self.source, field=", ".join(bad), rule=f"must have {len(self)} rows, one per job"))
        return replace(self, extra={**self.extra, **added})

    @property
    def gpu_seconds(self) -> float:
        """All the work there is."""
        return float(np.dot(self.gpus, self.duration_s))


def concatenate(first: Trace, second: Trace) -> Trace:
    """Two traces as one, one after the other; extra columns that only one has are dropped."""
    if not len(first) or not len(second):
        return first if len(first) else second

    def labels(one: Labels, other: Labels) -> Labels:
        names = tuple(dict.fromkeys((*one.names, *other.names)))
        code = {name: number for number, name in enumerate(names)}
        mine = np.asarray([code[name] for name in one.names], np.int64)
        theirs = np.asarray([code[name] for name in other.names], np.int64)
        return Labels(np.concatenate([mine[one.codes], theirs[other.codes]]), names)

    return Trace(
        job_id=np.concatenate([first.job_id, second.job_id]),
        submit_s=np.concatenate([first.submit_s, second.submit_s]),
        duration_s=np.concatenate([first.duration_s, second.duration_s]),
        gpus=np.concatenate([first.gpus, second.gpus]),
        user=labels(first.user, second.user),
        vc=labels(first.vc, second.vc),
        status=labels(first.status, second.status),
        name=labels(first.name, second.name),
        kind=labels(first.kind, second.kind),
        extra={key: np.concatenate([first.extra[key], second.extra[key]]) for key in first.extra.keys() & second.extra.keys()},
        source=second.source or first.source,
        filters=second.filters,
    )


def check_columns(
    source: str,
    job_id: NDArray[np.str_],
    submit_s: NDArray[np.float64],
    duration_s: NDArray[np.float64],
    gpus: NDArray[np.float64],
    lines: NDArray[np.int64] | None = None,
) -> list[Fault]:
    """One fault per rule that is broken, naming all rows that break it."""
    distinct, first = np.unique(job_id, return_index=True)
    repeated = np.ones(len(job_id), bool)
    repeated[first] = False
    if len(distinct) == len(job_id):
        repeated[:] = False
    whole = gpus == np.floor(gpus)
    rules: list[tuple[str, NDArray[np.bool_], NDArray[np.float64] | NDArray[np.str_], str, str]] = [
        ("job_id", repeated, job_id, "a job may occur in a trace once", "Remove the repeated rows or give them names of their own"),
        ("submit_s", ~np.isfinite(submit_s), submit_s, "arrival must be a number", ""),
        ("duration_s", ~np.isfinite(duration_s), duration_s, "duration must be a number", "Drop jobs that never ended (--drop-bad)"),
        (
            "duration_s",
            duration_s < 0,
            duration_s,
            "duration must not be negative: an end before its start",
            "Check the clocks of the source",
        ),
        ("gpus", ~np.isfinite(gpus) | (gpus <= 0), gpus, "a job must want GPUs", "Drop jobs on processors only (--drop-bad)"),
        ("gpus", np.isfinite(gpus) & (gpus > 1) & ~whole, gpus, "jobs on more than one GPU must ask for whole GPUs", "Round up"),
    ]
    numbers = lines if lines is not None else np.arange(len(submit_s))
    word = "line" if lines is not None else "row"
    return [
        Fault(
            where=source,
            field=name,
            rule=f"{rule} ({word}{'' if bad.sum() == 1 else 's'} {spans(numbers[bad])})",
            value=examples(values[bad]),
            fix=fix,
        )
        for name, bad, values, rule, fix in rules
        if bad.any()
    ]


def spans(numbers: NDArray[np.int64]) -> str:
    """The numbers in short, the first `MOST_SPANS` runs of them: `3, 7-9, 12`."""
    ordered = np.sort(numbers)
    cuts = np.flatnonzero(np.diff(ordered) > 1) + 1
    starts, ends = ordered[[0, *cuts[:MOST_SPANS]]], ordered[[*(cuts[:MOST_SPANS] - 1), -1]]
    parts = [f"{first}-{last}" if last > first else f"{first}" for first, last in zip(starts, ends, strict=True)]
    others = len(ordered) - int(cuts[MOST_SPANS - 1]) if len(cuts) >= MOST_SPANS else 0
    return ", ".join(parts[:MOST_SPANS]) + (f" and {others:,} more" if others else "")


def examples(values: NDArray[np.float64] | NDArray[np.str_]) -> str:
    """The first few distinct values."""
    distinct = list(dict.fromkeys(str(value) for value in values[:200].tolist()))
    return ", ".join(distinct[:5]) + (", ..." if len(distinct) > 5 else "")
