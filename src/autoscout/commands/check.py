"""Whether a command and a space fit together: every name known, no knob without a value where one is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoscout.commands.template import HELPERS, Scope, Slot, Template, slot_words, unwritable
from autoscout.common.fields import shown
from autoscout.common.text import suggestion
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Knob, Space

LISTED = 100  # values of a knob that are tried one by one


def fault(field: str, rule: str, value: object = None, fix: str = "") -> Fault:
    """Something wrong with a field of a workload."""
    return Fault(where="workload", field=field, value="" if value is None else shown(value), rule=rule, fix=fix)


def slot_faults(field: str, template: Template, space: Space, names: set[str]) -> Iterator[Fault]:
    """Slots of unknown names, and of values that cannot be written there."""
    for slot in template.slots:
        if slot.name not in names:
            fix = f"{suggestion(slot.name, names)} Write {{{{{slot.name}}}}} to keep the text as it is"
            yield fault(field, "unknown name in a slot", f"{{{slot.name}}}", fix)
        elif (knob := space.knobs.get(slot.name)) is not None:
            if slot.helper == "switch" and not all(isinstance(value, bool) for value in ends(knob)):
                yield fault(field, f"{slot.name} is not a boolean, so it cannot be a switch", f"{{{slot.name}:{slot.spec}}}", "Use :flag")
            elif slot.spec and slot.helper not in HELPERS and not template.faults:
                yield from _format(field, slot.name, template, knob)
            if slot.spot.words_only and not template.faults:
                yield from _words_only(field, slot, knob)


def _words_only(field: str, slot: Slot, knob: Knob) -> Iterator[Fault]:
    """The first value that the line around the slot would change."""
    for value in ends(knob):
        try:
            words = slot_words(slot, Scope({slot.name: value})) or ()
        except ConfigError:
            return  # its format does not suit it, which is said elsewhere
        for word in words:
            if isinstance(word, str) and (why := unwritable(word, slot.spot)):
                fix = slot.spot.fix.replace("{knob}", f"{{{slot.name}}}")
                yield fault(field, f"{{{slot.name}}} {why}", value, fix)
                return


def _format(field: str, name: str, template: Template, knob: Knob) -> Iterator[Fault]:
    for slot in template.slots:
        for value in ends(knob) if slot.name == name else ():
            try:
                slot_words(slot, Scope({name: value}))
            except ConfigError as error:
                yield fault(field, error.faults[0].rule, f"{name}={value!r}")
                return


def ends(knob: Knob) -> tuple[Value, ...]:
    """Values that a template must be able to write: all of a short list, the ends of a range; null is never written."""
    listed = knob.values if len(knob.values) <= LISTED else (knob.values[0], knob.values[-1], knob.default)
    return tuple(value for value in listed if value is not None)


def empty_faults(field: str, bare: Iterable[str], line: Template | None, space: Space, also: str = "") -> Iterator[Fault]:
    """Slots that would stay empty for some configurations, and optional parts that never are.

    Args:
        field: Of the command, for messages.
        bare: Names that must have a value whatever the configuration.
        line: The command, where it is a line for the shell.
        space: The knobs.
        also: What else a user may do about a knob that may be null.
    """
    for name in sorted(bare):
        knob = space.knobs.get(name)
        if knob is not None and _can_lack_value(knob):
            form = f"[... {{{name}}}]" if line is not None else f"a nested list around {{{name}}}"
            fix = f"Write {form}, {{{name}:flag}}, or {{{name}|value}} for that case{also if knob.when is None else ''}"
            when = f"has no value unless {knob.when}" if knob.when is not None else "may be null, which means not given"
            yield fault(field, f"{name} {when}, so its slot would stay empty", f"{{{name}}}", fix)
    for names in line.segments if line is not None else ():
        if not any(_can_lack_value(space.knobs[name]) for name in names if name in space.knobs):
            rule = f"the part in [ ] around {', '.join(sorted(names))} can never be left out: all of it always has a value"
            yield fault(field, rule, fix="For brackets write [[ ]]")


def _can_lack_value(knob: Knob) -> bool:
    return knob.when is not None or None in knob


__all__ = ["empty_faults", "ends", "fault", "slot_faults"]
