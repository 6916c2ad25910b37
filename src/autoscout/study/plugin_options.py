"""Options of plug-ins: plain data from files and flags, into the dataclass that a plug-in declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscout.common.fields import faults_from, shown, suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.plugins import option_names, options_type


def build_options(kind: type, values: Mapping[str, Any], where: str) -> Any:
    """The options of a plug-in from plain data; None when it takes none.

    Raises:
        ConfigError: unknown names, wrong types and broken rules, all at once.
    """
    expected = options_type(kind)
    if expected is None:
        if values:
            raise ConfigError(Fault(where=where, value=", ".join(values), rule=f"{kind.__name__} takes no options", fix="Leave them out"))
        return None
    names = option_names(kind)
    faults = [
        Fault(where=where, field=name, value=shown(value), rule="unknown option", fix=suggestion(name, names))
        for name, value in values.items()
        if name not in names
    ]
    built = None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(expected)
        built = adapter.validate_python({name: value for name, value in values.items() if name in names})
    except ValidationError as error:
        faults += faults_from(error, where)
    except ConfigError as error:
        faults += [dataclasses.replace(fault, where=where) for fault in error.faults]
    if faults:
        raise ConfigError(faults)
    return built
