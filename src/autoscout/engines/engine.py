"""What differs between engines besides their tables: how they are started, found, and what they do by themselves."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autoscout.common.cache import answer_of
from autoscout.core.config import Value
from autoscout.core.log import NOTICES, logger
from autoscout.engines.table import EngineTable, nearest, table

HELP_LIMIT_S = 180.0  # engines import for many seconds before they print anything

log = logger(__name__)
notices = logger(NOTICES)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine.

    Attributes:
        name: Of the backend.
        title: As people write it.
        packages: Distributions that bring it, the usual one first.
        program: The program on the search path that serves, with its first words; empty when it is only a module.
        module: The same as a module of Python.
        model: The words that name the model.
        help: The word that makes it print all flags.
        own: What it does by itself, knob by knob, given the facts of model and machine and its version.
        env: Variables for every start.
        image: The container image that serves, by version.
        length: The setting for the longest request.
        no_tokenizer: Settings for a model without a tokenizer.
        settle: Puts settings that were read from a launch as the engine itself does where one way of saying it stands for another; says so.
        finish: Adds to the settings what follows from them, such as the draft model of speculative decoding; gets it and its kind.
        told: Words of every start that is measured, so that it tells its counters.
        across: Words for a start over several machines, with shell variables; the second part is for all machines but the first.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    program: tuple[str, ...]
    module: tuple[str, ...]
    model: tuple[str, ...]
    help: str
    own: Callable[[Mapping[str, Value], str], dict[str, Value]]
    image: Callable[[str], str]
    env: Mapping[str, str]
    length: str
    no_tokenizer: Mapping[str, Any]
    settle: Callable[[dict[str, Any]], list[str]]
    finish: Callable[[dict[str, Any], str, str], None]
    told: tuple[str, ...] = ()
    across: tuple[str, str]

    def installed(self) -> str:
        """The version that is installed next to AutoScout; empty when there is none."""
        for package in self.packages:
            try:
                return version(package)
            except PackageNotFoundError:
                continue
        return ""

    def command(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words that start it: the given ones, else its program, else its module with this Python."""
        if words:
            return tuple(words)
        if self.program and shutil.which(self.program[0]):
            return self.program
        if importlib.util.find_spec(self.module[0].split(".")[0]) is not None:
            return (sys.executable, "-m", *self.module)
        return self.program or ("python3", "-m", *self.module)


def missing_flags(engine: Engine, release: str, command: Sequence[str]) -> frozenset[str]:
    """Settings of the nearest table that this engine does not know, asked from its own `--help`; asked once and kept in a cache.

    Nothing is asked where there is a table of exactly this version, or where the engine cannot be started.
    """
    near = nearest(engine.name, release)
    if not release or release.split("+")[0] == near:
        return frozenset()
    nearest_table = table(engine.name, near)
    text = _help([*command, engine.help], f"{engine.name}-{release}")
    missing = unknown_to(text, nearest_table) if text else frozenset()
    knobs = [name for name, row in nearest_table.knobs.items() if row.setting in missing]
    without = f", without {', '.join(knobs)}, which it does not know" if knobs else ""
    notices.warning("no table of flags of %s %s: that of %s is used%s", engine.title, release, near, without)
    return missing


def unknown_to(text: str, engine_table: EngineTable) -> frozenset[str]:
    """Settings of a table whose flags a help text does not mention; none for a text that lists no flags at all."""
    mentioned = set(re.findall(r"--[a-z0-9][\w-]*", text))
    if len(mentioned) < 10:
        return frozenset()
    return frozenset(name for name, row in engine_table.flags.items() if row.flag not in mentioned)


def _help(command: Sequence[str], key: str) -> str:
    """What the engine prints about its flags; empty where it cannot be asked."""

    def ask() -> str:
        return _printed(command) if shutil.which(command[0]) is not None else ""

    return answer_of("help", [key, *command], ask)


def _printed(command: Sequence[str]) -> str:
    """What a command prints if it ends well and in time; its whole process group ends with it."""
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as asked:
            try:
                text, _ = asked.communicate(timeout=HELP_LIMIT_S)
            except subprocess.TimeoutExpired:
                log.warning("%s did not tell its flags within %g s", command[0], HELP_LIMIT_S)
                text = ""
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(asked.pid, signal.SIGKILL)
            return text if asked.poll() == 0 else ""
    except OSError as error:
        log.warning("%s cannot be asked for its flags: %s", command[0], error)
        return ""


__all__ = ["Engine", "missing_flags", "unknown_to"]
