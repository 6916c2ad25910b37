"""Rules that a whole configuration must keep, as data: where `when` matches, `need` must match too.

    name: zero-offload-needs-native-optimizer
    when: {zero_optimization.stage: [2, 3], zero_optimization.offload_optimizer.device: [cpu, nvme]}
    need: {optimizer.type: [adam, adamw]}

Both are mappings from dotted paths of the filled template (or of the knobs, when there is no template) to what must be there:
a value, a list of values, or one of `{present: true}`, `{not: value}`, `{min: number}`, `{max: number}`. Text is compared without
regard to case, as DeepSpeed does. A path that is not there matches only `{present: false}` and `{not: ...}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.errors import ConfigError, Fault

TESTS = ("present", "not", "min", "max")
_MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One named rule; `why` is for people."""

    name: str
    need: Mapping[str, Any]
    when: Mapping[str, Any] | None = None
    why: str = ""

    def __post_init__(self) -> None:
        faults = []
        for part, paths in (("when", self.when or {}), ("need", self.need)):
            for path, test in paths.items():
                if isinstance(test, Mapping) and (len(test) != 1 or next(iter(test)) not in TESTS):
                    rule = f"a test is a value, a list of values, or one of: {', '.join(TESTS)}"
                    faults.append(Fault(where=f"rule {self.name}", field=f"{part}.{path}", value=repr(test), rule=rule))
        if not self.need:
            faults.append(
                Fault(where=f"rule {self.name}", field="need", rule="a rule needs something", fix="Example: {optimizer.type: adam}")
            )
        if faults:
            raise ConfigError(faults)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it looks at."""
        return (*(self.when or {}), *self.need)

    def holds(self, tree: Mapping[str, Any]) -> bool:
        """Whether a configuration keeps the rule."""
        applies = all(_matches(_at(tree, path), test) for path, test in (self.when or {}).items())
        return not applies or all(_matches(_at(tree, path), test) for path, test in self.need.items())


def _at(tree: Any, path: str) -> Any:
    """The value at a dotted path; a name that contains dots itself is found too."""
    if isinstance(tree, Mapping):
        if path in tree:
            return tree[path]
        for cut in (position for position, letter in enumerate(path) if letter == "."):
            if path[:cut] in tree and (value := _at(tree[path[:cut]], path[cut + 1 :])) is not _MISSING:
                return value
    return _MISSING


def _matches(value: Any, test: Any) -> bool:
    if isinstance(test, Mapping):
        kind, argument = next(iter(test.items()))
        if kind == "present":
            return (value is not _MISSING and value is not None) == bool(argument)
        if kind == "not":
            return not _matches(value, argument)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return bool(value >= argument if kind == "min" else value <= argument)
    if isinstance(test, Sequence) and not isinstance(test, str):
        return any(_matches(value, item) for item in test)
    if isinstance(value, str) and isinstance(test, str):
        return value.lower() == test.lower()
    return isinstance(value, bool) == isinstance(test, bool) and bool(value == test)


_NATIVE = (
    "adagrad", "adam", "adamw", "lamb", "lion", "muadam", "muadamw", "muon", "musgd", "onebitadam", "onebitlamb", "zerooneadam",
)  # fmt: skip
_OFFLOAD = ("cpu", "nvme")
_CLIENT_OPTIMIZER_REFUSED = {"zero_force_ds_cpu_optimizer": {"not": False}}

DEEPSPEED = tuple(
    Rule(**rule)  # type: ignore[arg-type]
    for rule in (
        {
            "name": "zero-offload-optimizer-needs-native-optimizer",
            "when": {
                "zero_optimization.stage": (2, 3),
                "zero_optimization.offload_optimizer.device": _OFFLOAD,
                **_CLIENT_OPTIMIZER_REFUSED,
            },
            "need": {"optimizer.type": _NATIVE},
            "why": "ZeRO 2 and 3 offload only the optimizers that DeepSpeed brings",
        },
        {
            "name": "zero-offload-param-needs-native-optimizer",
            "when": {"zero_optimization.stage": 3, "zero_optimization.offload_param.device": _OFFLOAD, **_CLIENT_OPTIMIZER_REFUSED},
            "need": {"optimizer.type": _NATIVE},
            "why": "ZeRO 3 offloads parameters only together with an optimizer of DeepSpeed",
        },
        {
            "name": "zero-cpu-offload-needs-native-optimizer",
            "when": {"zero_optimization.stage": (2, 3), "zero_optimization.cpu_offload": True, **_CLIENT_OPTIMIZER_REFUSED},
            "need": {"optimizer.type": _NATIVE},
            "why": "the older name of optimizer offload, under the same rule",
        },
        {
            "name": "zero-offload-param-needs-stage-3",
            "when": {"zero_optimization.offload_param.device": _OFFLOAD},
            "need": {"zero_optimization.stage": 3},
            "why": "parameters are partitioned, and so can be offloaded, only in stage 3",
        },
        {
            "name": "zero-offload-nvme-needs-stage-3",
            "when": {"zero_optimization.offload_optimizer.device": "nvme"},
            "need": {"zero_optimization.stage": 3, "zero_optimization.offload_optimizer.nvme_path": {"present": True}},
            "why": "states go to NVMe only in stage 3, and need a path there",
        },
        {
            "name": "zero-offload-param-nvme-needs-path",
            "when": {"zero_optimization.offload_param.device": "nvme"},
            "need": {"zero_optimization.offload_param.nvme_path": {"present": True}},
            "why": "parameters on NVMe need a path",
        },
        {
            "name": "fp16-excludes-bf16",
            "when": {"fp16.enabled": True},
            "need": {"bf16.enabled": {"not": True}},
            "why": "DeepSpeed refuses both at once",
        },
    )
)
"""Rules of DeepSpeed's configuration; they look at DeepSpeed's own sections and so never apply to anything else."""

BUILT_IN = {rule.name: rule for rule in DEEPSPEED}
