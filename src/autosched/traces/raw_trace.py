"""The columns of a trace file before they are checked, and the trace they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autosched.sim.trace import Trace, check_columns, examples
from autosched.traces.columns import Texts
from autoscout.core.errors import ConfigError

ASKS_FOR_GPUS = "asks for GPUs"
"""Why a job is in a trace; jobs on processors alone are left out."""


@dataclass(kw_only=True)
class RawTrace:
    """Columns of a trace before they are checked.

    Attributes:
        lines: The line of each row in its file.
        filters: What the reader left out or changed, in words.
    """

    source: str
    lines: NDArray[np.int64]
    job_id: Texts
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    user: Texts | None = None
    vc: Texts | None = None
    status: Texts | None = None
    name: Texts | None = None
    kind: Texts | None = None
    extra: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    filters: tuple[str, ...] = ()

    def finish(self, *, drop_bad: bool) -> Trace:
        """Check everything at once, then sort.

        Raises:
            ConfigError: rows are wrong and `drop_bad` is off.
        """
        ids = np.asarray(self.job_id, np.str_) if len(self.job_id) else np.empty(0, np.str_)
        filters = self.filters
        rows = np.arange(len(ids))
        if drop_bad:
            whole = (self.gpus <= 1) | (self.gpus == np.floor(self.gpus))
            good = np.isfinite(self.submit_s) & np.isfinite(self.duration_s) & (self.duration_s >= 0) & (self.gpus > 0) & whole
            first = np.zeros(len(ids), bool)
            first[np.unique(ids, return_index=True)[1]] = True
            rows = np.flatnonzero(good & first)
            if len(rows) < len(ids):
                dropped = np.setdiff1d(np.arange(len(ids)), rows)
                filters = (*filters, f"{len(dropped)} bad rows dropped ({examples(ids[dropped])})")
        else:
            faults = check_columns(self.source, ids, self.submit_s, self.duration_s, self.gpus, self.lines)
            if faults:
                raise ConfigError(faults)

        def label(texts: Texts | None) -> NDArray[np.str_] | None:
            return np.asarray(texts, np.str_)[rows] if texts is not None and len(texts) else None

        return Trace.of(
            self.submit_s[rows],
            self.duration_s[rows],
            self.gpus[rows],
            job_id=ids[rows],
            user=label(self.user),
            vc=label(self.vc),
            status=label(self.status),
            name=label(self.name),
            kind=label(self.kind),
            extra={name: column[rows] for name, column in self.extra.items()},
            source=self.source,
            filters=filters,
        )

    def with_gpus(self) -> RawTrace:
        """The jobs that ask for GPUs."""
        return self.only(self.gpus != 0, ASKS_FOR_GPUS)

    def only(self, chosen: NDArray[np.bool_], why: str) -> RawTrace:
        """The rows where `chosen`, with the reason on record unless these are all."""
        if chosen.all():
            return self
        index = np.flatnonzero(chosen)

        def pick(texts: Texts | None) -> Texts | None:
            return None if texts is None else [texts[int(i)] for i in index]

        return RawTrace(
            source=self.source,
            lines=self.lines[index],
            job_id=pick(self.job_id) or [],
            submit_s=self.submit_s[index],
            duration_s=self.duration_s[index],
            gpus=self.gpus[index],
            user=pick(self.user),
            vc=pick(self.vc),
            status=pick(self.status),
            name=pick(self.name),
            kind=pick(self.kind),
            extra={key: column[index] for key, column in self.extra.items()},
            filters=(*self.filters, f"{why}: {len(index)} of {len(self.lines)} jobs kept"),
        )
