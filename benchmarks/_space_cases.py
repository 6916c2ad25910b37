"""The spaces of `benchmarks.space`, once for AutoScout and once as plain Python predicates for its rivals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autoscout.space import Flag, Grid, Knob, Space, read_space

RECIPE = Path(__file__).parents[1] / "recipes" / "megatron_space.yaml"
FACTS = {"gpus": 512, "global_batch": 4096, "layers": 96}
Predicate = tuple[Callable[..., bool], tuple[str, ...]]


@dataclass(frozen=True)
class Case:
    """One space.

    Attributes:
        name: For the table.
        make: Opens it with AutoScout.
        rules: Constraints as functions with the names they read; None stands for an inactive knob.
        activity: For conditional knobs: when are they active?
        texts: The same rules as python-constraint likes them best, where it can take them so.
    """

    name: str
    make: Callable[[], Space]
    rules: tuple[Predicate, ...]
    activity: Mapping[str, Predicate]
    texts: tuple[str, ...] = ()

    def valid(self, values: Mapping[str, Any]) -> bool:
        """Whether a rival's sample keeps the constraints."""
        return all(rule(*(values.get(name) for name in names)) for rule, names in self.rules)


def megatron() -> Case:
    layers, heads, batch = 40, 40, 512
    rules: tuple[Predicate, ...] = (
        (lambda tp, pp, cp, dp: tp * pp * cp * dp == 64, ("tp", "pp", "cp", "dp")),
        (lambda pp, vpp: layers % (pp * (vpp or 1)) == 0, ("pp", "vpp")),
        (lambda tp, cp: heads % (tp * cp) == 0, ("tp", "cp")),
        (lambda micro_batch, dp: batch % (micro_batch * dp) == 0, ("micro_batch", "dp")),
        (lambda recompute_layers, pp: recompute_layers is None or recompute_layers <= layers // pp, ("recompute_layers", "pp")),
        (
            lambda vpp, micro_batch, dp, pp: vpp in (None, 1) or batch // (micro_batch * dp) >= pp,
            ("vpp", "micro_batch", "dp", "pp"),
        ),
    )
    activity: dict[str, Predicate] = {
        "sp": (lambda tp: tp > 1, ("tp",)),
        "vpp": (lambda pp: pp > 1, ("pp",)),
        "recompute_layers": (lambda recompute: recompute == "full", ("recompute",)),
        "zero1": (lambda dp: dp > 1, ("dp",)),
        "overlap_reduce": (lambda dp: dp > 1, ("dp",)),
        "bucket_mb": (bool, ("overlap_reduce",)),
    }
    return Case("megatron, 12 knobs", lambda: read_space(RECIPE), rules, activity)


_PRODUCT_RULES: tuple[Predicate, ...] = (
    (lambda tp, pp, cp, dp: tp * pp * cp * dp == 512, ("tp", "pp", "cp", "dp")),
    (lambda micro_batch, accumulate, dp: micro_batch * accumulate * dp == 4096, ("micro_batch", "accumulate", "dp")),
    (lambda pp, vpp: 96 % (pp * vpp) == 0, ("pp", "vpp")),
    (lambda dp, ep: dp % ep == 0, ("dp", "ep")),
    (lambda tp, ep: tp * ep <= 64, ("tp", "ep")),
)
_PRODUCT_TEXTS = (
    "tp * pp * cp * dp == gpus",
    "micro_batch * accumulate * dp == global_batch",
    "layers % (pp * vpp) == 0",
    "dp % ep == 0",
    "tp * ep <= 64",
)


def _product_knobs() -> list[Knob]:
    return [
        Grid("tp", values=[1, 2, 4, 8], sparse=True),
        Grid("pp", 1, 16, sparse=True),
        Grid("cp", values=[1, 2, 4, 8], sparse=True),
        Grid("ep", values=[1, 2, 4, 8, 16, 32, 64], sparse=True),
        Grid("dp", 1, 512, sparse=True),
        Grid("micro_batch", 1, 64),
        Grid("accumulate", 1, 1024),
        Grid("vpp", 1, 8, sparse=True),
    ]


def _plain(texts: tuple[str, ...]) -> tuple[str, ...]:
    for name, value in FACTS.items():
        texts = tuple(re.sub(rf"\b{name}\b", str(value), text) for text in texts)
    return texts


def product() -> Case:
    make = partial(Space, _product_knobs(), _PRODUCT_TEXTS, FACTS)
    return Case("products, 8 knobs", make, _PRODUCT_RULES, {}, _plain(_PRODUCT_TEXTS))


def dense() -> Case:
    more: list[Knob] = [
        Flag("overlap"),
        Grid("bucket_mb", 1, 512, when="overlap"),
        Grid("recompute_layers", 0, 96),
        Grid("offload_percent", 0, 100),
    ]
    texts = (*_PRODUCT_TEXTS, "recompute_layers * pp <= layers")
    rules = (*_PRODUCT_RULES, (lambda recompute_layers, pp: recompute_layers * pp <= 96, ("recompute_layers", "pp")))
    make = partial(Space, [*_product_knobs(), *more], texts, FACTS)
    return Case("products and dense, 12 knobs", make, rules, {"bucket_mb": (bool, ("overlap",))}, _plain(texts))


CASES = {"megatron": megatron, "product": product, "dense": dense}
