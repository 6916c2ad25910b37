"""Measurements by running the real system: render, execute, parse."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from autoscout.core import seeds
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.curves import told_curves
from autoscout.core.errors import ClusterError, Fault, LaunchError, require
from autoscout.core.launch import Cleanliness, Completed, Launch
from autoscout.core.log import logger
from autoscout.core.protocols import Backend, Evaluator, Executor, Job, SpaceLike
from autoscout.core.secrecy import hide_secrets, known_secrets
from autoscout.core.task import Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import LONG, VIRTUAL, Measurement, Proposal, Status, Trial
from autoscout.evaluate.samples import dirt, joined
from autoscout.evaluate.verdict import EXCUSED, cut_off, excused, finished, not_started, stopped, verdict

PAUSE_S = 0.2  # longest sleep between two looks whether somebody cancelled
MAX_NOISY_TRIALS = 3
"""Samples in a row that stayed dirty after all repeats; a machine like that is not worth waiting for until a sample comes out clean."""

HOPELESS = 10.0
"""Times the longest launch that worked: what takes longer than that is slow itself, however little time the study had."""

OnRepeat = Callable[[Proposal, Measurement], None]
"""Told that a proposal is measured again, and the measurement that other work disturbed; from any thread."""

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProfilerOptions:
    """How carefully each proposal is measured.

    Attributes:
        repeats: Launches per proposal; the medians count. Repeats of several proposals are interleaved.
        dirty_repeats: How often a sample disturbed by other work is taken again; the least disturbed one counts. Likewise how often a
            launch is repeated that failed while others held memory on its GPUs.
        dirty_pressure: CPU pressure above which a sample is dirty, provided that
        dirty_others: others used more than this share of the trial's cores meanwhile. On its GPUs this share alone makes it dirty.
        dirty_pause_s: Wait before the first of these repeats, twice as long before the second, and so on; never longer than the
            sample itself took.
        dirty_limit_s: A sample that took longer than this is not taken again, however disturbed; None is no bound.
        seed: Root of the seeds handed to the backend: each launch gets fresh inputs, the same in every run of the study.
        limit_s: Wall-clock limit of one launch; a shorter one that the backend sets counts.
        budget_s: All the time that the study has. A launch that this cuts off says nothing about its configuration and is `aborted`, unless
            it took `HOPELESS` times as long as any that worked.
        stop_early: Whether a launch is told what it has to beat, so that it can stop once it cannot win any more.
        per_process: Most proposals of the search that share a launch, where the backend can (`shares_process`).
    """

    repeats: int = 1
    dirty_repeats: int = 2
    dirty_pressure: float = Cleanliness.pressure
    dirty_others: float = Cleanliness.others
    dirty_pause_s: float = 1.0
    dirty_limit_s: float | None = None
    seed: int = 0
    limit_s: float | None = None
    budget_s: float | None = None
    stop_early: bool = True
    per_process: int = 1

    def __post_init__(self) -> None:
        checks = {
            "repeats": (self.repeats >= 1, "must be at least 1"),
            "dirty_repeats": (self.dirty_repeats >= 0, "must not be negative"),
            "dirty_pressure": (0 <= self.dirty_pressure <= 1, "is a share between 0 and 1"),
            "dirty_others": (0 <= self.dirty_others <= 1, "is a share between 0 and 1"),
            "dirty_pause_s": (self.dirty_pause_s >= 0, "must not be negative"),
            "per_process": (self.per_process >= 1, "must be at least 1"),
            "limit_s": (self.limit_s is None or self.limit_s > 0, "must be above zero; leave it out for no limit"),
            "budget_s": (self.budget_s is None or self.budget_s > 0, "must be above zero; leave it out for no limit"),
        }
        require("profiler", self, checks)


@dataclass
class _Progress:
    """One proposal on its way through the repeats."""

    proposal: Proposal
    repeats: list[Measurement] = field(default_factory=list)  # one per repeat
    launched: list[Measurement] = field(default_factory=list)
    dirty_repeats: int = 0
    dirty: bool = False  # one that was kept is

    @property
    def is_over(self) -> bool:
        """Whether more repeats would tell nothing."""
        return any(not one.ok for one in self.repeats)

    def measurement(self) -> Measurement:
        one = joined(self.repeats, self.launched, self.dirty_repeats, self.dirty)
        return replace(one, conditions={**one.conditions, LONG: 1.0}) if self.proposal.is_long else one


class Profiler(Evaluator):
    """Measures proposals with a backend on an executor.

    An invalid configuration costs nothing: nothing is launched for it. A launch that cannot start is the configuration's fault
    (`invalid`) unless it is the system's default or nothing else could be started either; then it is `LaunchError`. Every answer is
    labelled measured, or simulated where the backend says so.

    A failure while others held the memory of its GPUs says nothing about a configuration: the launch is repeated, and if that does
    not help the answer is `aborted`, which no store keeps. For the default, after several such answers in a row, and when the
    executor has waited for the GPUs in vain, it is `LaunchError` with the names of those who use them: the study ends and can be resumed.
    """

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        task: Task,
        space: SpaceLike,
        options: ProfilerOptions | None = None,
        clock: Clock | None = None,
        on_repeat: OnRepeat | None = None,
    ) -> None:
        self._backend = backend
        self._executor = executor
        self._task = task
        self._space = space
        self._options = options or ProfilerOptions()
        self._clock = clock or RealClock()
        self._on_repeat = on_repeat
        self._clean = Cleanliness(pressure=self._options.dirty_pressure, others=self._options.dirty_others)
        self._fidelity = backend.fidelity(task)
        variables = task.workload.get("env")
        self._secrets = known_secrets(variables) if isinstance(variables, Mapping) else ()
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._cancels = 0
        self._noisy = 0  # samples in a row that stayed dirty
        self._taken = 0  # answers in a row that others on the GPUs spoiled
        self._longest_s = math.inf  # of the launches that worked; infinite until one has
        self._accepted = 0  # launches that were submitted and did not fail to start

    @property
    def slots(self) -> int:
        return self._executor.slots

    def cancel(self) -> None:
        with self._lock:
            self._cancels += 1
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in how long launches that work take."""
        for trial in trials:
            if trial.ok:
                self._took(trial.measurement.cost_s / trial.measurement.conditions.get("launches", 1.0))

    def _took(self, wall_s: float) -> None:
        with self._lock:
            self._longest_s = wall_s if math.isinf(self._longest_s) else max(self._longest_s, wall_s)

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        round_of = self._cancels
        progress = [_Progress(proposal) for proposal in proposals]
        at_once = math.ceil(len(proposals) / self._options.per_process)  # a worker hands over as many as may share, and is one worker still
        with ThreadPoolExecutor(max(1, min(at_once, self.slots)), thread_name_prefix="profiler") as pool:
            for _ in range(self._options.repeats):
                todo = self._groups([one for one in progress if not one.is_over])
                if len(todo) < 2:
                    for group in todo:
                        self._sample_group(group, round_of)
                    continue
                try:
                    list(pool.map(lambda group: self._sample_group(group, round_of), todo))
                except BaseException:
                    self.cancel()  # the world is broken: do not wait for the others
                    raise
        return [self._shown(replace(one.measurement(), fidelity=self._fidelity)) for one in progress]

    def _shown(self, measured: Measurement) -> Measurement:
        """The measurement without the secrets that the system was started with: it is kept, and many will read it."""
        if not measured.reason and not measured.log_tail:
            return measured
        reason, log_tail = hide_secrets(measured.reason, self._secrets), hide_secrets(measured.log_tail, self._secrets)
        return replace(measured, reason=reason, log_tail=log_tail)

    def _groups(self, todo: Sequence[_Progress]) -> list[list[_Progress]]:
        """Which of them share a launch; what is repeated is there to be independent, and shares none."""
        if not self._backend.shares_process or self._options.per_process == 1:
            return [[one] for one in todo]
        groups: list[list[_Progress]] = []
        begun: dict[Config, list[_Progress]] = {}  # the group that has room, by process
        for one in todo:
            config = one.proposal.config
            alone = one.proposal.repeat != 0 or one.launched or self._space.check(config)
            process = None if alone else self._backend.process_of(config, self._task)
            group = begun.get(process, []) if process is not None else []
            if not group:
                groups.append(group)
            group.append(one)
            if process is not None:
                begun[process] = group if len(group) < self._options.per_process else []
        return groups

    def _sample_group(self, group: Sequence[_Progress], round_of: int) -> None:
        """One repeat of each; what a shared launch did not come to, or was disturbed, is measured in launches of its own."""
        shared = self._launch_together([one.proposal for one in group], round_of) if len(group) > 1 else [None]
        for one, measured in zip(group, shared, strict=True):
            one.launched += [measured] if measured is not None else []
            again = self._options.dirty_repeats and self._noisy < MAX_NOISY_TRIALS
            if measured is None:
                self._sample(one, round_of)
            elif EXCUSED in measured.conditions or (again and self._is_disturbed(measured)):
                self._announce(one.proposal, measured)
                self._sample(one, round_of)
            else:
                self._count_taken(one.proposal, measured)
                self._keep(one, measured)

    def _sample(self, progress: _Progress, round_of: int) -> None:
        """One repeat: a launch, and more of them while the machine is too busy for its number to count."""
        first = len(progress.launched)
        tries = self._options.dirty_repeats if self._noisy < MAX_NOISY_TRIALS else 0
        while True:
            measured = self._launch(progress.proposal, len(progress.launched), round_of)
            progress.launched.append(measured)
            samples = progress.launched[first:]
            if measured.status is Status.TIMEOUT:
                tries = min(tries, 1)  # the most expensive of all samples
            elif not measured.ok:
                samples = [measured]  # a failure under load is a failure, a stop is a stop
            expensive = self._options.dirty_limit_s is not None and measured.cost_s > self._options.dirty_limit_s
            tried = len(progress.launched) - first
            disturbed = self._is_disturbed(measured) and tried <= tries and not expensive
            taken = EXCUSED in measured.conditions
            if not disturbed and not (taken and tried <= self._options.dirty_repeats):
                break
            progress.dirty_repeats += 1
            self._announce(progress.proposal, measured)
            self._pause(min(self._options.dirty_pause_s * 2 ** (tried - 1), measured.cost_s), round_of)
        self._count_taken(progress.proposal, measured)
        good = [one for one in samples if one.ok] or samples
        self._keep(progress, min(good, key=lambda one: dirt(one.conditions)))

    def _announce(self, proposal: Proposal, disturbed: Measurement) -> None:
        log.info("%s was disturbed by other work and is measured again", proposal.config)
        if self._on_repeat is not None:
            self._on_repeat(proposal, disturbed)

    def _keep(self, progress: _Progress, measurement: Measurement) -> None:
        progress.repeats.append(measurement)
        progress.dirty |= self._is_disturbed(measurement)
        if measurement.ok:
            self._noisy = self._noisy + 1 if self._is_disturbed(measurement) else 0

    def _count_taken(self, proposal: Proposal, measured: Measurement) -> None:
        """Give up when others leave no room for the default, or for one configuration after the other."""
        if EXCUSED not in measured.conditions:
            self._taken = 0
            return
        self._taken += 1
        if self._taken >= MAX_NOISY_TRIALS or proposal.config == self._space.default():
            raise self._no_room(measured.reason)

    def _no_room(self, reason: str) -> LaunchError:
        fix = "Stop these processes or wait until they have ended, then run the same command again: it continues where it was. "
        fix += "Other ways: other GPUs (CUDA_VISIBLE_DEVICES), a longer gpu_wait_s in execute.options, gpu_shared: true to run next to them"
        return LaunchError(Fault(where=self._task.system, rule=reason, fix=fix))

    def _is_disturbed(self, measured: Measurement) -> bool:
        """Whether other work spoiled it."""
        slow = measured.status in (Status.BOUNDED, Status.TIMEOUT)
        is_spoiled = (measured.ok or slow) and self._clean.is_dirty(measured.conditions)
        return is_spoiled and not measured.conditions.get(VIRTUAL)

    def _launch(self, proposal: Proposal, attempt: int, round_of: int) -> Measurement:
        config, to_beat = proposal.config, proposal.to_beat if self._options.stop_early else None
        broken = self._space.check(config)
        if broken:
            return Measurement(status=Status.INVALID, reason="; ".join(broken))
        seed = seeds.number(self._options.seed, config.key, proposal.repeat, attempt) % 2**31  # fits every engine's seed
        try:
            task = self._backend.long_run(self._task)[0] if proposal.is_long else self._task
            launch = self._limited(self._backend.render(config, task, seed), proposal, attempt)
            launch = told_curves(launch, proposal.curves) if proposal.curves else launch
            lost_s = self._lost_after_s(to_beat, launch)
            launch = launch if to_beat is None else replace(to_beat.told_to(launch), limit_s=lost_s or launch.limit_s)
        except Exception as error:  # a renderer that refuses a combination the space allows
            log.debug("%s could not be rendered", config, exc_info=True)
            return Measurement(status=Status.INVALID, reason=f"cannot be rendered: {error or type(error).__name__}")
        try:
            completed = self._run(launch, round_of)
        except LaunchError as error:
            if self._is_to_blame(proposal) and not isinstance(error, ClusterError):
                return Measurement(status=Status.INVALID, reason=str(error))
            raise
        reason = not_started(completed)
        if reason and completed.disturbed_by:
            raise self._no_room(reason)
        if completed.cannot_start:
            fix = "Make room or make it writable, then run the same command again: it continues where it was"
            raise LaunchError(Fault(where=self._task.system, rule=reason, fix=fix))
        if reason:
            with self._lock:
                self._accepted -= 1
            if not self._is_to_blame(proposal):
                raise LaunchError(
                    Fault(
                        where=self._task.system,
                        value=launch.argv[0] if launch.argv and completed.returncode is None else "",
                        rule=f"could not be started: {reason}",
                        fix="Install it, or name its program in the workload (-w engine_command=... for vllm and sglang)",
                    )
                )
            return finished(Measurement(status=Status.INVALID, reason=reason), completed)
        if completed.timed_out and lost_s is not None and to_beat is not None:
            return stopped(completed, to_beat, lost_s)
        return self._verdict(completed, launch)

    def _launch_together(self, proposals: Sequence[Proposal], round_of: int) -> list[Measurement | None]:
        """One launch for all of them; None for those that it says nothing about, and for all where it did not start."""
        first = proposals[0]
        to_beat = first.to_beat if self._options.stop_early and all(proposal.to_beat for proposal in proposals) else None
        seed = seeds.number(self._options.seed, first.config.key, first.repeat, 0) % 2**31
        try:
            configs = [proposal.config for proposal in proposals]
            launch = self._limited(self._backend.render_together(configs, self._task, seed), first, 0)
            launch = told_curves(launch, first.curves) if first.curves else launch
            completed = self._run(launch if to_beat is None else to_beat.told_to(launch), round_of)
        except Exception:  # by itself each of them says why
            log.debug("%s and others could not share a launch", first.config, exc_info=True)
            return [None] * len(proposals)
        if not_started(completed):
            with self._lock:
                self._accepted -= 1
            return [None] * len(proposals)
        parts = self._backend.divide(completed, len(proposals))
        measurements: list[Measurement | None] = []
        for part in parts:
            late = part is not None and part.timed_out and bool(measurements)  # those before it took of its time
            one = None if part is None or late else self._verdict(part, launch)
            measurements.append(one and replace(one, conditions={**one.conditions, "per_process": float(len(proposals))}))
        return measurements

    def _verdict(self, completed: Completed, launch: Launch) -> Measurement:
        """What a launch that ran says about its configuration; nothing where others or the study's own budget ended it."""
        budget_s = self._options.budget_s
        is_from_budget = budget_s is not None and launch.limit_s == budget_s != self._options.limit_s
        if is_from_budget and completed.timed_out and completed.wall_s < HOPELESS * self._longest_s:
            return cut_off(completed)
        measured = excused(verdict(self._backend, completed, self._task, launch.resources.gpus), completed)
        if measured.ok:
            self._took(completed.wall_s)
        return measured

    def _lost_after_s(self, to_beat: ToBeat | None, launch: Launch) -> float | None:
        """When a launch cannot win any more; None where nobody knows, or where its limit comes first."""
        if to_beat is None:
            return None
        lost_s = self._backend.lost_after_s(self._task, to_beat)
        return lost_s if lost_s is not None and 0 < lost_s < (launch.limit_s or math.inf) else None

    def _limited(self, launch: Launch, proposal: Proposal, attempt: int) -> Launch:
        limits = [limit for limit in (launch.limit_s, self._options.limit_s, self._options.budget_s) if limit is not None]
        number = f"{proposal.repeat}.{attempt}" if attempt else str(proposal.repeat)
        name = launch.name or f"{proposal.config.key[:8]}-{number}"
        return replace(launch, limit_s=min(limits, default=None), name=name)

    def _run(self, launch: Launch, round_of: int) -> Completed:
        with self._lock:
            if self._cancels != round_of:
                return Completed(returncode=None, cancelled=True)
            job = self._executor.submit(launch)
            self._jobs.add(job)
            self._accepted += 1
        try:
            completed = job.result()
            if completed.cancelled and (lost := self._executor.lost()) is not None:
                raise lost
            return completed
        except BaseException:  # Ctrl-C on the thread that waits: do not leave the trial behind
            job.cancel()
            raise
        finally:
            with self._lock:
                self._jobs.discard(job)

    def _is_to_blame(self, proposal: Proposal) -> bool:
        """Whether a launch that did not start is the configuration's own fault: others start, and it is not the default."""
        return self._accepted > 0 and proposal.config != self._space.default()

    def _pause(self, duration_s: float, round_of: int) -> None:
        while duration_s > 0 and self._cancels == round_of:
            self._clock.sleep(min(PAUSE_S, duration_s))
            duration_s -= PAUSE_S


__all__ = ["Profiler"]
