"""The exception tree.

    AutoScoutError                 root; carries what / where / rule / next step, exit code 2
    ├── SpaceError                 a declared space is broken (knob, condition, constraint)
    ├── ConfigError                a file, flag, hostfile, log or message that a person gave us is wrong
    │   └── NoLaunchError          a text holds no launch of the system that it was read for
    ├── PluginError                a plug-in is unknown, twice there, or its packages are missing
    ├── LaunchError                the world is broken: an engine cannot be started at all
    │   └── ClusterError           the machines of an executor are gone; no configuration is to blame
    └── StoreError                 the store cannot be read or written (newer schema, full disk, no server)

    Infeasible                     not an error: how a user's objective function says "this configuration does not work"

A configuration that fails is not an exception: it is a `Measurement` with a status. Exceptions are for a broken
world and for bad input. All faults of one input travel in one exception (`faults`), so that a person fixes them in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscout.core.trial import Status

EXIT_OK = 0
EXIT_BAD_INPUT = 2  # the user must change something before a retry can help; also when no configuration worked at all
EXIT_INTERRUPTED = 130  # ended early by Ctrl-C or SIGTERM; everything measured is stored

MOST_FAULTS = 100  # faults that one error carries; a person fixes these first
MOST_TEXT = 20_000  # characters of one error's message, about four pages
VALUE_SHOWN = 300  # characters of a place, a field or a found value that a message repeats
RULE_SHOWN = 4_000  # characters of a rule or a fix; the longest of ours lists all known models


def printable(text: str, most: int) -> str:
    """At most `most` characters of `text`, what a terminal would obey instead of show written as escapes."""
    if len(text) > most:
        text = text[: most - 3] + "..."
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong with an input: where it is, which rule broke, and what to do next."""

    rule: str
    where: str = ""  # file, file:line, flag or URL
    field: str = ""  # dotted path inside the file
    value: str = ""  # what was found there
    fix: str = ""  # the next step

    def __post_init__(self) -> None:
        for name, most in _SHOWN.items():
            object.__setattr__(self, name, printable(str(getattr(self, name)), most))

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        text = f"{place}: {self.rule}" if place else self.rule
        if self.value:
            text += f" (found {self.value})"
        if self.fix:
            text += f" {self.fix}" if text.endswith((".", "?")) else f". {self.fix}"
        return text


_SHOWN = {"where": VALUE_SHOWN, "field": VALUE_SHOWN, "value": VALUE_SHOWN, "rule": RULE_SHOWN, "fix": RULE_SHOWN}


def _bounded(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The first faults, as many as a message takes, and how many there are besides."""
    first: list[Fault] = []
    more = length = 0
    for fault in faults:
        length += len(str(fault)) if not more else 0
        if more or (first and (len(first) >= MOST_FAULTS or length > MOST_TEXT)):
            more += 1
        else:
            first.append(fault)
    if more:
        first.append(Fault(rule=f"{more:,} more faults; a message lists at most {MOST_FAULTS}", fix="Fix these first"))
    return tuple(first)


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
        self.faults: tuple[Fault, ...] = _bounded(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[AutoScoutError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)  # faults, not text, survive a trip between processes


class SpaceError(AutoScoutError):
    """A declared space is broken."""


class ConfigError(AutoScoutError):
    """Something a person gave us (file, flag, hostfile, log, message) is wrong."""


class NoLaunchError(ConfigError):
    """A text holds no launch of the system that it was read for; it may hold one of another."""


def require(where: str, owner: object, rules: Mapping[str, tuple[bool, str]]) -> None:
    """Check the fields of a freshly built options object.

    Args:
        where: Whose options they are, for the message.
        owner: The object whose attributes are checked.
        rules: Attribute -> (whether it is good, the rule it must keep).

    Raises:
        ConfigError: with one fault for every field that is not good.
    """
    faults = [
        Fault(where=where, field=name, value=repr(getattr(owner, name)), rule=rule) for name, (good, rule) in rules.items() if not good
    ]
    if faults:
        raise ConfigError(faults)


class PluginError(AutoScoutError):
    """A plug-in is unknown, duplicated, or lacks its packages."""


class LaunchError(AutoScoutError):
    """An engine or executor cannot start anything at all; no single configuration is to blame."""


class ClusterError(LaunchError):
    """The machines of an executor cannot be reached any more; whatever is launched next would fail as well."""


class StoreError(AutoScoutError):
    """The store cannot be read or written."""


class Infeasible(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a user's objective function for a configuration that cannot work; becomes a failed measurement.

    >>> def objective(config):
    ...     if config["batch"] * config["length"] > 65536:
    ...         raise Infeasible("does not fit", status=Status.OOM_START)
    ...     return 0.5

    Args:
        reason: One line for a person.
        status: Which kind of failure; any but `ok` and `aborted`.
    """

    def __init__(self, reason: str = "", status: Status | str = Status.INVALID) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = Status(status)
        if not self.status.failed:
            raise ValueError(f"an infeasible configuration has failed; its status cannot be {self.status.value!r}")

    def __reduce__(self) -> tuple[type[Infeasible], tuple[str, Status]]:
        return type(self), (self.reason, self.status)
