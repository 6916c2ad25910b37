"""The controller: looks at a cluster, decides, changes, and checks what came of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autosched.control import actions
from autosched.control.bounds import Bounds
from autosched.control.change import Changer, has_settings
from autosched.control.decide import Recommendation, observation_of
from autosched.control.ledger import Entry, Ledger
from autosched.control.lookback import Period, look_back
from autosched.control.report import write_week
from autosched.control.repository import HOUR_S, WorkloadRepository
from autosched.control.settings import Settings
from autosched.live_scheduler import ClusterState, LiveError, LiveScheduler
from autosched.predict.features import Repository
from autosched.sim.snapshot import Snapshot
from autosched.sim.snapshot_file import read_snapshot, write_snapshot
from autosched.tune.explain import change, told_steps, why
from autosched.tune.regimes import LOOK_S, alarms
from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import AutoScoutError, ConfigError, Fault
from autoscout.core.log import logger
from autoscout.space import Space

log = logger(__name__)

CHANGING = ("hourly", "watch", "operator")
"""Kinds of decisions that count against the changes of a day; a rollback is always allowed."""


@dataclass
class ControllerStatus:
    """What a controller knows of itself, for its service; nothing here is needed after a restart."""

    healthy: bool = False
    words: str = "has not looked yet"
    at_s: float = math.nan
    looks: int = 0
    failures: int = 0
    load: float = math.nan
    waiting: int = 0
    running: int = 0
    settings: Config = field(default_factory=Config)
    cluster_state: ClusterState | None = None
    odd_events: str = ""
    alarm: str = ""


class Controller:
    """Keeps the settings of one cluster tuned.

    It keeps no memory that matters: what it acts on is read back from the ledger, so it can be killed at any moment and started again.

    Args:
        settings: What the operator says.
        live: The scheduler.
    """

    def __init__(self, settings: Settings, live: LiveScheduler) -> None:
        self.settings, self.live = settings, live
        self._folder = Path(settings.folder)
        (self._folder / "marks").mkdir(parents=True, exist_ok=True)
        self.repository = WorkloadRepository(settings.target)
        self.ledger = Ledger(settings.target, settings.cluster)
        self.changer = Changer(live=live, ledger=self.ledger, verify_s=settings.verify)
        self.adviser = settings.tuning.adviser(live.model)
        self.bounds = settings.bounds.bounds()
        self.state = ControllerStatus()
        self.lock = threading.RLock()  # the service reads and asks from other threads
        self.after_tick: Callable[[], None] = lambda: None
        self._forgot_s = -math.inf

    # ---------------------------------------------------------------------------------------------------------------------- the loop

    def run(self, stop: threading.Event | None = None, until_s: float = math.inf) -> None:
        """Look, again and again, until told to stop or until a moment of the live scheduler's clock."""
        stop = stop or threading.Event()
        clock = self.live.clock
        self.ledger.note(clock.now_s(), "started", f"mode {self.settings.mode}")
        while not stop.is_set() and clock.now_s() < until_s:
            began_s = clock.span_s()
            self.tick()
            left_s = self.settings.look - (clock.span_s() - began_s)
            while left_s > 0 and not stop.is_set():
                step_s = min(left_s, max(1.0, self.settings.look / 10))
                clock.sleep(step_s)
                left_s -= step_s

    def look(self) -> None:
        """One look, for a question: nothing is decided, and the ledger is left to the controller that may be running.

        Raises:
            LiveError: the cluster does not answer.
        """
        with self.lock:
            cluster_state = self.live.look()
            self._keep_events(cluster_state)
            self._remember(cluster_state)

    def tick(self) -> None:
        """One look, and whatever is due."""
        self._tick()
        self.after_tick()

    def _tick(self) -> None:
        with self.lock:
            if self.changer.reconcile():
                self._unhealthy("a change is half done and the scheduler does not answer")
                return
            try:
                cluster_state = self.live.look()
            except LiveError as error:
                self._unhealthy(str(error))
                return
            odd = self._keep_events(cluster_state)
            if odd and odd != self.state.odd_events:
                self.ledger.note(cluster_state.at_s, "left out", odd)
            self.state.odd_events = odd
            if self.state.cluster_state is None:
                self.bounds.check(self.live.space(cluster_state.cluster))
            self._seen(cluster_state)
            self._finish_rollbacks(cluster_state.at_s)
            self._end_overtaken(cluster_state)
            if self._carry_out(cluster_state) or self._judge(cluster_state):
                return  # settings have changed: decide by what is seen next
            kind = self._due(cluster_state.at_s)
            if kind:
                self._decide(cluster_state, kind)
            if cluster_state.at_s - self._forgot_s >= HOUR_S:
                self._forgot_s = cluster_state.at_s
                self.repository.forget(self.settings.cluster, cluster_state.at_s - self.settings.keep)
                self.ledger.forget(cluster_state.at_s - self.settings.keep)
                write_week(self.ledger, self._folder / "reports", cluster_state.at_s, simulated=self.settings.simulated)

    def close(self) -> None:
        """Let go of the database."""
        self.repository.close()
        self.ledger.close()

    def _unhealthy(self, words: str) -> None:
        if self.state.healthy or self.state.words != words:
            self.ledger.note(self.live.clock.now_s(), "no answer", words)
        self.state.healthy, self.state.words = False, words
        self.state.failures += 1

    def _keep_events(self, cluster_state: ClusterState) -> str:
        """Keep what happened; a scheduler may tell of a job what no rule allows. What is left out, in words."""
        faults = [event.faults(f"job {event.job[:80]}") for event in cluster_state.events]
        odd = [broken[0] for broken in faults if broken]
        self.repository.add(
            self.settings.cluster, [event for event, broken in zip(cluster_state.events, faults, strict=True) if not broken]
        )
        return f"{len(odd)} events are not kept, such as: {odd[0]}" if odd else ""

    def _seen(self, cluster_state: ClusterState) -> None:
        state, jobs = self.state, cluster_state.snapshot.jobs
        before = state.at_s if state.cluster_state is not None else (self.ledger.last_sample() or (-math.inf,))[0]
        if cluster_state.at_s < before:
            words = f"the clock went back by {before - cluster_state.at_s:.0f} s; decisions wait until it has caught up"
            self.ledger.note(cluster_state.at_s, "clock", words)
        if state.cluster_state is not None and cluster_state.settings != state.settings:
            self._note_outside(cluster_state)
        if state.cluster_state is not None and cluster_state.cluster != state.cluster_state.cluster:
            state.alarm = f"nodes have come or gone: {state.cluster_state.cluster.gpus} -> {cluster_state.cluster.gpus} GPUs"
            self.ledger.note(cluster_state.at_s, "alarm", state.alarm)
        if not state.healthy:
            self.ledger.note(cluster_state.at_s, "answers", f"{len(jobs)} jobs, {cluster_state.cluster.gpus} GPUs")
        self._remember(cluster_state)
        sample = {"load": state.load, "waiting": state.waiting, "running": state.running, "settings": cluster_state.settings.to_json()}
        if allowed := self.bounds.allowed(self.live.space(cluster_state.cluster), cluster_state.settings):
            sample["allowed"] = allowed
        self.ledger.sample(cluster_state.at_s, sample | ({"simulated": True} if self.settings.simulated else {}))

    def _remember(self, cluster_state: ClusterState) -> None:
        state, jobs = self.state, cluster_state.snapshot.jobs
        running = int(cluster_state.snapshot.running.sum())
        state.healthy, state.words, state.at_s, state.looks = True, "ok", cluster_state.at_s, state.looks + 1
        state.load = float(jobs.gpus.sum()) / cluster_state.cluster.gpus
        state.waiting, state.running = len(jobs) - running, running
        state.settings, state.cluster_state = cluster_state.settings, cluster_state

    def _note_outside(self, cluster_state: ClusterState) -> None:
        """Somebody else may have changed settings: say so, and never fight over it."""
        changed = {name: (self.state.settings.get(name), value) for name, value in cluster_state.settings.items()}
        odd = ", ".join(change(name, old, new) for name, (old, new) in changed.items() if old != new)
        if odd:
            self.ledger.note(cluster_state.at_s, "changed outside", odd)

    # -------------------------------------------------------------------------------------------------------------------- deciding

    def space(self, cluster_state: ClusterState) -> Space:
        """What the next change may choose from; its default is what is in force."""
        return self.bounds.narrowed(self.live.space(cluster_state.cluster), cluster_state.settings.extend(self.live.pinned))

    def _whole(self, cluster_state: ClusterState) -> Space:
        """What may ever be chosen, without the operator's bounds; its default is what is in force."""
        return Bounds().narrowed(self.live.space(cluster_state.cluster), cluster_state.settings.extend(self.live.pinned))

    def known(self, at_s: float) -> Repository:
        """The past of the cluster, as far back as it is learned from."""
        return self.repository.jobs(self.settings.cluster, at_s - self.settings.memory)

    def what_if(self, knob: str) -> list[tuple[Value, float]]:
        """Every value of one knob -> predicted gain on the current queue; NaN where none could be found out.

        Raises:
            ConfigError: there is no such knob, or the cluster was not seen yet.
        """
        if self.state.cluster_state is None:  # the first look holds the lock, and may take a minute
            raise ConfigError(Fault(where="what-if", rule="the cluster was not seen yet", fix="Wait for the next look"))
        with self.lock:
            cluster_state = self.state.cluster_state
            assert cluster_state is not None  # it is never forgotten
            space = self._whole(cluster_state)
            if knob in self.live.frozen:
                rule, fix = f"is left to operators: {self.live.frozen[knob]}", f"Propose a value: autoscout sched propose FILE {knob}=..."
                raise ConfigError(Fault(where="what-if", field="knob", value=knob, rule=rule, fix=fix))
            if knob not in space.knobs or knob in self.live.pinned:
                raise ConfigError(Fault(where="what-if", field="knob", value=knob, rule="no such knob", fix=suggestion(knob, space.knobs)))
            gains = self.adviser.what_if(cluster_state, self.known(cluster_state.at_s), space, knob)
            if not gains:
                rule = f"means nothing with the settings in force: it needs {space.knobs[knob].when or 'others'}"
                raise ConfigError(Fault(where="what-if", field="knob", value=knob, rule=rule))
            return gains

    def check_values(self, values: Mapping[str, Value]) -> None:
        """Refuse values that no knob of this cluster has, as far as it was seen.

        Raises:
            ConfigError: all of them at once.
        """
        cluster_state = self.state.cluster_state
        knobs = self.live.space(cluster_state.cluster).knobs if cluster_state is not None else {}
        faults = []
        for name, value in values.items():
            knob = knobs.get(name)
            whole = knob is not None and all(type(each) is int for each in (knob.values[0], knob.values[len(knob.values) - 1]))
            if knob is not None and (knob.position(value) is None or (whole and isinstance(value, bool))):
                ends = f"{knob.values[0]} to {knob.values[len(knob.values) - 1]}"
                faults.append(Fault(where="propose", field=name, value=repr(value)[:80], rule=f"is none of its values ({ends})"))
        if faults:
            raise ConfigError(faults)

    def _due(self, at_s: float) -> str:
        """Which kind of decision is due, if any."""
        hourly, watch = self.ledger.last("hourly"), self.ledger.last("hourly", "watch")
        if hourly is None or at_s - hourly.at_s >= self.settings.every:
            return "hourly"
        is_due = watch is not None and (bool(self.state.alarm) or at_s - watch.at_s >= self.settings.watch)
        return "watch" if self.settings.watch and is_due else ""

    def _alarm(self, cluster_state: ClusterState, jobs: Repository) -> str:
        """Nodes that went, or a burst or a large job since the last look in between; each is answered once, and only if that pays."""
        nodes, self.state.alarm = self.state.alarm, ""
        at_s = cluster_state.at_s
        came = alarms(jobs.jobs, cluster_state.cluster.gpus, at_s - max(LOOK_S, self.settings.watch), at_s + 1.0)
        for each in came:
            self.ledger.note(at_s, "alarm", each.words)
        return "; ".join([*([nodes] if nodes else []), *(each.words for each in came)])

    def _decide(self, cluster_state: ClusterState, kind: str) -> None:
        try:
            jobs, whole, watching = self.known(cluster_state.at_s), self._whole(cluster_state), kind == "watch"
            space = self.space(cluster_state)
            alarm = self._alarm(cluster_state, jobs)
            recommendation = self.adviser.decide(cluster_state, jobs, space, whole=whole, watching=watching, alarm=alarm)
        except ConfigError as error:  # what was seen cannot be simulated: say so, and look again when the next decision is due
            settings = cluster_state.settings
            entry = Entry(at_s=cluster_state.at_s, state="same", kind=kind, before=settings, after=settings, words=f"not decided: {error}")
            self.ledger.add(entry, "not decided", entry.words)
            return
        entry = self._entry(cluster_state, kind, recommendation)
        if recommendation.left_out:
            names = ", ".join(recommendation.left_out[:5])
            self.ledger.note(
                cluster_state.at_s, "left out", f"{len(recommendation.left_out)} jobs can never run on this cluster, such as {names}"
            )
        if not recommendation.decision.changed:
            self.ledger.add(entry, "decided", entry.words)
            if kind == "hourly":
                self._mark("last", cluster_state.snapshot)
            return
        held = self._held_back(cluster_state.at_s)
        mode = self.settings.mode
        if mode == "apply" and not held:
            proof = self.adviser.proof(cluster_state, jobs, space, recommendation.decision.after)
            held = proof.doubt(self.settings.tuning.least_jobs, self.settings.tuning.least_past)
        if mode == "observe" or held:
            words = f"not changed: {held}" if held else "would change (observe)"
            entry = self.ledger.add(replace(entry, state="observed", why=held), "observed", f"{words}. {entry.words}")
            self._mark(str(entry.id), cluster_state.snapshot)
        elif mode == "propose":
            self._propose(entry, cluster_state, recommendation)
        else:
            entry = self.ledger.add(replace(entry, state="approved"), "decided", entry.words)
            self._make(entry, cluster_state)
        if kind == "hourly":
            self._mark("last", cluster_state.snapshot)

    def _entry(self, cluster_state: ClusterState, kind: str, recommendation: Recommendation) -> Entry:
        decision = recommendation.decision
        after = cluster_state.settings.extend({name: value for name, value in decision.after.items() if name not in self.live.pinned})
        words = why(decision).partition(": ")[2]  # without the moment, which whoever shows a decision says first
        if decision.changed or recommendation.best != decision.before:
            words += f" Nine times in ten the gain should lie between {recommendation.low:.3f} and {recommendation.high:.3f}."
        words = f"{words}\n{told_steps(decision)}"
        return Entry(
            at_s=cluster_state.at_s,
            state="same",
            kind=kind,
            before=cluster_state.settings,
            after=after,
            predicted=decision.predicted,
            low=recommendation.low,
            high=recommendation.high,
            words=words,
            contributions=decision.contributions,
            load=decision.load,
            waiting=decision.waiting,
            unfinished=decision.unfinished,
            simulations=decision.simulations,
        )

    def _held_back(self, at_s: float) -> str:
        """Why nothing may be changed now; empty: it may."""
        if quiet := self.bounds.quiet_at(at_s):
            return f"quiet hours {quiet}"
        recent = [entry for entry in self.ledger.history(at_s - 2 * 86_400.0) if entry.kind in CHANGING]
        changes = [entry.at_s if entry.state == "failed" else entry.applied_s for entry in recent]  # what failed is not tried all day long
        if self.bounds.is_used_up([moment for moment in changes if math.isfinite(moment)], at_s):
            return f"{self.bounds.changes_per_day} changes have been made or tried in the last 24 hours"
        if any(entry.kind != "rollback" for entry in self.ledger.in_state("applied")):
            return "the last change has not been judged yet"
        return ""

    # -------------------------------------------------------------------------------------------------------------------- changing

    def _carry_out(self, cluster_state: ClusterState) -> bool:
        """What somebody approved or asked to be rolled back; whether anything was tried."""
        tried = False
        for entry in self.ledger.in_state("approved"):
            faults = (
                []
                if entry.kind == "rollback"
                else self.bounds.outside(self.live.space(cluster_state.cluster), cluster_state.settings, entry.after)
            )
            held = "" if entry.kind == "rollback" else self._held_back(cluster_state.at_s)
            stale = not has_settings(cluster_state.settings, entry.before)
            if faults or held or stale:
                reason = "; ".join(str(fault) for fault in faults) or held or "the settings have changed since it was decided"
                self.ledger.move(entry, "refused", cluster_state.at_s, "refused", reason, why=reason)
                continue
            self._make(entry, cluster_state)
            tried = True
        return tried

    def _make(self, entry: Entry, cluster_state: ClusterState) -> Entry:
        self._mark(str(entry.id), cluster_state.snapshot)
        change = self.changer.make(replace(entry, bias=self._current_bias(cluster_state)))
        if change.state == "applied":
            self.state.settings = change.after  # so that the next look does not take it for somebody else's change
        if change.state == "failed" or change.kind == "rollback":
            self._unmark(str(change.id))
        self._finish_rollbacks(self.live.clock.now_s())
        return change

    def _finish_rollbacks(self, at_s: float) -> None:
        """A rollback that took ends the change that it takes back; also when a crash came in between."""
        for entry in self.ledger.in_state("applied"):
            if entry.kind == "rollback":
                undone = self.ledger.entry(entry.of)
                if undone.state in actions.CAN_UNDO:
                    self.ledger.move(undone, "undone", at_s, "undone", entry.words, why=entry.words)
                self._unmark(str(undone.id))
                self.ledger.move(entry, "kept", at_s, "kept", "rolled back")

    def _propose(self, entry: Entry, cluster_state: ClusterState, recommendation: Recommendation) -> None:
        """Propose a change, unless one waits that is the same, or as good but for noise: whoever answers needs time."""
        waiting = [each for each in self.ledger.in_state("proposed") if each.kind != "operator"]
        for other in waiting:
            if other.after == entry.after or not recommendation.is_better_than(self._model_config(other.after, cluster_state)):
                words = f"Proposal {other.id} still waits: nothing was found that is better by more than noise. {entry.words}"
                self.ledger.add(replace(entry, after=entry.before, words=words), "decided", words)
                return
        entry = self.ledger.add(replace(entry, state="proposed"), "proposed", entry.words)
        for other in waiting:
            reason = f"proposal {entry.id}, which is better, took its place"
            self.ledger.move(other, "refused", cluster_state.at_s, "refused", reason, why=reason)

    def _end_overtaken(self, cluster_state: ClusterState) -> None:
        """Proposals that rest on settings that are no longer in force."""
        for entry in self.ledger.in_state("proposed"):
            if not has_settings(cluster_state.settings, entry.before):
                reason = "overtaken: the settings have changed since it was proposed"
                self.ledger.move(entry, "refused", cluster_state.at_s, "refused", reason, why=reason)

    # ----------------------------------------------------------------------------------------------------------------- looking back

    def _judge(self, cluster_state: ClusterState) -> bool:
        """Compare what came after a change with what was predicted of it; take it back when it was worse. Whether anything was tried."""
        marked = [self.ledger.entry(int(path.stem)) for path in (self._folder / "marks").glob("[0-9]*.npz")]
        observed = [entry for entry in marked if entry.state == "observed" and math.isnan(entry.measured)]
        tried = False
        for entry in [*self.ledger.in_state("applied"), *observed]:
            began_s = entry.applied_s if entry.state == "applied" else entry.at_s
            if cluster_state.at_s - began_s < self.settings.period_s:
                continue
            if math.isnan(entry.measured):
                entry = self._judge_one(entry, cluster_state)
            if entry.state == "applied":
                tried = self._take_back(entry, cluster_state) or tried
        return tried

    def _take_back(self, entry: Entry, cluster_state: ClusterState) -> bool:
        """Roll back a change that was judged to be worse; what did not work, such as over somebody's unread edit, is tried again."""
        before = self.ledger.rollbacks(entry)
        if before and before[-1].state == "refused":  # somebody has set something else
            reason = f"not rolled back: {before[-1].why}"
            self.ledger.move(entry, "kept", cluster_state.at_s, "failed", f"{reason}; somebody must look at it", why=reason)
            return False
        wait_s = min(self.settings.period_s, self.settings.look * 2.0 ** min(len(before), 30))  # longer each time
        if before and cluster_state.at_s - before[-1].at_s < wait_s:
            return False
        actions.roll_back(self.ledger, entry.id, "", f"worse than it should be: {entry.why}", cluster_state.at_s)
        return self._carry_out(cluster_state)

    def _judge_one(self, entry: Entry, cluster_state: ClusterState) -> Entry:
        """What a change gained; it stays `applied` where it must be taken back."""
        period = self._period(str(entry.id), cluster_state, [entry.before, entry.after])
        self._unmark(str(entry.id))
        old, new = (self._model_config(config, cluster_state) for config in (entry.before, entry.after))
        if entry.state == "observed":
            simulated = period.simulated_s if period else {}
            measured = simulated[old] / simulated[new] if simulated.get(old) and simulated.get(new) else math.nan
            words = f"on the jobs that came it would have been {measured:.3f} times as good (simulated); predicted {entry.predicted:.3f}"
            return self.ledger.move(entry, "observed", cluster_state.at_s, "looked back", words, measured=measured)
        measured = period.gain(old, entry.bias) if period else math.nan
        if math.isnan(measured):
            words = "too few jobs came to say what it gained; kept"
            return self.ledger.move(entry, "kept", cluster_state.at_s, "kept", words, why=words)
        words = f"measured {measured:.3f} times as good as the settings before, predicted {entry.predicted:.3f}"
        if measured >= self._needed(entry):
            return self.ledger.move(entry, "kept", cluster_state.at_s, "kept", words, measured=measured, why=words)
        return self.ledger.move(entry, "applied", cluster_state.at_s, "worse", words, measured=measured, why=words)

    def _needed(self, entry: Entry) -> float:
        """The measured gain below which a change is taken back."""
        rule = self.settings.roll_back
        against = entry.predicted if rule.worse_than == "predicted" and math.isfinite(entry.predicted) else 1.0
        return against * (1 - rule.tolerance)

    def _current_bias(self, cluster_state: ClusterState) -> float:
        """How many times longer jobs really take than in the simulation, since the last mark."""
        period = self._period("last", cluster_state, [cluster_state.settings]) if self._has_mark("last") else None
        return period.bias(self._model_config(cluster_state.settings, cluster_state)) if period else 1.0

    def _period(self, mark: str, cluster_state: ClusterState, settings: list[Config]) -> Period | None:
        snapshot = self._read_mark(mark)
        if snapshot is None:
            return None
        observation, _ = observation_of(cluster_state, self.known(cluster_state.at_s))
        configs = [self._model_config(config, cluster_state) for config in settings]
        return look_back(snapshot, observation, cluster_state.cluster, self.adviser.builder(observation), self.adviser.predictor, configs)

    def _model_config(self, settings: Config, cluster_state: ClusterState) -> Config:
        """Settings as a configuration of the model: knobs that mean nothing under the others are left out."""
        return Bounds().narrowed(self.live.space(cluster_state.cluster), settings.extend(self.live.pinned)).default()

    def _mark(self, name: str, snapshot: Snapshot) -> None:
        write_snapshot(snapshot, self._folder / "marks" / f"{name}.npz")

    def _has_mark(self, name: str) -> bool:
        return (self._folder / "marks" / f"{name}.npz").exists()

    def _unmark(self, name: str) -> None:
        (self._folder / "marks" / f"{name}.npz").unlink(missing_ok=True)

    def _read_mark(self, name: str) -> Snapshot | None:
        try:
            return read_snapshot(self._folder / "marks" / f"{name}.npz") if self._has_mark(name) else None
        except AutoScoutError as error:  # a mark that was cut off by a crash says nothing
            log.warning("%s", error)
            return None
