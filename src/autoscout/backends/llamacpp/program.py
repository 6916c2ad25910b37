"""What a `llama-server` program is, asked from itself: its flags and their defaults, version, GPUs, and what `--fit` chooses."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscout.common.cache import answer_of
from autoscout.core.log import logger
from autoscout.core.reading import is_reading

ASK_LIMIT_S = 60.0  # drivers of GPUs and files on a network take seconds
DESCRIPTION_COLUMN = 40  # of the help text: names stand before it
NOWHERE = "/nonexistent/model.gguf"
"""A program that is given it says how it was built, and ends."""

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProgramFlag:
    """One entry of the help text.

    Attributes:
        names: All spellings, short ones first, as it lists them.
        default: What it says it takes by itself; empty where it does not say.
        values: The words it takes, where it lists them.
        takes_value: Whether a word follows.
        env: The variable that says the same.
    """

    names: tuple[str, ...]
    default: str
    values: tuple[str, ...]
    takes_value: bool
    env: str = ""

    @property
    def off(self) -> str:
        """The word that says no; empty where there is none."""
        return next((name for name in self.names if name.startswith("--no-")), "")


@dataclass(frozen=True, kw_only=True)
class LlamaServer:
    """A program, with the words before it."""

    command: tuple[str, ...]
    version: str
    openmp: bool
    flags: Mapping[str, ProgramFlag]  # every spelling -> its entry
    devices: tuple[tuple[str, float], ...]  # GPUs: name and memory in GiB


def read_help(text: str) -> dict[str, ProgramFlag]:
    """Every spelling of every flag that a help text of llama.cpp lists; those it calls removed are left out."""
    flags: dict[str, ProgramFlag] = {}
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("-") and not line.startswith("---"):
            head, rest = line[:DESCRIPTION_COLUMN], line[DESCRIPTION_COLUMN:]
            is_wide = len(line) > DESCRIPTION_COLUMN and not (head.endswith(" ") and not rest.startswith((" ", "-")))
            entries.append((line, []) if is_wide or len(line) <= DESCRIPTION_COLUMN else (head, [rest]))
        elif entries:
            entries[-1][1].append(line.strip())
    for head, description in entries:
        entry = _entry(head, " ".join(description))
        flags |= dict.fromkeys(entry.names, entry) if "has been removed" not in " ".join(description) else {}
    return flags


def _entry(head: str, description: str) -> ProgramFlag:
    parts = [part.split(None, 1) for part in re.split(r",\s+", head.strip())]
    names = [part[0].rstrip(",") for part in parts if part and part[0].startswith("-")]
    shape = next((part[1].strip() for part in parts if len(part) > 1), "")
    default = re.search(r"\(?default: '?([^,()']*)", description)
    listed = re.search(r"allowed values: ([^()]*?)\s*(?:\(|$)", description)
    words = listed[1] if listed else shape if re.search(r"[|,]", shape) and not re.search(r"[A-Z.]|lo-hi|dev1", shape) else ""
    values = tuple(word for word in re.split(r"[|,\s]+", words.strip("{}[]<>")) if word)
    env = re.search(r"\(env: (\w+)\)", description)
    return ProgramFlag(
        names=tuple(names),
        default=default[1].strip() if default else "",
        values=values,
        takes_value=bool(shape),
        env=env[1] if env else "",
    )


def find(command: Sequence[str]) -> str:
    """Where the program of a command is; empty where there is none. The first word may be a wrapper, such as `taskset`."""
    return next((path for word in command if is_server(word) and (path := shutil.which(word) or "")), "") or shutil.which(command[0]) or ""


def is_server(word: str) -> bool:
    """Whether a word of a command names the server."""
    return re.fullmatch(r"(llama-?server.*|server)(\.exe)?", Path(word).name) is not None


def ask(command: tuple[str, ...]) -> LlamaServer | None:
    """What a program says of itself; None where it cannot be started or lists no flags. Asked once, and again after it has changed; what it
    said is kept, so that a study can be read without starting it."""
    path = find(command)
    if not path:
        return None
    state = Path(path).stat()
    return _ask(command, (state.st_mtime_ns, state.st_size))


def _ask(command: tuple[str, ...], state: tuple[int, int]) -> LlamaServer | None:
    def said(*words: str) -> str:
        return answer_of("llama-server", [*command, *words, *state], lambda: _said([*command, *words]))

    flags = read_help(said("--help"))
    if "--model" not in flags:
        return None
    version = re.search(r"version: (\S+)(?: \((?:build )?(\w+))?", said("--version"))
    built = said("--model", NOWHERE, "--port", "0", "--verbosity", "5")
    listed = said("--list-devices") if "--list-devices" in flags else ""
    sizes = re.findall(r"^\s+(\w+): .*\((\d+) MiB", listed, re.MULTILINE)
    return LlamaServer(
        command=command,
        version="-".join(filter(None, version.groups())) if version else "unknown",
        openmp="OPENMP = 1" in built,
        flags=flags,
        devices=tuple((name, int(size) / 1024) for name, size in sizes),
    )


def fitted(command: Sequence[str], model: str, context: int) -> str:
    """The flags that llama.cpp's own fitting chooses for the memory of this machine, from the program next to the server that prints them.

    Empty where there is none, or where it finds nothing that fits.
    """
    server = next((word for word in command if is_server(word)), "")
    near = str(Path(shutil.which(server) or server).with_name("llama-fit-params"))
    path = shutil.which(near) or shutil.which("llama-fit-params")
    if not path or is_reading():
        return ""
    lines = _said([path, "--model", model, "--ctx-size", str(context)], errors=False).splitlines()
    return next((line.strip() for line in reversed(lines) if line.lstrip().startswith("-c ")), "")


def placement(text: str) -> dict[str, str]:
    """The flags that `fitted` gives, by their short names."""
    words = shlex.split(text)
    return dict(zip(words[::2], words[1::2], strict=False))


def _said(command: Sequence[str], *, errors: bool = True) -> str:
    """What a program prints, however it ends."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            timeout=ASK_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("%s cannot be asked: %s", shlex.join(command), error)
        return ""
    return done.stdout.decode(errors="replace")


__all__ = ["LlamaServer", "ProgramFlag", "ask", "find", "fitted", "is_server", "placement", "read_help"]
