"""Session: a simulation that can be stopped anywhere, looked at, changed and resumed."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autosched.kernel import records
from autosched.kernel.records import Index, Table, Vector
from autosched.kernel.state import settle_in
from autosched.sim.cluster import Cluster
from autosched.sim.part import Part, job_table
from autosched.sim.plan_change import put_in_charge, return_nodes, take_nodes
from autosched.sim.profiler_gate import ProfilerGate, finished
from autosched.sim.result import Result
from autosched.sim.scheduler import Admitting, Gate, Scheduler
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace, concatenate, examples
from autoscout.common.text import plural
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault


class Session:
    """A cluster, a scheduler and jobs, at a moment.

        session = Session(trace, cluster, Tiresias())
        session.step(until_s)              # everything that happens before this moment
        session.reconfigure(Themis())      # another configuration or another scheduler takes over
        session.submit(more)               # jobs that arrive from now on
        kept = session.snapshot()          # resume it later: Session(more, cluster, scheduler, snapshot=kept)
        session.step()                     # until all is done
        session.result()

    Stopping and resuming changes nothing: in one run or in a thousand steps, with or without snapshots between them, every job starts and
    ends at the same moment. A `reconfigure` to the settings that are in force changes nothing either.

    Attributes:
        cluster: All nodes.
        scheduler: Who decides now.
        trace: All jobs so far, in the order in which they were submitted; `forget` takes the ended ones out.
        at_s: On the trace's clock: everything before this moment has happened, nothing at or after it.
        gave_up: Whether the last step stopped early because it had taken as many decisions as it might.
    """

    def __init__(
        self, trace: Trace, cluster: Cluster, scheduler: Scheduler, *, snapshot: Snapshot | None = None, log: bool = False
    ) -> None:
        """Begin with the jobs of a trace, on an empty cluster or from a snapshot; nothing has happened yet.

        Args:
            trace: Jobs to come; with a snapshot those that arrive at or after its moment.
            cluster: The nodes; with a snapshot the same as its own.
            scheduler: Who decides; need not be the one of the snapshot.
            snapshot: Jobs that are already there.
            log: Keep every change of GPUs, for timelines and checks.

        Raises:
            ConfigError: jobs that can never run here, or a snapshot of something else; all faults at once.
        """
        self.cluster = cluster
        self.scheduler = scheduler
        self.logging = log
        self.trace = trace if snapshot is None else snapshot.joined(trace)
        self.past: list[Part] = []  # of profilers that are gone, with the jobs that ended there
        self.before_s = np.zeros(len(self.trace))
        self.logs: list[Table] = []
        self.extra: dict[str, Vector] = {}
        self.profiler: ProfilerGate | None = None
        self.parts: dict[str, Part] = {}
        if snapshot is None:
            self.origin_s = self.at_s = float(np.floor(trace.submit_s[0])) if len(trace) else 0.0
        else:
            self.origin_s, self.at_s = snapshot.origin_s, snapshot.at_s
            self.before_s[: len(snapshot.jobs)] = snapshot.executed_s
        self.until_s = self.at_s
        self.gave_up = False
        self.begin_s = float(trace.submit_s[0]) if snapshot is None and len(trace) else self.at_s
        refuse_impossible(self.trace, cluster)
        if snapshot is not None and snapshot.parts is not None:
            self._restore(snapshot)
        else:
            for vc in cluster.vcs:
                self.parts[vc] = Part.empty(vc, cluster.nodes_of(vc).table(), self.at_s - self.origin_s)
                self.parts[vc].origin_s = self.origin_s
        self._put_in_charge(scheduler)
        if snapshot is not None and snapshot.parts is None:
            self._settle(snapshot)
        self._enter(np.arange(0 if snapshot is None else len(snapshot.jobs), len(self.trace)))

    def step(self, until_s: float = np.inf, *, most_decisions: float = 0.0) -> None:
        """Let everything happen that happens before a moment of the trace's clock; without one, until nothing more can happen.

        Args:
            until_s: The moment.
            most_decisions: Give up after as many decisions in one virtual cluster since its beginning; 0: never.

        Raises:
            ConfigError: the moment is in the past, or no number.
        """
        if not until_s >= self.at_s:
            raise ConfigError(
                Fault(where="step", field="until_s", value=f"{until_s:g}", rule=f"the clock only goes forward, and it is {self.at_s:.15g}")
            )
        until = until_s - self.origin_s
        if self.profiler is not None:
            self._let_in(self.profiler.run(until, self.parts))
        for part in self.parts.values():
            if len(part.job):
                self._note(part, part.run(until, self.logging, most_decisions))
        self.gave_up = most_decisions > 0 and any(part.decisions >= most_decisions and part.unfinished for part in self.parts.values())
        self.until_s = until_s
        latest = max((float(part.cluster["now_s"][0]) for part in self.parts.values()), default=0.0) + self.origin_s
        self.at_s = until_s if np.isfinite(until_s) else max(self.at_s, latest)

    def reconfigure(self, scheduler: Scheduler | Config) -> None:
        """From now on another configuration is in force, of the same scheduler or of another; a `Config` is one of the same.

        Every running job keeps running, with three exceptions: a scheduler that does not pack splits pairs, nodes that a profiler takes
        are cleared, and jobs leave a profiler that gives its nodes back.

        Raises:
            ConfigError: jobs that can never run under it; then nothing has changed.
        """
        successor = type(self.scheduler).of(scheduler) if isinstance(scheduler, Config) else scheduler
        self._put_in_charge(successor)

    def submit(self, jobs: Trace) -> None:
        """More jobs, which arrive at or after `at_s`.

        Raises:
            ConfigError: they arrive earlier, can never run here, or have names that are taken.
        """
        if not len(jobs):
            return
        if not len(self.trace) and self.at_s == 0.0:  # the clock starts with the first job
            self._start_clock(float(np.floor(jobs.submit_s[0])))
        faults = []
        if jobs.submit_s[0] < self.at_s:
            rule = f"the clock would go backwards: jobs arrive before it, from {jobs.submit_s[0]:.15g}"
            faults.append(Fault(where=jobs.source, field="submit_s", value=f"{self.at_s:.15g}", rule=rule))
        taken = np.isin(jobs.job_id, self.trace.job_id)
        if taken.any():
            rule = f"{int(taken.sum())} of these jobs are there already, such as {jobs.job_id[taken][0]}"
            faults.append(Fault(where=jobs.source, field="job_id", rule=rule, fix="Give them names of their own"))
        if faults:
            raise ConfigError(faults)
        refuse_impossible(jobs, self._left())
        before = len(self.trace)
        self.trace = concatenate(self.trace, jobs)
        self.before_s = np.concatenate([self.before_s, np.zeros(len(jobs))])
        self.extra = {name: np.concatenate([column, np.zeros(len(jobs))]) for name, column in self.extra.items()}
        self._enter(np.arange(before, len(self.trace)))

    def snapshot(self) -> Snapshot:
        """The whole state now; this session is left as it is.

        Raises:
            ConfigError: the scheduler cannot be stopped.
        """
        if self.profiler is not None and self.profiler.gate.ahead:
            rule = "this scheduler knows beforehand who ends while being profiled, so it cannot be resumed"
            raise ConfigError(Fault(where="snapshot", value=type(self.scheduler).__name__, rule=rule, fix="Use Lucid"))
        result = self.result()
        arrived = self.trace.submit_s < self.at_s if np.isfinite(self.until_s) else np.ones(len(self.trace), bool)
        arrived[self._present()] = True  # a snapshot may hold jobs that arrived at its very moment
        rows = np.flatnonzero(~self._over() & arrived)
        new_number = np.full(len(self.trace), -1, np.int64)
        new_number[rows] = np.arange(len(rows))
        return Snapshot(
            at_s=self.at_s,
            origin_s=self.origin_s,
            jobs=self.trace.take(rows),
            remaining_s=result.remaining_s[rows],
            executed_s=result.executed_s[rows],
            running=result.running[rows],
            parts={vc: _taken(part, new_number) for vc, part in self.parts.items()},
            profiler=None if self.profiler is None else _taken(self.profiler.part, new_number),
            lent=() if self.profiler is None else self.profiler.gate.nodes,
            extra={name: column[rows] for name, column in self.extra.items()},
        )

    def with_remaining(self, sample: ArrayLike) -> Session:
        """Another session at the same moment in which the unfinished jobs have other work left: what a predictor believes.

        Args:
            sample: Seconds of work left of each job of `snapshot().jobs`, in their order. Jobs that are still to arrive are not in it and
                do not come along: `submit` what is expected.

        Raises:
            ConfigError: it has not one number per unfinished job, or some are no number or negative.
        """
        start = self.snapshot().with_remaining(sample)
        nobody = self.trace.take(np.empty(0, np.int64))
        return Session(nobody, self.cluster, self.scheduler, snapshot=start, log=self.logging)

    def copy(self) -> Session:
        """Another session in the same state; what happens to one does not happen to the other."""
        other = copy.copy(self)
        other.parts = {vc: replace(part.only(np.ones(len(part.job), bool)), plan=part.plan) for vc, part in self.parts.items()}
        other.profiler = None if self.profiler is None else self.profiler.copy()
        other.past = list(self.past)
        other.logs, other.extra = list(self.logs), {name: column.copy() for name, column in self.extra.items()}
        return other

    def result(self) -> Result:
        """What has happened to every job so far."""
        result = Result.empty(self.trace, self.cluster, self.begin_s, self.until_s)
        result.before_s[:] = self.before_s
        for part in self.parts.values():
            result.store(part, self.at_s if np.isfinite(self.until_s) else np.inf)
        for profiler in (*self.past, *([] if self.profiler is None else [self.profiler.part])):
            result.admitted(profiler)
        result.extra.update(self.extra)
        result.logs.extend(self.logs)
        return replace(result, state=self.snapshot) if np.isfinite(self.until_s) else result

    def forget(self) -> Result:
        """Take the jobs that have ended out, and return what happened to them: so memory holds only those that have not."""
        whole, ended = self.result(), self._over()
        new_number = np.where(ended, -1, np.cumsum(~ended) - 1)
        self.trace = self.trace.take(np.flatnonzero(~ended))
        self.before_s = self.before_s[~ended]
        self.extra = {name: column[~ended] for name, column in self.extra.items()}
        self.parts = {vc: replace(_taken(part, new_number), plan=part.plan) for vc, part in self.parts.items()}
        self.past = []
        if self.profiler is not None:
            self.profiler.part = _taken(self.profiler.part, new_number)
        rows = whole.log
        mine = ended[rows[:, records.LOG_JOB].astype(np.int64)] if len(rows) else np.zeros(0, bool)
        self.logs = [_renumbered(rows[~mine], new_number)] if len(rows) else []
        self._put_in_charge(self.scheduler)
        return whole.only(ended, _renumbered(rows[mine], np.cumsum(ended) - 1))

    # ------------------------------------------------------------------------------------------------------------------------------

    def _start_clock(self, at_s: float) -> None:
        self.at_s = self.until_s = self.origin_s = self.begin_s = at_s
        for part in self.parts.values():
            part.origin_s = at_s
            part.cluster["now_s"] = -1.0
        self._put_in_charge(self.scheduler)

    def _present(self) -> Index:
        """Numbers of the jobs that have joined and not ended."""
        numbers = [part.rows[part.jobs_in_system] for part in self.parts.values()]
        return np.concatenate([*numbers, *([self.profiler.part.rows[self.profiler.part.jobs_in_system]] if self.profiler else [])])

    def _over(self) -> NDArray[np.bool_]:
        """Which jobs have ended and hold nothing any more."""
        over = np.zeros(len(self.trace), bool)
        for part in self.parts.values():
            over[part.rows[part.job["status"] == records.ENDED]] = True
        for profiler in (*self.past, *([] if self.profiler is None else [self.profiler.part])):
            over[profiler.rows[finished(profiler)]] = True
        return over

    def _left(self) -> Cluster:
        return self.cluster if self.profiler is None else self.profiler.gate.rest

    def _nodes(self, vc: str) -> Cluster:
        """The nodes that a virtual cluster has now."""
        return self._left().nodes_of(vc)

    def _put_in_charge(self, scheduler: Scheduler) -> None:
        now = self.at_s - self.origin_s
        gate = scheduler.gate(self.cluster, self.origin_s) if isinstance(scheduler, Admitting) else None
        if gate is not None:
            refuse_impossible(self.trace, gate.rest)
        leave = self._change_profiler(gate, now)
        self.scheduler = scheduler
        for vc, part in self.parts.items():
            self._replan(vc, part, now)
        self._let_in(leave)

    def _replan(self, vc: str, part: Part, now: float) -> None:
        """The scheduler makes a plan for the jobs that a virtual cluster has now."""
        if not len(part.rows) and not part.policy:
            return
        trace, nodes = self.trace.take(part.rows), self._nodes(vc)
        self._note(part, put_in_charge(part, self.scheduler.plan(trace, nodes), trace, nodes, now, self.logging))

    def _change_profiler(self, gate: Gate | None, now: float) -> list[tuple[Index, Vector]]:
        """A profiler comes, goes or changes; returns who leaves it for that, and when."""
        old = None if self.profiler is None else self.profiler.gate
        if old is None and gate is None:
            return []
        if self.profiler is not None and old is not None and gate is not None and old.nodes == gate.nodes:
            self.profiler.change(gate, now)
            return []
        leave: list[tuple[Index, Vector]] = []
        waiting: Index = np.empty(0, np.int64)
        if self.profiler is not None and old is not None:
            leave, waiting = self.profiler.empty_out(now)
            for vc, number in old.nodes:
                return_nodes(self.parts[vc], np.asarray([number]), float(old.gpus))
            self.past.append(self.profiler.part.only(finished(self.profiler.part)))
            self.profiler = None
        elif gate is not None:
            waiting = self._still_to_come(now)
        if gate is not None:
            for vc, number in gate.nodes:
                self._note(self.parts[vc], take_nodes(self.parts[vc], np.asarray([number]), now, self.logging))
            self.profiler = ProfilerGate.empty(gate, now, self.origin_s)
            self.profiler.queue(waiting, self.trace)
        elif len(waiting):
            leave.append((waiting, np.maximum(now, self.trace.submit_s[waiting] - self.origin_s)))
        return leave

    def _still_to_come(self, now: float) -> Index:
        """Take the jobs that have not arrived yet out of their virtual clusters; returns their numbers."""
        taken = []
        for vc, part in self.parts.items():
            future = (part.job["status"] == records.ABSENT) & (part.job["submit_s"] >= now)
            taken.append(part.rows[future])
            self.parts[vc] = part.only(~future)
        return np.sort(np.concatenate(taken))

    def _enter(self, rows: Index) -> None:
        """Jobs are to arrive: at the profiler if there is one, else in their virtual clusters."""
        if not len(rows):
            return
        if self.profiler is not None:
            self.profiler.queue(rows, self.trace)
            return
        self._join(rows, self.trace.submit_s[rows])

    def _let_in(self, leave: list[tuple[Index, Vector]]) -> None:
        """Jobs leave the profiler for their virtual clusters, at moments of the session's clock."""
        if self.profiler is not None:
            for name, column in self.profiler.columns(len(self.trace)).items():
                finite = np.isfinite(column)
                self.extra.setdefault(name, np.zeros(len(self.trace)))[finite] = column[finite]
        for rows, at in leave:
            self._join(rows, at + self.origin_s)

    def _join(self, rows: Index, enter_s: Vector) -> None:
        for vc, part in self.parts.items():
            mine = np.ones(len(rows), bool) if len(self.parts) == 1 else self.trace.vc.codes[rows] == self.trace.vc.code(vc)
            index, at = rows[mine], enter_s[mine]
            if not len(index):
                continue
            order = np.lexsort((index, at))
            part.add(index[order], job_table(self.trace.take(index[order]), at[order], self.origin_s))
            self._replan(vc, part, self.at_s - self.origin_s)

    def _restore(self, snapshot: Snapshot) -> None:
        snapshot.fits(self.cluster)
        assert snapshot.parts is not None
        self.parts = {vc: part.only(np.ones(len(part.job), bool)) for vc, part in snapshot.parts.items()}
        missing = np.zeros(len(self.trace) - len(snapshot.jobs))
        self.extra = {name: np.concatenate([column, missing]) for name, column in snapshot.extra.items()}
        if snapshot.profiler is not None:
            self.profiler = ProfilerGate.resumed(snapshot.profiler, snapshot.lent)
        for part in self.parts.values() if self.logging else ():  # a log begins with who holds what
            rows = np.column_stack([np.full(len(part.where), self.at_s - self.origin_s), part.where[:, :3]])
            self._note(part, rows)

    def _settle(self, snapshot: Snapshot) -> None:
        """Jobs that were seen in a cluster, in a snapshot without the state of loops."""
        offset = 0
        for vc, part in self.parts.items():
            jobs = snapshot.jobs
            mine = np.ones(len(jobs), bool) if len(self.parts) == 1 else jobs.vc.codes == jobs.vc.code(vc)
            rows = np.flatnonzero(mine)
            nodes = len(part.node)
            if len(rows):
                table = job_table(jobs.take(rows), jobs.submit_s[rows], self.origin_s)
                snapshot.enter(table, rows)
                part.add(rows, table)
                self._replan(vc, part, self.at_s - self.origin_s)
                where = snapshot.places(rows, offset, nodes)
                allocations = part.allocations()
                options = part.options.copy()
                options["logging"] = self.logging
                common = (part.job, part.node, part.cluster, part.active, allocations)
                part.cluster["arrived"] = len(rows)
                rows_of_log, filled = settle_in(*common, where, options, self.at_s - self.origin_s)
                part.store_allocations(allocations)
                self._note(part, rows_of_log[: filled[0]])
            offset += nodes

    def _note(self, part: Part, log: Table) -> None:
        """Keep rows of a log, on the trace's clock and with jobs and nodes numbered through."""
        if not len(log):
            return
        moved = log.copy()
        moved[:, records.LOG_TIME] += self.origin_s
        moved[:, records.LOG_JOB] = part.rows[log[:, records.LOG_JOB].astype(np.int64)]
        before = 0
        for group in self.cluster.groups:
            if group.vc == part.vc:
                break
            before += group.nodes
        moved[:, records.LOG_NODE] += np.where(log[:, records.LOG_NODE] >= 0, before, 0)
        self.logs.append(moved)


def _taken(part: Part, new_number: NDArray[np.int64]) -> Part:
    """A copy with the jobs that have a place, at their new numbers."""
    chosen = new_number[part.rows] >= 0
    copy = part.only(chosen)
    copy.rows = new_number[copy.rows]
    return copy


def _renumbered(rows: Table, new_number: NDArray[np.int64]) -> Table:
    copy = rows.copy()
    if len(copy):
        copy[:, records.LOG_JOB] = new_number[rows[:, records.LOG_JOB].astype(np.int64)]
    return copy


def refuse_impossible(trace: Trace, cluster: Cluster) -> None:
    """Refuse jobs that could wait forever, before anything runs.

    Raises:
        ConfigError: one fault per reason, naming jobs.
    """
    faults = []
    several = len(cluster.vcs) > 1
    unknown = set(trace.vc.names) - set(cluster.vcs) if several else set()
    lost = np.isin(trace.vc.codes, [trace.vc.code(name) for name in unknown])
    if lost.any():
        faults.append(
            Fault(
                where=trace.source,
                field="vc",
                value=examples(np.asarray(sorted(unknown), np.str_)),
                rule=f"{plural(int(lost.sum()), 'job')} in virtual clusters without nodes",
                fix="Add these to the node file, filter the jobs, or use one cluster for all (--cluster 70x8)",
            )
        )
    for vc in cluster.vcs:
        part = cluster.nodes_of(vc)
        mine = (trace.vc.codes == trace.vc.code(vc)) if several else np.ones(len(trace), bool)
        for kind, name in enumerate(trace.kind.names):
            fitting = [group for group in part.groups if name in ("", group.kind)]
            capacity = sum(group.nodes * group.gpus for group in fitting)
            large = mine & (trace.kind.codes == kind) & (trace.gpus > capacity)
            if large.any():
                faults.append(
                    Fault(
                        where=trace.source,
                        field="gpus",
                        value=f"{trace.gpus[large].max():g} GPUs wanted, {capacity} there"
                        + (f" in {vc}" if vc else "")
                        + (f" of type {name}" if name else ""),
                        rule=f"larger than the cluster: {examples(trace.job_id[large])} ({plural(int(large.sum()), 'job')} in all)",
                        fix=_cure(part, name),
                    )
                )
    if faults:
        raise ConfigError(faults)


def _cure(part: Cluster, kind: str) -> str:
    """What makes room for jobs of a type of GPU."""
    untyped = next((group for group in part.groups if not group.kind), None)
    if not kind or kind in part.kinds or untyped is None:
        return "Use a larger cluster or filter these jobs"
    return f"Say which nodes have this type, such as --cluster {untyped.nodes}x{untyped.gpus}@{kind}, or filter these jobs"
