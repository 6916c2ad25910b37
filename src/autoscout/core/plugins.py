"""Plug-ins: found by file name in the folder of their kind, by entry point elsewhere, imported only when asked for.

A plug-in is one module (or package) in the folder of its kind whose `__all__` names exactly one class. Its name is the
module's name with dashes for underscores. Names that begin with an underscore are helpers, not plug-ins. Other packages
announce theirs in the entry-point group that is named like that folder (`autoscout.backends`), pointing at the class.

A package that has a kind of its own announces its folder in the group `autoscout.kinds`: `scheduler = "autosched.schedulers"`.

A plug-in class that needs packages beyond the core lists their import names in `requires`; the extra that installs them is
named like the plug-in unless `extra` says otherwise. A backend needs them for its launches only. One that needs programs of the
system lists them in `programs`. One that users can set up takes a dataclass as the argument `options` of its constructor, with a
default for every field: its fields are what a campaign may set.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import pkgutil
import shutil
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from autoscout.core.errors import Fault, PluginError
from autoscout.core.protocols import Backend, Executor, Searcher, Simulator, Store
from autoscout.core.tracker import Tracker

FOLDERS = {
    "backend": "autoscout.backends",
    "searcher": "autoscout.search",
    "simulator": "autoscout.simulators",
    "executor": "autoscout.execute",
    "store": "autoscout.store",
    "tracker": "autoscout.trackers",
}
"""Kind of plug-in of this package -> the package that holds those of this repository, and the name of the entry-point group."""

BASES: dict[str, type] = {
    "backend": Backend,
    "searcher": Searcher,
    "simulator": Simulator,
    "executor": Executor,
    "store": Store,
    "tracker": Tracker,
}
"""Kind of plug-in of this package -> the class that all of them derive from."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Whether a plug-in can be used here, for `autoscout doctor`."""

    kind: str
    name: str
    usable: bool
    summary: str  # first line of its docstring
    why: str = ""  # what is missing, and the command that installs it


@cache
def kinds() -> dict[str, str]:
    """All kinds of plug-ins, those of other packages too -> their folder and entry-point group."""
    return FOLDERS | {point.name: point.value for point in sorted(entry_points(group="autoscout.kinds"))}


def available(kind: str) -> tuple[str, ...]:
    """Names of all plug-ins of a kind, sorted, without importing any of them."""
    _check_kind(kind)
    return tuple(sorted({*_modules(kind), *_entry_points(kind)}))


def home(kind: str, name: str) -> str:
    """The package that brings a plug-in, such as `autoscout`, without importing it; empty for one that nobody brings."""
    _check_kind(kind)
    path = _modules(kind).get(name) or getattr(_entry_points(kind).get(name), "value", "")
    return str(path).partition(".")[0].partition(":")[0]


def get(kind: str, name: str) -> Any:
    """The class of a plug-in.

    A backend is there without the packages that its launches need, see `check_packages`.

    Raises:
        PluginError: unknown kind or name, the same name in two places, not derived from the base class of its kind, or packages that are
            not installed.
    """
    plugin = _load(kind, name)
    absent = [program for program in programs(kind, name) if shutil.which(program) is None]
    if absent:
        rule = f"needs programs that are not on PATH: {', '.join(absent)}"
        raise PluginError(Fault(where=f"{kind} {name}", rule=rule, fix="Install them, or run where they are, such as a login node"))
    if kind != "backend":
        check_packages(kind, name, requirements(kind, name))
    return plugin


def check_packages(kind: str, name: str, packages: Iterable[str]) -> None:
    """Refuse a plug-in without the packages that it needs.

    Raises:
        PluginError: some are not installed; with the command that installs them.
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        rule = f"needs packages that are not installed: {', '.join(missing)}"
        fix = f"pip install 'autoscout[{getattr(_load(kind, name), 'extra', name)}]'"
        raise PluginError(Fault(where=f"{kind} {name}", rule=rule, fix=fix))


def requirements(kind: str, name: str) -> tuple[str, ...]:
    """Import names of the packages that a plug-in needs beyond AutoScout's own, installed or not.

    Raises:
        PluginError: as `get`, but not for packages that are not installed.
    """
    return tuple(getattr(_load(kind, name), "requires", ()))


def programs(kind: str, name: str) -> tuple[str, ...]:
    """Names of the programs of the system that a plug-in needs, installed or not.

    Raises:
        PluginError: as `requirements`.
    """
    return tuple(getattr(_load(kind, name), "programs", ()))


def health(kind: str, name: str) -> Health:
    """Load a plug-in and say how it went; never raises."""
    try:
        plugin = get(kind, name)
        check_packages(kind, name, requirements(kind, name))
    except PluginError as error:
        return Health(kind=kind, name=name, usable=False, summary="", why=str(error))
    summary = next(iter((plugin.__doc__ or "").strip().splitlines()), "")
    return Health(kind=kind, name=name, usable=True, summary=summary)


def options_type(kind: type) -> type | None:
    """The dataclass that the constructor of a plug-in takes as `options`; None when it has none."""
    hint = typing.get_type_hints(kind.__init__).get("options")  # type: ignore[misc]
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    return next((member for member in members if dataclasses.is_dataclass(member) and isinstance(member, type)), None)


def option_names(kind: type) -> tuple[str, ...]:
    """Names of the options that a plug-in declares."""
    options = options_type(kind)
    return () if options is None else tuple(field.name for field in dataclasses.fields(options))


def check_base(kind: str, plugin: Any, where: str) -> None:
    """Refuse a plug-in that does not derive from the base class of its kind.

    Raises:
        PluginError: it does not.
    """
    base = BASES.get(kind)
    if base is not None and not (isinstance(plugin, type) and issubclass(plugin, base)):
        name = getattr(plugin, "__name__", type(plugin).__name__)
        rule = f"must derive from {base.__module__}.{base.__name__}"
        raise PluginError(Fault(where=where, value=name, rule=rule, fix=f"Write `class {name}({base.__name__})`"))


def _check_kind(kind: str) -> None:
    if kind not in kinds():
        raise PluginError(Fault(where="plug-in kind", value=repr(kind), rule=f"must be one of: {', '.join(kinds())}"))


@cache
def _modules(kind: str) -> dict[str, str]:
    folder = kinds()[kind]
    if importlib.util.find_spec(folder.rsplit(".", 1)[0]) is None or importlib.util.find_spec(folder) is None:
        return {}
    paths = importlib.import_module(folder).__path__
    return {
        module.name.replace("_", "-"): f"{folder}.{module.name}"
        for module in pkgutil.iter_modules(paths)
        if not module.name.startswith("_")
    }


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=kinds()[kind]):
        if point.name in points and points[point.name].value != point.value:
            raise PluginError(
                Fault(
                    where=f"{kind} {point.name}",
                    rule="a plug-in name may be taken once, but two installed packages bring it",
                    value=f"{points[point.name].value} and {point.value}",
                    fix="Uninstall one of them",
                )
            )
        points[point.name] = point
    return points


def _load(kind: str, name: str) -> Any:
    _check_kind(kind)
    inside, outside = _modules(kind), _entry_points(kind)
    if name in inside and name in outside:
        raise PluginError(
            Fault(
                where=f"{kind} {name}",
                rule="a plug-in name may be taken once, but AutoScout and an installed package both bring it",
                value=outside[name].value,
                fix="Uninstall the package or ask its authors to rename the entry point",
            )
        )
    if name not in inside and name not in outside:
        raise PluginError(
            Fault(
                where=kind,
                value=repr(name),
                rule=f"unknown {kind}; there are: {', '.join(available(kind)) or 'none'}",
                fix=f"{_alike(kind, name)}`autoscout doctor` lists all plug-ins",
            )
        )
    plugin = _load_inside(kind, name) if name in inside else _load_outside(kind, name, outside[name])
    check_base(kind, plugin, f"{kind} {name}")
    return plugin


def _alike(kind: str, name: str) -> str:
    """Whether another name was meant, as the beginning of a sentence; empty where none is similar."""
    alike = difflib.get_close_matches(name, available(kind), n=1)
    return f"Did you mean {alike[0]!r}? " if alike else ""


def _load_inside(kind: str, name: str) -> Any:
    path = _modules(kind)[name]
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise PluginError(
            Fault(
                where=f"{kind} {name}",
                rule=f"could not be imported: {error}",
                fix=f"pip install 'autoscout[{name}]'",
            )
        ) from error
    exported = [getattr(module, item) for item in getattr(module, "__all__", ())]
    classes = [item for item in exported if isinstance(item, type)]
    if len(classes) != 1:
        raise PluginError(Fault(where=path, rule="a plug-in module must export exactly one class in __all__", value=str(len(classes))))
    return classes[0]


def _load_outside(kind: str, name: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise PluginError(
            Fault(where=f"{kind} {name}", rule=f"the entry point {point.value} could not be loaded: {error}", fix="Reinstall its package")
        ) from error
