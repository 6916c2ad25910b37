"""Steering: what was asked of a study from outside, taken in between two trials."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from autoscout.core.actions import Action, ActionKind, invalid_trials, raised
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Store
from autoscout.core.task import Budget
from autoscout.core.trial import Proposal

STOPPING = "the study ends when the trials under way are done"
LEFT_OUT = "left out of the search and of the result"

Complete = Callable[[Config], Config]
"""A configuration with every knob that the given ones leave open; raises `SpaceError` for what the space does not allow."""


@dataclass(kw_only=True)
class Steering:
    """Reads the actions of one study. What a store cannot keep is never asked for.

    Attributes:
        store: Where they are kept.
        study: Whose.
        complete: Makes configurations to try complete; None: they are complete.
        stop: Whether somebody asked the study to end since the first look.
        invalid: Numbers of the trials that were marked invalid.
        asked: Configurations to try, in the order in which they were asked for.
    """

    store: Store
    study: str
    complete: Complete | None = None
    stop: bool = field(default=False, init=False)
    invalid: frozenset[int] = field(default=frozenset(), init=False)
    asked: dict[Config, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._all: list[Action] = []
        self._looked = False

    def look(self, budget: Budget) -> Budget:
        """Take in what is new, answer it, and return the budget with what was added to it."""
        count = len(self._all)
        self._all = self.store.actions(self.study)
        for action in self._all[count:]:
            before, budget = budget, raised(budget, [action])
            said = self._heed(action, before, budget)
            if not action.answer and said:
                self.store.answer(self.study, action.number, said)
        self.invalid = frozenset(invalid_trials(self._all))
        self._looked = True
        return budget

    def proposals(self, measured: Collection[tuple[Config, int]], valid: Collection[Config]) -> list[Proposal]:
        """What somebody asked to measure; again only where every answer was marked invalid.

        Args:
            seen: Configurations and repeats that are stored.
            valid: Configurations with a trial that counts.
        """
        proposals = []
        for config in self.asked:
            repeat = 0
            while config not in valid and (config, repeat) in measured:
                repeat -= 1
            proposals.append(Proposal(config=config, origin=Origin(by=By.ASKED), repeat=repeat))
        return proposals

    def _heed(self, action: Action, before: Budget, after: Budget) -> str:
        """Do what one action asks; what to tell whoever asked."""
        if action.kind is ActionKind.STOP:
            self.stop |= self._looked  # one from before this run began was for an earlier one
            return STOPPING if self._looked else ""
        if action.kind is ActionKind.BUDGET:
            bounds = [(name, getattr(before, name), getattr(after, name)) for name in action.budget]
            changed = "; ".join(f"{name}: {old:g} to {new:g}" for name, old, new in bounds if old != new)
            return changed or "no bound was raised: the study has none, or a higher one"
        if action.kind is ActionKind.INVALID:
            return LEFT_OUT
        if action.kind in (ActionKind.DESCRIBE, ActionKind.RUN):
            return ""  # for people; runs are answered by whoever runs
        try:
            config = action.config if self.complete is None else self.complete(action.config)
        except AutoScoutError as error:
            return f"refused: {error}"
        self.asked[config] = None
        return "will be measured next, if the search still has budget"
