"""Changing a live scheduler: written down first, checked afterwards, taken back when it did not take."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.control.ledger import OPEN, Entry, Ledger
from autosched.live_scheduler import ChangePlan, LiveError, LiveScheduler
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.core.log import logger

log = logger(__name__)

ASK_S = 0.2  # between two questions whether a change took


@dataclass(frozen=True, kw_only=True)
class Changer:
    """The only part of a controller that touches the cluster.

    Attributes:
        live: The scheduler.
        ledger: Where an intent is kept before it is carried out.
        verify_s: How long the scheduler may take to report new settings.
    """

    live: LiveScheduler
    ledger: Ledger
    verify_s: float

    def make(self, entry: Entry) -> Entry:
        """Carry out a decision, once; afterwards the cluster has its settings, or those before it, or did not answer (`unsure`)."""
        clock = self.live.clock
        try:
            undoes = entry.kind == "rollback"
            plan = self.live.undo(_plan(self.ledger.entry(entry.of)), entry.after) if undoes else self.live.plan(entry.after)
        except AutoScoutError as error:
            return self.ledger.move(entry, "failed", clock.now_s(), "refused", str(error), why=str(error))
        entry = self.ledger.move(
            entry, "applying", clock.now_s(), "intent", plan.diff or "no difference", plan=dict(plan.data), diff=plan.diff
        )
        try:
            self.live.apply(plan)
            wrong = self._wrong(entry.after)
        except LiveError as error:
            wrong = str(error)
        if wrong:
            return self._take_back(entry, wrong)
        words = "the scheduler reports the new settings"
        return self.ledger.move(entry, "applied", clock.now_s(), "applied", words, applied_s=clock.now_s())

    def reconcile(self) -> list[Entry]:
        """Find out what became of intents that nobody saw the end of; what is half done is taken back. Returns those still unsure."""
        unsure = []
        for entry in self.ledger.in_state(*OPEN):
            at_s = self.live.clock.now_s()
            try:
                stored = self.live.stored(_plan(entry))
                now = self.live.settings()
            except LiveError as error:
                log.warning("decision %d: %s", entry.id, error)
                unsure.append(self._unsure(entry, str(error)))
                continue
            if stored == "after" and has_settings(now, entry.after) and not entry.why:
                words = "found in force after a restart"
                self.ledger.move(entry, "applied", at_s, "applied", words, applied_s=at_s)
            elif stored == "before" and has_settings(now, entry.before):
                why = entry.why or "interrupted before it took"
                self.ledger.move(entry, "failed", at_s, "failed", f"{why}; the settings before are in force", why=why)
            else:
                moved = self._take_back(entry, entry.why or "interrupted halfway")
                unsure += [moved] if moved.state == "unsure" else []
        return unsure

    def _take_back(self, entry: Entry, why: str) -> Entry:
        try:
            self.live.restore(_plan(entry))
            wrong = self._wrong(entry.before)
        except LiveError as error:
            wrong = str(error)
        if wrong:
            return self._unsure(entry, f"{why}; taking it back: {wrong}")
        return self.ledger.move(
            entry, "failed", self.live.clock.now_s(), "failed", f"{why}; the settings before were brought back", why=why
        )

    def _unsure(self, entry: Entry, why: str) -> Entry:
        if entry.state == "unsure":
            return entry  # said once; asked again at the next look
        return self.ledger.move(entry, "unsure", self.live.clock.now_s(), "unsure", why, why=why)

    def _wrong(self, target: Config) -> str:
        """How the settings in force differ from those wanted, after some patience; empty: not at all."""
        clock = self.live.clock
        deadline_s = clock.span_s() + self.verify_s
        while True:
            now = self.live.settings()
            if has_settings(now, target):
                return ""
            if clock.span_s() >= deadline_s:
                odd = {name: (value, now.get(name)) for name, value in target.items() if now.get(name) != value}
                differences = ", ".join(f"{name} is {current} instead of {value}" for name, (value, current) in odd.items())
                return f"the scheduler reports other settings: {differences}"
            clock.sleep(ASK_S)


def has_settings(now: Config, target: Config) -> bool:
    """Whether every setting that is wanted is in force."""
    return all(now.get(name) == value for name, value in target.items())


def _plan(entry: Entry) -> ChangePlan:
    return ChangePlan(diff=entry.diff, data=entry.plan)
