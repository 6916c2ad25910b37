"""What is known at a place of a script: variables, functions, arguments."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.commands.script.lexer import ScriptError
from autoscout.commands.script.words import Word, missing_in

Held = Word | list[Word]
LONGEST = 100_000  # characters of one value, and words of one array


@dataclass
class ScriptState:
    """Variables by name; one that is not set is absent, and one that only the run knows lacks something.

    Attributes:
        variables: Their values.
        exported: Names that commands see.
        functions: Their bodies.
        arguments: `$1` and those that follow.
        stop: Why what follows is not run: `exit`, `return`, `break`, `continue`; empty where it is.
        assumed: Names that were not set and were read as empty by a test; shared by all copies.
    """

    variables: dict[str, Held] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Any] = field(default_factory=dict)
    arguments: list[Word] = field(default_factory=list)
    stop: str = ""
    assumed: dict[str, None] = field(default_factory=dict)

    def copy(self) -> ScriptState:
        """Another one with the same values, for what may or may not happen."""
        other = copy.copy(self)
        other.variables, other.exported, other.arguments = dict(self.variables), set(self.exported), list(self.arguments)
        other.functions = dict(self.functions)
        return other

    def take(self, other: ScriptState) -> None:
        """Become the other one."""
        self.variables, self.exported, self.arguments = other.variables, other.exported, other.arguments
        self.functions, self.stop = other.functions, other.stop

    def either(self, states: Sequence[ScriptState]) -> None:
        """Become what all of these have in common; those that stop here say nothing about what follows."""
        onward = [state for state in states if not state.stop]
        if not onward:
            self.take(states[0])
            return
        first = onward[0].copy()
        for name in {name for state in onward for name in state.variables}:
            values = [state.variables.get(name, Word("", [name])) for state in onward]
            if any(value != values[0] or _missing(value) != _missing(values[0]) for value in values):
                first.variables[name] = Word("", [f"the value of {name}"])
        first.exported = set.union(*(state.exported for state in onward))
        self.take(first)

    def set(self, name: str, value: Held) -> None:
        """Give a variable a value.

        Raises:
            ScriptError: it is longer than any value should be.
        """
        if len(value) > LONGEST:
            raise ScriptError(f"gives {name} a value of more than {LONGEST:,} characters")
        self.variables[name] = value

    def get(self, name: str) -> Held:
        """The value of a variable; one that is not set lacks its own name."""
        if name.isdigit():
            place = int(name[:9])
            return self.arguments[place - 1] if 0 < place <= len(self.arguments) else Word("", [f"${name}"])
        return self.variables.get(name, Word("", [name]))

    def environment(self) -> dict[str, Word]:
        """What commands see."""
        values = {name: self.variables[name] for name in sorted(self.exported) if name in self.variables}
        return {name: value for name, value in values.items() if isinstance(value, Word)}


def _missing(value: Held) -> tuple[str, ...]:
    return missing_in(value) if isinstance(value, str) else tuple(name for word in value for name in word.missing)


__all__ = ["Held", "ScriptState"]
