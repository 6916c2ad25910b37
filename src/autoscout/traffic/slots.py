"""What llama.cpp tells under /slots: how long each request is that a slot works on or has answered last."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscout.core.errors import ConfigError
from autoscout.traffic import http


@dataclass
class _Task:
    prompt: int = 0  # tokens; 0 until its answer has begun
    tokens: int = 0  # of the prompt and what is written of the answer
    ended: bool = False

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Prompt and answer; None where it was not seen at work."""
        return (self.prompt, max(1, self.tokens - self.prompt + 1)) if self.prompt and self.ended else None


@dataclass
class SlotWatch:
    """Notes the requests of a server, look by look.

    The last token of an answer is never read, so that a slot holds one token less than prompt and answer.
    """

    address: str
    tasks: dict[tuple[int, int], _Task] = field(default_factory=dict)
    before: set[tuple[int, int]] | None = None  # what was there at the first look

    def look(self) -> bool:
        """Look once; false where the server does not tell."""
        try:
            slots = json.loads(http.get(self.address))
        except (ConfigError, ValueError, RecursionError):
            return False
        if not isinstance(slots, list):
            return False
        for slot in slots:
            with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
                self._note(slot)
        if self.before is None:
            self.before = set(self.tasks)
        return True

    def _note(self, slot: Mapping[str, Any]) -> None:
        place, number, tokens = int(slot["id"]), int(slot["id_task"]), int(slot["n_prompt_tokens"])
        for (other, older), task in self.tasks.items():
            if other == place and older != number:  # answered between two looks: what was seen last is what is known
                task.ended = True
        task = self.tasks.setdefault((place, number), _Task())
        if not slot["is_processing"]:
            task.tokens, task.ended = max(task.tokens, tokens), True
            return
        decoded = int(slot["next_token"][0]["n_decoded"])
        if decoded > 0:
            task.prompt, task.tokens = tokens - decoded + 1, tokens

    @property
    def new(self) -> list[_Task]:
        """Requests that have begun since the first look, and ended."""
        return [task for key, task in self.tasks.items() if task.ended and key not in (self.before or ())]

    def pairs(self, answer_share: float) -> list[tuple[int, int]]:
        """Lengths of prompt and answer; of those that were seen ended only, the sum in the proportion of all."""
        pairs = []
        for task in self.new:
            if (lengths := task.lengths) is not None:
                pairs.append(lengths)
            elif task.tokens:
                answer = max(1, round((task.tokens + 1) * answer_share))
                pairs.append((max(1, task.tokens + 1 - answer), answer))
        return [(prompt, answer) for prompt, answer in pairs if prompt > 0]


__all__ = ["SlotWatch"]
