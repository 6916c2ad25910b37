"""GPUs of several kinds in one job: how much of the work each kind gets, and the layers of each stage that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from autoscout.catalog.gpus import Cluster, cluster
from autoscout.catalog.placement import place
from autoscout.space import Constraint, Grid
from autoscout.space.parser import name_text
from autoscout.training.hardware import KINDS

SHARES = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
FLAG = "--pipeline-model-parallel-layout"
EVEN = "every stage holds the same number of layers"
"""Why stages are equal, where nothing says that they are not."""


def kinds_of(hardware: Mapping[str, Any]) -> Cluster | None:
    """The kinds of GPU in the order of ranks; None where there is one."""
    text = hardware.get(KINDS)
    return cluster(str(text), hardware.get("hardware_file")) if text else None


def share_name(kind: str) -> str:
    """The knob of a kind, as the training simulator calls it."""
    return f"{kind}_share"


def share_knobs(kinds: Cluster) -> list[Grid]:
    """A knob for every kind but the first; by itself work is shared by the speed of large matrix products."""
    help = f"work of a GPU of this kind, of one of {kinds.knobs[0]}'s, by the layers that its stages hold"
    return [
        Grid(share_name(kind), values=SHARES, default=min(SHARES, key=lambda share: abs(share - speed)), when="pp > 1", help=help)
        for kind, speed in zip(kinds.knobs[1:], kinds.speeds[1:], strict=True)
    ]


def share_rules(kinds: Cluster, rules: Sequence[Constraint]) -> list[Constraint]:
    """The rules of Megatron with those of several kinds: where work is shared unequally, each stage has GPUs of one kind."""
    names = [name_text(share_name(kind)) for kind in kinds.knobs[1:]]
    even = " and ".join(f"{name} == 1" for name in names)
    borders = list(accumulate(count for _, count in kinds.groups))[:-1]
    whole = " and ".join(f"{border} % (tp * cp * dp) == 0" for border in borders)
    one_kind = " and ".join(f"{border} % (tp * cp) == 0" for border in borders)
    plain = "virtual_stages == 1 and not account_for_embedding_in_pipeline_split and not account_for_loss_in_pipeline_split"
    others = [rule for rule in rules if rule.why != EVEN]
    return [
        *others,
        *(Constraint(f"not ({even}) or ({rule.text})", why=rule.why) for rule in rules if rule.why == EVEN),
        Constraint(one_kind, why="tensor and context parallel processes have GPUs of one kind"),
        Constraint(f"pp == 1 or ({even}) or ({whole})", why="a stage has GPUs of one kind, since its replicas do the same work"),
        Constraint(f"pp == 1 or ({even}) or ({plain})", why="stages of unequal layers are listed, not computed"),
    ]


def stage_layers(config: Mapping[str, Any], kinds: Cluster | None, layers: int) -> list[int]:
    """Layers of each stage, where the kinds get different shares of the work; none where Megatron divides them itself."""
    if kinds is None or int(config.get("pp", 1)) == 1:
        return []
    shares = [1.0, *(float(config.get(share_name(kind), 1.0)) for kind in kinds.knobs[1:])]
    if set(shares) == {1.0}:
        return []
    layout = {name: float(config.get(name, 1)) for name in ("tp", "pp", "dp", "cp", "virtual_stages")} | {"stages_inner": 0.0}
    counts = np.array([float(count) for _, count in kinds.groups])
    return [int(held) for held in place(layout, counts, np.array(shares), float(layers), 1.0).layers]


def layout_words(layers: Sequence[int]) -> list[str]:
    """The words that list the layers of each stage: `Et*12|t*12|t*4L`, embedding first and loss last."""
    if not layers:
        return []
    stages = [f"t*{count}" if count > 1 else "t" for count in layers]
    return [FLAG, f"E{'|'.join(stages)}L"]


__all__ = ["EVEN", "FLAG", "kinds_of", "layout_words", "share_knobs", "share_name", "share_rules", "stage_layers"]
