"""Which words of a command start a server: the engine's own, after whatever starts it, in a container or without."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from autoscout.commands.script import Word, missing_in, read_script
from autoscout.engines.launches.names import DEVICES

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(?!=)(.*)", re.DOTALL)  # `==` pins the version of a package
STARTERS = frozenset([
    "exec", "nohup", "sudo", "env", "time", "command", "timeout", "nice", "ionice", "chrt", "setsid", "stdbuf", "tini",
    "dumb-init", "gosu", "runuser", "su", "script", "systemd-run", "numactl", "taskset", "srun", "sbatch", "mpirun", "torchrun",
    "nsys", "screen", "tmux", "ssh", "kubectl", "oc", "run", "uv", "uvx", "pipx", "pipenv", "poetry", "pdm", "hatch", "pixi",
    "rye", "conda", "mamba", "micromamba", "apptainer", "singularity", "enroot", "--",
])  # fmt: skip
"""Words before a server's own that change nothing of what it is told."""
SUDO_VALUES = ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-r", "-t", "--user", "--group", "--host", "--prompt", "--chdir")
"""Options of `sudo` whose value is a word of its own."""
RUNNERS = ("docker", "podman", "nerdctl")
DOCKER_SWITCHES = frozenset(
    [
        "-d",
        "-i",
        "-t",
        "-it",
        "-ti",
        "-dit",
        "-itd",
        "-P",
        "-q",
        "--rm",
        "--detach",
        "--init",
        "--interactive",
        "--privileged",
        "--tty",
        "--read-only",
        "--no-healthcheck",
        "--publish-all",
        "--quiet",
        "--oom-kill-disable",
    ]
)
"""Flags of `docker run` without a value; the others take one."""
MODULES: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.api_server"),
    "sglang": ("sglang.launch_server", "sglang.cli.main"),
}
SERVE = "serve"
SHELLS = ("sh", "bash", "dash", "zsh", "ash")
USUAL: Mapping[str, tuple[str, ...]] = {"vllm": ("vllm", "serve"), "sglang": ("python3", "-m", "sglang.launch_server")}
"""What the engine's own image starts."""
IMAGES: Mapping[str, re.Pattern[str]] = {
    "vllm": re.compile(r"(^|/)(vllm[\w.-]*|[\w.-]*vllm)[:/@]|(^|/)vllm[\w.-]*$|vllm/vllm"),
    "sglang": re.compile(r"(^|/)sglang[\w.-]*([:@]|$)|(^|/)sgl-[\w.-]*([:@]|$)"),
}
VERSION = re.compile(r":v?(\d+\.\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """A command that starts an engine.

    Attributes:
        arguments: The words after those that start it.
        env: Variables that are set for it.
        image: The container image that it runs in; empty without.
        gpus: How many GPUs it is given, as far as that is said.
        file: Flags of a file for `--config`.
        release: The engine's version, where what starts it asks for one.
    """

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    gpus: int | None = None
    file: Mapping[str, Any] = field(default_factory=dict)
    release: str = ""

    @property
    def version(self) -> str:
        """The engine's version by what starts it, or by the tag of the image; empty where neither says."""
        match = VERSION.search(self.image)
        return self.release or (match[1] if match else "")


def servers_of(engine: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> list[ServerCommand]:
    """The engine's starts in one command; none where it starts something else.

    Args:
        engine: Name of the backend.
        words: Of the command.
        env: Variables that are set for it already.

    Raises:
        ScriptError: a script within it cannot be read.
    """
    variables, rest = dict(env or {}), list(words)
    while rest and (match := ASSIGNMENT.fullmatch(rest[0])):
        variables[match[1]] = Word(match[2], missing_in(rest.pop(0)))
    if rest and PurePosixPath(rest[0]).name == "sudo":
        return servers_of(engine, _after_options(rest[1:], SUDO_VALUES), variables)
    if len(rest) > 1 and PurePosixPath(rest[0]).name in RUNNERS and "run" in rest[1:3]:
        return _in_docker(engine, rest[rest.index("run") + 1 :], variables)
    place = _start(engine, rest)
    if place is None:
        return _in_shell(engine, rest, variables)
    for word in rest[: place[0]]:
        if match := ASSIGNMENT.fullmatch(word):
            variables[match[1]] = Word(match[2], missing_in(word))
    gpus = next((variables[name] for name in DEVICES if variables.get(name)), "")
    count = len([part for part in gpus.split(",") if part.strip()]) if gpus not in ("all", "void") else 0
    pins = [match[1] for word in rest[: place[1]] if (match := re.fullmatch(rf".*\b{engine}(?:\[[^]]*\])?(?:==|@)v?(\d+\.\d+\.\d+)", word))]
    return [ServerCommand(arguments=tuple(rest[place[1] :]), env=variables, gpus=count or None, release=pins[0] if pins else "")]


def _after_options(words: list[str], values: Sequence[str]) -> list[str]:
    """The words after a program's own options, of which some take a value."""
    while words and words[0].startswith("-") and words[0] != "--":
        words = words[1 + (words[0] in values) :]
    return words[words[:1] == ["--"] :]


def _in_shell(engine: str, words: Sequence[str], env: Mapping[str, str]) -> list[ServerCommand]:
    """The starts in the script of `sh -c`, and in a word that is a script for `ssh`, `tmux` or `sbatch --wrap`."""
    if not words or PurePosixPath(words[0]).name not in (*STARTERS, *SHELLS):
        return []
    for place, word in enumerate(words[:-1]):
        if PurePosixPath(word).name in SHELLS:
            options = [position for position in range(place + 1, len(words)) if re.fullmatch(r"-[a-z]*c", words[position])]
            return _of_script(engine, words[options[0] + 1], env) if options and options[0] + 1 < len(words) else []
    scripts = (re.sub(r"^--[a-z]+=", "", word) for word in words[1:] if re.search(r"\s", word) and not missing_in(word))
    return next((servers for script in scripts if (servers := _of_script(engine, script, env))), [])


def _of_script(engine: str, text: str, env: Mapping[str, str]) -> list[ServerCommand]:
    commands = read_script(text, env).commands
    return [server for command in commands for server in servers_of(engine, command.words, {**env, **command.env})]


def _start(engine: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Where the engine's own words begin and end."""
    for place, word in enumerate(words):
        name = PurePosixPath(word).name
        after = words[place + 1] if place + 1 < len(words) else ""
        if name.partition("@")[0] == engine and after == SERVE:
            return place, place + 2
        if word == "-m" and after in MODULES[engine]:
            end = place + 2
            return place, end + (end < len(words) and words[end] == SERVE)
        if name == "launch_server.py" and engine == "sglang":
            return place, place + 1
        if name == "api_server.py" and engine == "vllm":
            return place, place + 1
        if place == 0 and missing_in(word) and after == "-m":
            continue
        if place == 0 and name in RUNNERS and "exec" in words[1:3]:
            continue
        if place == 0 and name not in STARTERS and not re.match(r"python[\d.]*$", name):
            return None
    return None


def _in_docker(engine: str, words: list[str], env: Mapping[str, str]) -> list[ServerCommand]:
    """The starts in `docker run`: its options, an image, and what the image is given."""
    inside: dict[str, str] = {}
    gpus: int | None = None
    entry: list[str] = []
    while words and words[0].startswith("-"):
        flag, equals, attached = words.pop(0).partition("=")
        if flag in DOCKER_SWITCHES:
            continue
        value = attached if equals else words.pop(0) if words else ""
        if flag in ("-e", "--env") and (match := ASSIGNMENT.fullmatch(value)):
            inside[match[1]] = Word(match[2], missing_in(value))
        elif flag in ("-e", "--env"):
            inside[value] = env.get(value, Word("", [value]))
        elif flag == "--gpus":
            gpus = _gpus(value)
        elif flag == "--entrypoint":
            entry = value.split()
    if not words:
        return []
    image, *arguments = words
    return servers_in_image(engine, image, [*entry, *arguments], env=inside, gpus=gpus)


def servers_in_image(engine: str, image: str, words: Sequence[str], *, env: Mapping[str, str], gpus: int | None) -> list[ServerCommand]:
    """The engine's starts in a container: what the image is given, or the command that replaces what the image starts."""
    servers = servers_of(engine, words, env)
    if not servers and IMAGES[engine].search(image) and not (words and _is_program(words[0])):
        servers = servers_of(engine, [*USUAL[engine], *words], env)
    return [replace(server, image=image, gpus=server.gpus if gpus is None else gpus) for server in servers]


def _is_program(word: str) -> bool:
    """Whether the first word after an image starts something else than the image's server."""
    return bool(re.fullmatch(r"(/[\w./-]+/)?(python[\d.]*|sh|bash|ray|nvidia-smi|sleep|tail|trtllm-serve)", word))


def _gpus(value: str) -> int | None:
    """GPUs that `--gpus` gives; None for all of them."""
    devices = re.search(r"device=([\w,-]+)", value)
    if devices:
        return len(devices[1].split(","))
    count = re.search(r"\d+", value)
    return int(count[0]) if count else None


__all__ = ["ServerCommand", "servers_in_image", "servers_of"]
