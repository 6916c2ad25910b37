"""Several schedulers as one: which of them decides is a knob, next to the settings of each."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import Scheduler
from autoscout.common.text import suggestion
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Space

POLICY = "policy"
"""Name of the knob that says which scheduler decides."""
JOIN = "+"
"""Between the names of schedulers, where a scheduler is named."""
_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*")


@dataclass(frozen=True)
class Policies:
    """Schedulers of which one is in charge, as a kind of scheduler; used like the class of one.

    Those that go by durations believe estimates: `estimate_s` of the trace, which whoever simulates must fill.

    Attributes:
        names: Of the plug-ins; the first is in force until another one is chosen.
    """

    names: tuple[str, ...]

    @classmethod
    def of_names(cls, names: Iterable[str], where: str = "policies") -> Policies:
        """Checked names, each once.

        Raises:
            ConfigError: all that do not exist or cannot be chosen among others, at once.
        """
        chosen, there = tuple(dict.fromkeys(names)), plugins.available("scheduler")
        faults = []
        for name in chosen:
            if name not in there:
                rule, fix = f"must be one of {', '.join(there)}", suggestion(name, there)
                faults.append(Fault(where=where, field=POLICY, value=repr(name), rule=rule, fix=fix))
            elif reason := getattr(plugins.get("scheduler", name), "alone", ""):
                faults.append(Fault(where=where, field=POLICY, value=name, rule=reason, fix=f"Leave {name} out, or tune it by itself"))
        if len(chosen) < 2 and not faults:
            rule = "a choice needs two schedulers at least"
            faults.append(Fault(where=where, field=POLICY, value=JOIN.join(chosen), rule=rule, fix="Example: tiresias+srtf+lucid"))
        if faults:
            raise ConfigError(faults)
        return cls(chosen)

    @property
    def name(self) -> str:
        return JOIN.join(self.names)

    @property
    def believes(self) -> bool:
        """Whether any of them goes by durations, which it must be told estimates of."""
        return any(hasattr(plugins.get("scheduler", name), "believing") for name in self.names)

    @property
    def needs(self) -> Mapping[str, str]:
        """Knob -> column of the trace without which it does nothing."""
        columns: dict[str, str] = {}
        for name in self.names:
            needs: Mapping[str, str] = getattr(plugins.get("scheduler", name), "needs", {})
            columns |= {f"{name}_{knob}": column for knob, column in needs.items()}
        return columns

    def space(self, cluster: Cluster) -> Space:
        """The policy, and under each the knobs of its own with its name before theirs."""
        knobs: list[Any] = [Choice(POLICY, list(self.names), default=self.names[0], sparse=True, help="who decides which job runs")]
        rules = []
        for name in self.names:
            inner: Space = plugins.get("scheduler", name).space(cluster)
            for each in inner.declared:
                knob = copy.copy(inner.knobs[each])
                knob.name = f"{name}_{each}"
                condition = f"{POLICY} == '{name}'"
                knob.when = f"{condition} and ({_prefixed(str(knob.when), name, inner)})" if knob.when else condition
                knobs.append(knob)
            rules += [_prefixed(rule.text, name, inner) for rule in inner.constraints]
        return Space(knobs, rules)

    def of(self, config: Config) -> Scheduler:
        """The scheduler that a configuration puts in charge, with its settings."""
        name = str(config.get(POLICY, self.names[0]))
        kind = plugins.get("scheduler", name)
        mine = Config({knob.removeprefix(f"{name}_"): value for knob, value in config.items() if knob.startswith(f"{name}_")})
        built: Any = kind.of(mine)
        scheduler: Scheduler = replace(built, **getattr(kind, "believing", {}))
        return scheduler


def scheduler_kind(name: str) -> Any:
    """What makes schedulers: a plug-in by its name, or several by theirs, joined by +.

    Raises:
        ConfigError: of several, one does not exist.
        PluginError: the plug-in cannot be used here.
    """
    return Policies.of_names(name.split(JOIN), "scheduler") if JOIN in name else plugins.get("scheduler", name)


def policies_of(space: Space) -> list[Config]:
    """Where there is a choice of policies: each with its published settings, so that a search has seen them all."""
    if POLICY not in space.knobs:
        return []
    return [space.project({}, Config({POLICY: name})) for name in space.knobs[POLICY].values]


def _prefixed(text: str, name: str, space: Space) -> str:
    """A condition on the knobs of one scheduler, with the names that they have next to others."""
    return _WORDS.sub(lambda match: f"{name}_{match[0]}" if match[0] in space.knobs else match[0], text)


__all__ = ["JOIN", "POLICY", "Policies", "policies_of", "scheduler_kind"]
