"""Whether a workload and a space fit together: every name known, every knob used, no knob without a value where one is needed."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscout.backends.command.files import mentioned, text_names
from autoscout.backends.command.sources import calculate
from autoscout.backends.command.workload import IN_FOLDER, Command, CommandWorkload
from autoscout.commands.check import empty_faults, ends, fault, slot_faults
from autoscout.commands.template import RESERVED, RUNTIME
from autoscout.common.templates import holes, resolve
from autoscout.common.text import nearest, suggestion
from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space import Listed, Space

_SHELL_WORDS = re.compile(
    r"cd|if|for|while|until|case|exec|source|\.|export|test|\[\[?|set|ulimit|time|eval|trap|!|unset|read|echo|printf|true|false|:|umask|wait"
)


def check(workload: CommandWorkload, space: Space, facts: Mapping[str, Value]) -> list[Fault]:
    """Everything about the workload that does not fit the space."""
    facts = {**space.facts, **facts}
    names = {*space.knobs, *facts, *RESERVED}
    taken = [name for name in space.knobs if name in RESERVED]
    faults = [fault("space", f"a knob must not be called {name}: templates use that word for something else") for name in taken]
    for field, template in workload.templates():
        faults += slot_faults(field, template, space, names)
    for field, command in workload.commands.items():
        faults += empty_faults(field, command.bare, command.line, space)
    for name, content in workload.files.items():
        faults += _file(f"files.{name}", content, names)
    return [*faults, *_resources(workload, space, facts), *_output_names(workload), *_unused(workload, space)]


def missing(workload: CommandWorkload) -> list[Fault]:
    """Faults for a folder or programs that are not on this machine; nothing is said about words the shell must work out first."""
    faults: list[Fault] = []
    if workload.cwd != IN_FOLDER and not Path(workload.cwd).is_dir():
        faults.append(fault("cwd", "must be a folder that exists, or {folder} for the folder of the trial", workload.cwd))
    if not workload.find_program or "PATH" in workload.env:
        return faults
    for field, command in workload.commands.items():
        word = _program(command)
        if not word or shutil.which(word) is not None:
            continue
        if "/" in word and workload.cwd != IN_FOLDER and shutil.which(str(Path(workload.cwd, word))):
            continue
        fix = "Install it or correct its name; with find_program: false it is looked for only when it runs"
        faults.append(fault(field, "the program is not on this machine (not on PATH, or not executable)", word, fix))
    return faults


def _program(command: Command) -> str:
    if command.line is None:
        first = command.groups[0][0] if command.groups and command.groups[0] else None
        return first.text if first is not None and not first.names else ""
    try:
        words = shlex.split(command.line.text, comments=True)
    except ValueError:
        return ""
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        words = words[1:]
    word = words[0] if words else ""
    return "" if _SHELL_WORDS.fullmatch(word) or re.search(r"[{}$`*?<>|&;()~#\n]", word) else word


def _file(field: str, content: Any, vocabulary: set[str]) -> Iterator[Fault]:
    if isinstance(content, str):
        names = text_names(content)
        # Other braces and dollars belong to the file's own language.
        strange = [name for name in names if name not in vocabulary and nearest(name, vocabulary, most=1, cutoff=0.85)]
    else:
        names = holes(content)
        strange = [name for name in names if resolve(name, vocabulary) is None]
    for name in sorted(strange):
        yield fault(field, "unknown name in a slot", name, suggestion(name, vocabulary - set(RUNTIME)))
    for name in sorted(names & (set(RUNTIME) | {"flags"})):
        fix = "Write paths relative to the file" if name == "folder" else "Pass it on the command line"
        yield fault(field, f"{name} is not known when files are written", name, fix)


def _resources(workload: CommandWorkload, space: Space, facts: Mapping[str, Value]) -> Iterator[Fault]:
    values = {**facts, **{name: knob.nearest(knob.default, ends(knob)) for name, knob in space.knobs.items() if ends(knob)}}
    for name, amount in workload.resources.given.items():
        if isinstance(amount, str):
            try:
                number = calculate(amount, values)
            except SpaceError as error:
                yield fault(f"resources.{name}", error.faults[0].rule, amount, error.faults[0].fix)
                continue
            if not isinstance(number, (int, float)) or isinstance(number, bool):
                yield fault(f"resources.{name}", "must come to a number", amount)


def _output_names(workload: CommandWorkload) -> Iterator[Fault]:
    """A result file would be written where all trials write theirs when its command does not even know the folder of the trial.

    The name may come apart from the folder, as in `--result-dir {folder} --result-filename bench.json`.
    """
    if workload.cwd == IN_FOLDER or "folder" in workload.run.names:
        return
    for name in workload.outputs:
        for template in workload.run.templates:
            if re.search(rf"(?<![\w./}}-]){re.escape(name)}(?![\w.-])", template.text):
                rule = f"{name} would be written to {workload.cwd}, not to the folder of the trial"
                yield fault("command", rule, fix=f"Write {{folder}}/{name}, or set cwd: '{{folder}}'")


def _unused(workload: CommandWorkload, space: Space) -> Iterator[Fault]:
    used = mentioned(workload, space.knobs)
    if any("flags" in command.names for command in workload.commands.values()):
        return
    gates = {parent for name in space.knobs for parent in space.parents(name)}
    gates |= {name for constraint in space.constraints for name in constraint.names()}
    gates |= set(space.knobs if isinstance(space, Listed) else ())  # what is listed with a value goes with it
    gates |= {
        name for name in space.knobs for amount in workload.resources.given.values() if re.search(rf"\b{re.escape(name)}\b", str(amount))
    }
    for name in space.knobs:
        if name not in used | gates:
            fix = f"Add {{{name}}} where its value belongs, {{flags}} for all unused knobs, or remove the knob"
            yield fault("space", f"knob {name} is used nowhere: command, env and files do not mention it", fix=fix)
