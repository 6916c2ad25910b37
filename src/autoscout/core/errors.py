"""The exception tree.

    AutoScoutError                 root; carries what / where / rule / next step, exit code 2
    ├── SpaceError                 a declared space is broken (knob, condition, constraint)
    ├── ConfigError                a file, flag, hostfile, log or message that a person gave us is wrong
    ├── PluginError                a plug-in is unknown, twice there, or its packages are missing
    ├── LaunchError                the world is broken: an engine cannot be started at all
    └── StoreError                 the store cannot be read or written (newer schema, full disk, no server)

A configuration that fails is not an exception: it is a `Measurement` with a status. Exceptions are for a broken
world and for bad input. All faults of one input travel in one exception (`faults`), so that a person mends them in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXIT_OK = 0
EXIT_NO_RESULT = 1  # the study ran but no configuration succeeded
EXIT_BAD_INPUT = 2  # the user must change something before a retry can help
EXIT_INTERRUPTED = 130  # ended early by Ctrl-C or SIGTERM; everything measured is stored


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong with an input: where it is, which rule broke, and what to do next."""

    rule: str
    where: str = ""  # file, file:line, flag or URL
    field: str = ""  # dotted path inside the file
    value: str = ""  # what was found there
    fix: str = ""  # the next step

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        text = f"{place}: {self.rule}" if place else self.rule
        if self.value:
            text += f" (found {self.value})"
        if self.fix:
            text += f". {self.fix}" if not text.endswith(".") else f" {self.fix}"
        return text


class AutoScoutError(Exception):
    """Root of all errors that AutoScout raises on purpose.

    Args:
        faults: One `Fault`, several, or a plain sentence.
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, faults: str | Fault | Iterable[Fault]) -> None:
        if isinstance(faults, str):
            faults = (Fault(rule=faults),)
        elif isinstance(faults, Fault):
            faults = (faults,)
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[AutoScoutError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)  # faults, not text, survive a trip between processes


class SpaceError(AutoScoutError):
    """A declared space is broken."""


class ConfigError(AutoScoutError):
    """Something a person gave us (file, flag, hostfile, log, message) is wrong."""


class PluginError(AutoScoutError):
    """A plug-in is unknown, duplicated, or lacks its packages."""


class LaunchError(AutoScoutError):
    """An engine or executor cannot start anything at all; no single configuration is to blame."""


class StoreError(AutoScoutError):
    """The store cannot be read or written."""
