"""The workload of the `command` backend: its fields, read from plain data and written back, all faults at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, ValidationInfo, model_validator

from autoscout.backends.command.ports import meeting_ports
from autoscout.backends.command.sources import MetricSource, OutputCheck, Pattern, inner_path
from autoscout.commands.check import fault
from autoscout.commands.template import RUNTIME, Piece, Scope, Template, parse
from autoscout.common.document import load, load_json, read_text
from autoscout.common.fields import Block, Refused, as_list, read_fields, refuse_if
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.space.parser import parse as parse_expression

ALIASES = {"metric": "metrics", "check": "checks", "serve_cmd": "serve", "bench_cmd": "bench", "serve-cmd": "serve", "bench-cmd": "bench"}
IN_FOLDER = "{folder}"
STRUCTURED = (".json", ".yaml", ".yml")
WHERE = "workload"
_NAME = re.compile(r"[A-Za-z_]\w*")


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
        arguments: list[tuple[Piece, ...]] = []
        for group, nested in zip(self.groups, self.nested, strict=True):
            needed = {slot.name for template in group for slot in template.slots if not slot.is_optional}
            if not (nested and needed - set(scope.values) - set(RUNTIME)):
                arguments.extend(word for template in group for word in template.words(scope))
        return arguments


def _command(value: Any) -> Command:
    if isinstance(value, Command):
        return value
    if isinstance(value, str):
        return Command(raw=value, line=parse(value.strip(), shell=True))
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float, list, tuple)) for item in value):
        nested = tuple(isinstance(item, (list, tuple)) for item in value)
        parts = [item if isinstance(item, (list, tuple)) else [item] for item in value]
        return Command(raw=list(value), groups=tuple(tuple(parse(str(part)) for part in group) for group in parts), nested=nested)
    raise Refused("must be a line for the shell or a list of arguments")


def _template(value: Any) -> Template:
    if isinstance(value, Template):
        return value
    if value is None or isinstance(value, (list, Mapping)):
        raise Refused("takes a text or number")
    return parse(str(value).lower() if isinstance(value, bool) else str(value))


def _folder(value: str) -> str:
    return value if value == IN_FOLDER else str(Path(value).expanduser().absolute())


def _named_sources(value: Any) -> Any:
    """Name -> source; a lone source belongs to the metric of the goal, which is named `""` until the goal is known."""
    return {"": value} if isinstance(value, str) or (isinstance(value, Mapping) and {"json", "regex", "wall"} & set(value)) else value


def _content(value: Any, info: ValidationInfo) -> Any:
    """What a file holds: text, sections, or `@` and the template on disk to take it from."""
    if not isinstance(value, (str, Mapping, list)):
        raise Refused("must be text, or the sections of a JSON or YAML file")
    if not isinstance(value, str) or not re.match("@(?!@)", value):
        return value
    path = Path(value[1:]).expanduser()
    path = path if info.data.get("cwd", IN_FOLDER) == IN_FOLDER else Path(info.data["cwd"], path)
    try:
        if path.suffix == ".json":
            return load_json(path)
        return load(path).value if path.suffix in STRUCTURED else re.sub("^@", "@@", read_text(path))
    except ConfigError as error:
        raise Refused(f"the template cannot be read: {error.faults[0]}") from error


def _amount(value: Any, *, least: float, whole: bool) -> float | str:
    """A number, or an expression over knobs and facts, in braces or not."""
    if isinstance(value, str):
        text = value.strip().removeprefix("{").removesuffix("}")
        try:
            parse_expression(text)
        except SpaceError as error:
            raise Refused(error.faults[0].rule) from error
        return text
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value < least:
        raise Refused(f"must be a {'whole ' if whole else ''}number of at least {least:g}, or an expression")
    return value if whole else float(value)


Text = Annotated[Template, PlainValidator(_template), PlainSerializer(lambda template: template.text)]
Line = Annotated[Command, PlainValidator(_command), PlainSerializer(lambda command: command.raw)]
Patterns = Annotated[list[Pattern], BeforeValidator(as_list)]


class CommandHealth(Block):
    """How to know that a server is up: a URL that answers, a pattern in its log, or its port."""

    url: Text | None = None
    log: Pattern | None = None

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        return {"url" if value.startswith("http") else "log": value} if isinstance(value, str) else value


class CommandResources(Block):
    """What one run occupies."""

    cpus: Annotated[int | str, PlainValidator(partial(_amount, least=1, whole=True))] | None = None
    gpus: Annotated[int | str, PlainValidator(partial(_amount, least=0, whole=True))] | None = None
    memory_gb: Annotated[float | str, PlainValidator(partial(_amount, least=0, whole=False))] | None = None
    nodes: Annotated[int | str, PlainValidator(partial(_amount, least=1, whole=True))] | None = None

    @property
    def given(self) -> dict[str, float | str]:
        return {name: amount for name, amount in self if amount is not None}


class CommandWorkload(Block):
    """Everything the backend needs to know about a program."""

    command: Line | None = None
    serve: Line | None = None
    bench: Line | None = None  # of a server
    cwd: Annotated[str, AfterValidator(_folder)] = Field(default_factory=lambda: _folder("."))  # before files, which need it
    env: dict[str, Text] = Field({})
    files: dict[str, Annotated[Any, PlainValidator(_content)]] = Field({})  # text, or a tree with $holes
    metrics: Annotated[dict[str, MetricSource], BeforeValidator(_named_sources)] = Field({})
    checks: Annotated[list[OutputCheck], BeforeValidator(as_list)] = Field([])
    ready: Pattern | None = None
    health: CommandHealth = CommandHealth()
    oom_patterns: Patterns = Field([])
    invalid_patterns: Patterns = Field([])
    limit_s: float | None = Field(None, gt=0)
    start_limit_s: float = Field(600.0, gt=0)
    resources: CommandResources = CommandResources()
    repeats: int = Field(1, ge=1)
    warmups: int = Field(0, ge=0)
    find_program: bool = True
    space: Mapping[str, Any] | None = None

    @property
    def run(self) -> Command:
        """The command, or the benchmark of a server."""
        return self.command or self.bench or Command(raw="")

    @property
    def commands(self) -> dict[str, Command]:
        """The commands there are, by the name of their field."""
        by_field = {"serve": self.serve, "bench": self.bench, "command": self.command}
        return {name: command for name, command in by_field.items() if command is not None}

    def templates(self) -> Iterator[tuple[str, Template]]:
        """Every template with the field it is in."""
        for name, command in self.commands.items():
            yield from ((name, template) for template in command.templates)
        yield from ((f"env.{name}", template) for name, template in self.env.items())
        if self.health.url is not None:
            yield "health.url", self.health.url

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files of the trial folder that are read back."""
        named = [source.file for source in self.metrics.values()] + [check.file for check in self.checks]
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def has_driver(self) -> bool:
        """Whether the launch needs the driver: a server, several runs, a free port, or a fixed one that is leased."""
        uses_port = "port" in self.run.names or any("port" in template.names for template in self.env.values())
        line = self.run.raw if isinstance(self.run.raw, str) else " ".join(map(str, self.run.raw))
        has_fixed = bool(meeting_ports(line, {name: template.text for name, template in self.env.items()}))
        return self.serve is not None or self.repeats > 1 or self.warmups > 0 or uses_port or has_fixed

    def with_flags(self) -> CommandWorkload:
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
        return self.model_copy(update={"serve" if self.serve is not None else "command": longer})

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, those at their defaults left out; reading it gives this workload again."""
        return {**self.model_dump(mode="json", by_alias=True, exclude_defaults=True), "cwd": self.cwd}


def read_workload(raw: Mapping[str, Any]) -> CommandWorkload:
    """Read a workload.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    workload, faults = try_workload(raw)
    refuse_if(faults)
    return workload


def try_workload(raw: Mapping[str, Any]) -> tuple[CommandWorkload, list[Fault]]:
    """Read as much of a workload as possible; gives it with the faults of the rest."""
    data: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in raw.items():
        name = ALIASES.get(key, key)
        if name in data:
            faults.append(fault(str(key), f"is the same field as {name}; only one may be given"))
        data[name] = value
    workload, field_faults = read_fields(CommandWorkload, data, WHERE)
    workload = workload or CommandWorkload()
    faults += [*field_faults, *_rules(workload, [name for name in ("command", "serve", "bench") if data.get(name)])]
    named = _named_sources(data.get("metrics") or {})
    unread = {str(name): MetricSource(wall=True) for name in (named if isinstance(named, Mapping) else ()) if name not in workload.metrics}
    files = {_plain_path(name): content for name, content in workload.files.items()}
    return workload.model_copy(update={"metrics": {**unread, **workload.metrics}, "files": files}), faults


def _plain_path(name: str) -> str:
    return str(PurePosixPath(name.removeprefix("{folder}/")))


def _rules(workload: CommandWorkload, fields: list[str]) -> Iterator[Fault]:
    """What concerns several fields, or names and not values."""
    if fields not in (["command"], ["serve", "bench"]):
        rule = f"takes `command`, or `serve` with `bench`, not {' and '.join(fields) or 'none of them'}"
        yield fault("command", rule, fix="Write command: 'program --batch {batch}', or both serve and bench")
    for field, template in workload.templates():
        for rule in template.faults:
            yield fault(field, rule)
    for name in workload.env:
        if not (_NAME.fullmatch(name) and name.isascii()):  # a shell takes no others
            yield fault(f"env.{name}", "the name of a variable is made of letters, digits and underscores")
    for name, source in workload.metrics.items():
        if name not in ("", "*") and not _NAME.fullmatch(name):
            yield fault(f"metrics.{name}", "the name of a metric is made of letters, digits and underscores")
        for part, rule, fix in source.suits(name):
            yield fault(f"metrics.{name}{part}", rule, fix=fix)
    for name, content in workload.files.items():
        try:
            inner_path(name)
        except Refused as error:
            yield fault(f"files.{name}", str(error))
        if not isinstance(content, str) and not name.endswith(STRUCTURED):
            rule = f"sections can be written as {', '.join(STRUCTURED)} only"
            yield fault(f"files.{name}", rule, fix="Rename it, or give its text")
    health = [name for name, value in workload.health if value is not None]
    if len(health) > 1 or (health and "serve" not in fields):
        yield fault("health", "takes a url or a log pattern, and only next to serve")
    if workload.serve is not None and not health and "port" not in workload.serve.names:
        fix = "Write health: http://127.0.0.1:{port}/health, or a pattern of its log"
        yield fault("health", "how is one to know that the server is up?", fix=fix)
