"""A running Slurm, through its own commands."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from autosched.events import JobEvent
from autosched.live._shared.commands import run
from autosched.live.slurm import qos
from autosched.live.slurm.conf import difference, includes, rendered, taken_back
from autosched.live.slurm.knobs import FROZEN, KNOBS, read_settings
from autosched.live.slurm.reading import SlurmReader
from autosched.live_scheduler import ChangePlan, ClusterState, LiveError, LiveScheduler
from autosched.schedulers.slurm import Slurm
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.traces.slurm_text import seconds_of
from autoscout.common.fields import Block, read_fields, refuse_if
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Grid, Knob, Space

_SLACK_S = 120.0  # before the last look from which accounting is read again: ends reach it late
_ACCOUNTING_S = 30 * 86_400.0  # of accounting that the first look reads
_SHORT = {"bf_max_job_test": (1, 10, 50, 100, 500, 1_000, 5_000)}


class _SlurmOptions(Block):
    conf: str = Field("/etc/slurm/slurm.conf", min_length=1)
    partitions: tuple[str, ...] | list[str] = ()
    timeout_s: float = Field(20.0, gt=0)
    reconfigure_s: float = Field(60.0, gt=0)
    history_s: float = Field(_ACCOUNTING_S, gt=0)
    shared: bool = True
    qos: tuple[str, ...] | list[str] = ()
    output: Literal["auto", "json", "text"] = "auto"


class LiveSlurm(LiveScheduler):
    """Slurm with multifactor priorities, on the machine of its controller or wherever slurm.conf is the one it reads.

    Args:
        options: `conf` (path of slurm.conf), `partitions` (only these; all when left out), `timeout_s` (of a command), `reconfigure_s`,
            `history_s` (accounting that the first look reads), `shared` (whether partitions share their nodes; if not each is a virtual
            cluster), `qos` (qualities of service whose limits are settings too), `output` (`json` or `text`: how commands are asked to
            answer; `auto`: JSON where this version has it).

    Raises:
        ConfigError: all faults of the options at once.
    """

    model = "slurm"
    frozen = FROZEN

    def __init__(self, options: Mapping[str, Any], clock: Clock | None = None) -> None:
        read, faults = read_fields(_SlurmOptions, options, "live")
        if read is not None and not Path(read.conf).is_file():
            faults.append(Fault(where="live", field="conf", value=read.conf, rule="there is no such file"))
        refuse_if(faults)
        assert read is not None
        self._options = read
        self.conf = Path(read.conf).absolute()
        self.clock: Clock = clock or RealClock()
        self.pinned = Config(bf_conservative=True, placement="consolidated", priority_calc_period_s=Slurm.priority_calc_period_s)
        self._since_s: float | None = None
        self._reading = SlurmReader(self._ask, read.partitions, read.shared, read.output)

    # --------------------------------------------------------------------------------------------------------------------- reading

    def _ask(self, *command: str, timeout_s: float | None = None) -> str:
        variables = {"SLURM_CONF": str(self.conf), "TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C"}
        variables["SLURM_BITSTR_LEN"] = "0"  # or the tasks of an array are cut off after 64 characters
        return run(command, timeout_s=timeout_s or self._options.timeout_s, environment=variables)

    def shown(self) -> dict[str, str]:
        """Key -> value that slurmctld says is in force.

        Raises:
            LiveError: it does not answer.
        """
        values = {}
        for line in self._ask("scontrol", "show", "config").splitlines():
            key, equals, value = line.partition("=")
            if equals and re.fullmatch(r"\w+", key.strip()):
                values[key.strip()] = value.strip()
        if "SLURM_VERSION" not in values:
            raise LiveError(Fault(where="scontrol show config", rule="does not say its version"))
        return values

    def version(self, report: Mapping[str, str]) -> tuple[int, int]:
        """Major and minor, such as 22 and 5."""
        match = re.match(r"(\d+)\.(\d+)", report["SLURM_VERSION"])
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def settings(self) -> Config:
        return self._settings(self.shown())

    def _settings(self, report: Mapping[str, str]) -> Config:
        if "multifactor" not in report.get("PriorityType", ""):
            rule, fix = "needs priority/multifactor", "Set PriorityType and restart slurmctld"
            raise LiveError(Fault(where="slurm.conf", field="PriorityType", value=report.get("PriorityType", ""), rule=rule, fix=fix))
        try:
            return read_settings(report).extend(qos.read(self._ask, self._options.qos))
        except ConfigError as error:
            raise LiveError(error.faults) from error

    def look(self) -> ClusterState:
        report = self.shown()  # first: a slurmctld that does not answer is waited for once
        version = self.version(report)
        self.pinned = self.pinned.extend(priority_calc_period_s=_calc_period_s(report))
        names, cluster = self._reading.nodes(version)
        snapshot = self._reading.queue(version, names, self.clock.now_s)
        events = [*self._accounting(version, snapshot.at_s), *_seen(snapshot)]
        return ClusterState(at_s=snapshot.at_s, cluster=cluster, snapshot=snapshot, events=events, settings=self._settings(report))

    def _accounting(self, version: tuple[int, int], at_s: float) -> list[JobEvent]:
        long = self._since_s is None
        since_s = at_s - self._options.history_s if self._since_s is None else min(self._since_s, at_s) - _SLACK_S  # clocks go back too
        events = self._reading.accounting(version, since_s, long=long)
        self._since_s = at_s
        return events

    # -------------------------------------------------------------------------------------------------------------------- changing

    def space(self, cluster: Cluster) -> Space:
        """The model's knobs that Slurm has, at values that slurm.conf can hold."""
        space = Slurm.space(cluster)
        return Space([self._knob(space.knobs[name]) for name in space.declared if name not in FROZEN], space.constraints, dict(space.facts))

    def _knob(self, knob: Knob) -> Knob:
        if knob.name in self.pinned:
            value = self.pinned[knob.name]
            return Grid(knob.name, values=[value], default=value) if knob.ordered else knob.only(value)  # type: ignore[arg-type,list-item]
        mine = KNOBS[knob.name]
        if not knob.ordered:
            return knob
        listed = _SHORT.get(knob.name, knob.values)
        values = sorted({mine.read(mine.write(value)) for value in listed if mine.least <= float(value or 0) <= mine.most})  # type: ignore[type-var]
        default = mine.default if mine.default in values else values[0]
        common: dict[str, Any] = {
            "log": knob.log,
            "sparse": knob.sparse,
            "when": knob.when,
            "unit": knob.unit,
            "help": knob.help,
            "warning": knob.warning,
        }
        return Grid(knob.name, values=values, default=default, restart=False, **common)  # type: ignore[arg-type]

    def plan(self, after: Config) -> ChangePlan:
        return self._plan(after)

    def undo(self, plan: ChangePlan, before: Config) -> ChangePlan:
        return self._plan(before, plan)

    def _plan(self, after: Config, undone: ChangePlan | None = None) -> ChangePlan:
        report = self.shown()
        self._refuse_unread(report)
        now = self._settings(report)
        version = self.version(report)
        faults = [fault for name, value in after.items() if name in KNOBS for fault in KNOBS[name].faults(value, version)]
        refuse_if([*faults, *qos.faults_of(after, self._options.qos)])
        old = self._read()
        about = (after, now, str(self.conf), includes(old, self.conf.parent))
        new = rendered(old, *about) if undone is None else taken_back(old, undone.data["old"], undone.data["new"], *about)
        limits = {name: value for name, value in now.items() if name in qos.knobs(self._options.qos)}
        target = {name: after.get(name, value) for name, value in limits.items()}
        data = {"old": old, "new": new, "before": now.to_json(), "limits": {"before": limits, "after": target}}
        return ChangePlan(diff=difference(old, new, self.conf.name) + qos.told(qos.changes(limits, target, self._options.qos)), data=data)

    def _refuse_unread(self, report: Mapping[str, str]) -> None:
        """Refuse to reconfigure while the file holds what somebody else wrote and slurmctld has not read: it may end on what it finds."""
        if report.get("HASH_VAL", "").startswith("Different"):
            rule = "was edited since slurmctld last read it, and a reconfigure would put that in force too"
            fix = "Run `scontrol reconfigure`, or restart slurmctld, when the edit is ready"
            raise ConfigError(Fault(where=str(self.conf), rule=rule, fix=fix))

    def apply(self, plan: ChangePlan) -> None:
        old, new = plan.data["old"], plan.data["new"]
        if self._read() != old:
            rule = "was changed by somebody else since the plan was made; nothing was written"
            raise LiveError(Fault(where=str(self.conf), rule=rule, fix="Decide again"))
        if new != old:
            self._keep(old)
            self._write(new)
            self._reconfigure()
        self._limit(plan.data["limits"]["after"])

    def restore(self, plan: ChangePlan) -> None:
        old, new, here = plan.data["old"], plan.data["new"], self._read()
        if here == new:
            self._write(old)  # without asking: slurmctld may not answer
        elif here != old:
            now, before = self._settings(self.shown()), Config(plan.data["before"])
            try:
                self._write(taken_back(here, old, new, before, now, str(self.conf), includes(here, self.conf.parent)))
            except ConfigError as error:
                raise LiveError(error.faults) from error
        if new != old:
            self._reconfigure()
        self._limit(plan.data["limits"]["before"])

    def _limit(self, target: Mapping[str, Value]) -> None:
        now = qos.read(self._ask, self._options.qos)
        qos.send(self._ask, qos.changes(now, target, self._options.qos))

    def stored(self, plan: ChangePlan) -> str:
        here, limits = self._read(), qos.read(self._ask, self._options.qos)
        for name, text in (("after", "new"), ("before", "old")):
            if here == plan.data[text] and limits == plan.data["limits"][name]:
                return name
        return "other"

    def _reconfigure(self) -> None:
        self._ask("scontrol", "reconfigure", timeout_s=self._options.reconfigure_s)

    def _read(self) -> str:
        try:
            return self.conf.read_bytes().decode("utf-8", errors="surrogateescape")
        except OSError as error:
            raise LiveError(Fault(where=str(self.conf), rule=f"cannot be read: {error.strerror}")) from error

    def _keep(self, text: str) -> None:
        """The file as it was, under a name that says what is in it; the same text is kept once."""
        copy = self.conf.with_name(f"{self.conf.name}.autoscout-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:12]}")
        if not copy.exists():
            self._write(text, copy)

    def _write(self, text: str, path: Path | None = None) -> None:
        """In one piece, on the disk before it takes the name, with the owner and mode of the file it replaces."""
        path = path or self.conf
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            about = self.conf.stat()
            for stale in path.parent.glob(f".{path.name}.*.partial"):
                stale.unlink(missing_ok=True)  # by a controller that was killed while it wrote
            with partial.open("wb") as file:
                file.write(text.encode("utf-8", errors="surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(about.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.chown(partial, about.st_uid, about.st_gid)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise LiveError(Fault(where=str(path), rule=f"cannot be written: {error.strerror}")) from error


def _calc_period_s(report: Mapping[str, str]) -> float:
    """PriorityCalcPeriod; what Slurm does without it where it is not said."""
    period_s = float(seconds_of([report.get("PriorityCalcPeriod", "")])[0])
    return period_s if period_s > 0 else Slurm.priority_calc_period_s


def _seen(snapshot: Snapshot) -> list[JobEvent]:
    """The queue as events: accounting may know of these jobs only later."""
    jobs, events = snapshot.jobs, []
    user, vc = jobs.user.texts(), jobs.vc.texts()
    limits = jobs.extra.get("estimate_s")
    for row in range(len(jobs)):
        attributes: dict[str, float | str] = {"gpus": float(jobs.gpus[row])}
        attributes |= {name: str(text) for name, text in (("user", user[row]), ("vc", vc[row])) if text}
        if limits is not None and limits[row] < float("inf"):
            attributes["estimate_s"] = float(limits[row])
        events.append(JobEvent(job=str(jobs.job_id[row]), kind="submit", at_s=float(jobs.submit_s[row]), attributes=attributes))
    return events
