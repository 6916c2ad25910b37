"""The workload of the `command` backend: its fields, read from plain data and written back, all faults at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from autoscout.backends.command.fields import Reader
from autoscout.backends.command.sources import Check, Source
from autoscout.backends.command.template import RUNTIME, Piece, Scope, Template, parse
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.launch import Resources
from autoscout.space.parser import parse as parse_expression

FIELDS = (
    "command", "serve", "bench", "env", "files", "metrics", "checks", "ready", "health", "oom_patterns", "invalid_patterns",
    "limit_s", "start_limit_s", "resources", "repeats", "warmups", "cwd", "find_program", "space",
)  # fmt: skip
ALIASES = {"metric": "metrics", "check": "checks", "serve_cmd": "serve", "bench_cmd": "bench", "serve-cmd": "serve", "bench-cmd": "bench"}
IN_FOLDER = "{folder}"
STRUCTURED = (".json", ".yaml", ".yml")


@dataclass(frozen=True)
class Command:
    """A command as the user wrote it: a line for the shell, or arguments of which a nested list can be left out."""

    raw: str | list[Any]
    line: Template | None = None
    groups: tuple[tuple[Template, ...], ...] = ()  # groups of more than one, or of nested lists, go together
    nested: tuple[bool, ...] = ()

    @property
    def templates(self) -> Iterator[Template]:
        if self.line is not None:
            yield self.line
        for group in self.groups:
            yield from group

    @property
    def names(self) -> set[str]:
        return {name for template in self.templates for name in template.names}

    @property
    def bare(self) -> set[str]:
        """Names that must have a value whatever the configuration."""
        if self.line is not None:
            return self.line.bare
        plain = (group for group, nested in zip(self.groups, self.nested, strict=True) if not nested)
        return {name for group in plain for template in group for name in template.bare}

    def words(self, scope: Scope) -> list[tuple[Piece, ...]]:
        """The arguments, for a command that was written as a list."""
        found: list[tuple[Piece, ...]] = []
        for group, nested in zip(self.groups, self.nested, strict=True):
            needed = {slot.name for template in group for slot in template.slots if not slot.optional}
            if not (nested and needed - set(scope.values) - set(RUNTIME)):
                found.extend(word for template in group for word in template.words(scope))
        return found


@dataclass(frozen=True, kw_only=True)
class Health:
    """How to know that a server is up: a URL that answers, a pattern in its log, or its port."""

    url: Template | None = None
    log: re.Pattern[str] | None = None

    def to_json(self) -> dict[str, str]:
        return {"url": self.url.text} if self.url else {"log": self.log.pattern} if self.log else {}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Everything the backend needs to know about a program."""

    run: Command  # the command, or the benchmark of a server
    serve: Command | None = None
    env: Mapping[str, Template] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)  # text, or a tree with $holes
    metrics: Mapping[str, Source] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    ready: re.Pattern[str] | None = None
    health: Health = field(default_factory=Health)
    oom_patterns: tuple[re.Pattern[str], ...] = ()
    invalid_patterns: tuple[re.Pattern[str], ...] = ()
    limit_s: float | None = None
    start_limit_s: float = 600.0
    resources: Mapping[str, float | str] = field(default_factory=dict)
    repeats: int = 1
    warmups: int = 0
    cwd: str = IN_FOLDER
    find_program: bool = True
    space: Mapping[str, Any] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files of the trial folder that are read back."""
        named = [source.file for source in self.metrics.values()] + [check.file for check in self.checks]
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def driven(self) -> bool:
        """Whether the launch needs the driver: a server, several runs, or a free port."""
        uses_port = "port" in self.run.names or any("port" in template.names for template in self.env.values())
        return self.serve is not None or self.repeats > 1 or self.warmups > 0 or uses_port

    def with_flags(self) -> Workload:
        """This workload with `{flags}` at the end of its server or command, unless that is more than one plain command."""
        command = self.serve or self.run
        if isinstance(command.raw, list):
            groups, nested = (*command.groups, (parse("{flags}"),)), (*command.nested, False)
            longer = replace(command, raw=[*command.raw, "{flags}"], groups=groups, nested=nested)
        elif re.search(r"[|;&<>#\n]", command.raw):
            return self
        else:
            line = f"{command.raw.strip()} {{flags}}"
            longer = replace(command, raw=line, line=parse(line, shell=True))
        return replace(self, serve=longer) if self.serve is not None else replace(self, run=longer)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, those at their defaults left out; reading it gives this workload again."""
        data: dict[str, Any] = {"serve": self.serve.raw, "bench": self.run.raw} if self.serve else {"command": self.run.raw}
        data["env"] = {name: template.text for name, template in self.env.items()}
        data["files"] = dict(self.files)
        data["metrics"] = {name: source.to_json() for name, source in self.metrics.items()}
        data["checks"] = [check.to_json() for check in self.checks]
        data["ready"] = self.ready.pattern if self.ready else None
        data["health"] = self.health.to_json()
        data["oom_patterns"] = [pattern.pattern for pattern in self.oom_patterns]
        data["invalid_patterns"] = [pattern.pattern for pattern in self.invalid_patterns]
        data["resources"] = dict(self.resources)
        data["space"] = dict(self.space) if self.space is not None else None
        kept = {name: value for name, value in data.items() if value not in (None, {}, [])}
        usual = {"limit_s": None, "start_limit_s": 600.0, "repeats": 1, "warmups": 0, "find_program": True}
        kept.update({name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value})
        return {**kept, "cwd": self.cwd}


def read_workload(raw: Mapping[str, Any]) -> Workload:
    """Read a workload.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    workload, faults = try_workload(raw)
    if faults:
        raise ConfigError(faults)
    return workload


def try_workload(raw: Mapping[str, Any], where: str = "workload") -> tuple[Workload, list[Fault]]:
    """As much of a workload as can be read, and what is wrong with the rest."""
    reader = Reader(where)
    data = _renamed(raw, reader)
    reader.keys("", data, FIELDS)
    run, serve = _commands(data, reader)
    cwd = _cwd(data.get("cwd"), reader)
    metrics = {name: reader.source(name, value) for name, value in _metrics(data.get("metrics"), reader).items()}
    listed = data.get("checks") or []
    checks = [reader.check(f"checks.{at}", item) for at, item in enumerate(listed if isinstance(listed, list) else [listed])]
    workload = Workload(
        run=run or Command(raw=""),
        serve=serve,
        env={name: _variable(name, value, reader) for name, value in reader.mapping("env", data.get("env")).items()},
        files=_files(data.get("files"), cwd, reader),
        metrics={name: source or Source(wall=True) for name, source in metrics.items()},
        checks=tuple(check for check in checks if check is not None),
        ready=reader.pattern("ready", data.get("ready")),
        health=_health(data.get("health"), serve, reader),
        oom_patterns=reader.patterns("oom_patterns", data.get("oom_patterns")),
        invalid_patterns=reader.patterns("invalid_patterns", data.get("invalid_patterns")),
        limit_s=reader.number("limit_s", data.get("limit_s"), above=0),
        start_limit_s=float(reader.number("start_limit_s", data.get("start_limit_s"), above=0) or 600.0),
        resources=_resources(data.get("resources"), reader),
        repeats=reader.number("repeats", data.get("repeats"), above=0, whole=True) or 1,
        warmups=reader.number("warmups", data.get("warmups"), above=-1, whole=True) or 0,
        cwd=cwd,
        find_program=bool(data.get("find_program", True)),
        space=reader.mapping("space", data.get("space")) or None,
    )
    return workload, reader.faults


def _renamed(raw: Mapping[str, Any], reader: Reader) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in raw.items():
        name = ALIASES.get(key, key)
        if name in data:
            reader.fault(str(key), f"is the same field as {name}; only one may be given")
        data[name] = value
    return data


def _commands(data: Mapping[str, Any], reader: Reader) -> tuple[Command | None, Command | None]:
    given = [name for name in ("command", "serve", "bench") if data.get(name)]
    if given not in (["command"], ["serve", "bench"]):
        fix = "Write command: 'program --batch {batch}', or both serve and bench"
        reader.fault("command", f"takes `command`, or `serve` with `bench`, not {' and '.join(given) or 'none of them'}", fix=fix)
    commands = {name: _command(name, data[name], reader) for name in given}
    return commands.get("command") or commands.get("bench"), commands.get("serve")


def _command(name: str, value: Any, reader: Reader) -> Command | None:
    if isinstance(value, str):
        command = Command(raw=value, line=parse(value.strip(), shell=True))
    elif isinstance(value, Sequence) and all(isinstance(item, (str, int, float, list, tuple)) for item in value):
        nested = tuple(isinstance(item, (list, tuple)) for item in value)
        parts = [item if isinstance(item, (list, tuple)) else [item] for item in value]
        groups = tuple(tuple(parse(str(part)) for part in group) for group in parts)
        command = Command(raw=list(value), groups=groups, nested=nested)
    else:
        reader.fault(name, "must be a line for the shell or a list of arguments", value)
        return None
    for template in command.templates:
        for rule in template.faults:
            reader.fault(name, rule)
    return command


def _cwd(value: Any, reader: Reader) -> str:
    if value is not None and not isinstance(value, str):
        reader.fault("cwd", "must be a path, or {folder} for the folder of the trial", value)
    return IN_FOLDER if value == IN_FOLDER else str(Path(str(value or ".")).expanduser().absolute())


def _metrics(value: Any, reader: Reader) -> dict[str, Any]:
    """Name -> source; a lone source belongs to the metric of the goal, which the backend names `""` until it knows it."""
    if isinstance(value, str) or (isinstance(value, Mapping) and {"json", "regex", "wall"} & set(value)):
        return {"": value}
    found = reader.mapping("metrics", value)
    for name in found:
        if name != "*" and not re.fullmatch(r"[A-Za-z_]\w*", name) and name:
            reader.fault(f"metrics.{name}", "the name of a metric is made of letters, digits and underscores")
    return found


def _variable(name: str, value: Any, reader: Reader) -> Template:
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or isinstance(value, (list, Mapping)) or value is None:
        reader.fault(f"env.{name}", "a variable takes a text or number", value)
    template = parse(json.dumps(value) if isinstance(value, bool) else str(value))
    for rule in template.faults:
        reader.fault(f"env.{name}", rule)
    return template


def _files(value: Any, cwd: str, reader: Reader) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for name, content in reader.mapping("files", value).items():
        path = reader.path(f"files.{name}", name)
        if isinstance(content, str) and re.match("@(?!@)", content):
            content = _from_file(f"files.{name}", content[1:], cwd, reader)
        if not isinstance(content, (str, Mapping, list)):
            reader.fault(f"files.{name}", "must be text, or the sections of a JSON or YAML file", content)
        elif not isinstance(content, str) and not path.endswith(STRUCTURED):
            reader.fault(f"files.{name}", f"sections can be written as {', '.join(STRUCTURED)} only", path, "Rename it, or give its text")
        files[path] = content
    return files


def _from_file(field_name: str, name: str, cwd: str, reader: Reader) -> Any:
    path = Path(name).expanduser() if cwd == IN_FOLDER else Path(cwd, Path(name).expanduser())
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.safe_load(text) if path.suffix in STRUCTURED else re.sub("^@", "@@", text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reader.fault(field_name, f"the template cannot be read: {error}", name)
        return ""


def _health(value: Any, serve: Command | None, reader: Reader) -> Health:
    data = {"url" if value.startswith("http") else "log": value} if isinstance(value, str) else reader.mapping("health", value)
    reader.keys("health", data, ("url", "log"))
    if len(data) > 1 or (data and serve is None):
        reader.fault("health", "takes a url or a log pattern, and only beside serve", value)
    if serve is not None and not data and "port" not in serve.names:
        fix = "Write health: http://127.0.0.1:{port}/health, or a pattern of its log"
        reader.fault("health", "how is one to know that the server is up?", fix=fix)
    url = parse(str(data["url"])) if "url" in data else None
    for rule in url.faults if url else ():
        reader.fault("health.url", rule)
    return Health(url=url, log=reader.pattern("health.log", data.get("log")))


def _resources(value: Any, reader: Reader) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    data = reader.mapping("resources", value)
    reader.keys("resources", data, tuple(Resources.__dataclass_fields__))
    for name, amount in data.items():
        if isinstance(amount, str):
            text = amount.strip().removeprefix("{").removesuffix("}")
            try:
                parse_expression(text)
                found[name] = text
            except SpaceError as error:
                reader.faults.append(Fault(where=reader.where, field=f"resources.{name}", value=repr(amount), rule=error.faults[0].rule))
        elif name in Resources.__dataclass_fields__:
            least = -1 if name == "gpus" else 0
            found[name] = reader.number(f"resources.{name}", amount, above=least, whole=name != "memory_gb") or 0
    return found
