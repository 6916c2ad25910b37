"""Cluster: nodes with GPUs, grouped into virtual clusters that never share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autosched.kernel.records import NODE, Records
from autoscout.common.document import read_rows
from autoscout.common.files import MOST_SLOTS
from autoscout.core.errors import ConfigError, Fault

MOST_NODES = 1_000_000  # of a cluster: each is a record in memory

EVERYONE = ""
"""The virtual cluster of jobs and nodes that name none."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Some equal nodes."""

    nodes: int
    gpus: int
    vc: str = EVERYONE
    kind: str = ""  # GPU type
    speed: float = 1.0  # work per second, relative to the GPUs that durations were measured on

    def faults(self, where: str) -> list[Fault]:
        rules = [
            ("nodes", self.nodes, 1 <= self.nodes <= MOST_NODES, f"1 to {MOST_NODES:,} nodes"),
            ("gpus", self.gpus, 1 <= self.gpus <= MOST_SLOTS, f"1 to {MOST_SLOTS:,} GPUs per node"),
            ("speed", self.speed, 0 < self.speed < math.inf, "a speed above zero"),
        ]
        return [Fault(where=where, field=name, value=str(value), rule=f"needs {rule}") for name, value, ok, rule in rules if not ok]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Groups of nodes. With more than one virtual cluster each job runs in its own; with one, everybody shares it."""

    groups: tuple[NodeGroup, ...]

    def __post_init__(self) -> None:
        faults = [fault for number, group in enumerate(self.groups) for fault in group.faults(f"cluster group {number}")]
        if sum(group.nodes for group in self.groups) > MOST_NODES:
            faults.append(Fault(where="cluster", rule=f"a cluster has at most {MOST_NODES:,} nodes"))
        if not self.groups:
            faults = [Fault(where="cluster", rule="needs at least one group of nodes")]
        if faults:
            raise ConfigError(faults)

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """Read `70x8` (nodes x GPUs), several joined by `+`, each with an optional `@type` and `*speed`: `50x8@V100+20x4@T4*0.4`.

        A text that names a file is read with `Cluster.read`.
        """
        if Path(text).suffix in (".csv", ".gz"):
            return cls.read(Path(text))
        groups = []
        for part in text.split("+"):
            match = re.fullmatch(r"\s*(\d{1,18})\s*x\s*(\d{1,18})\s*(?:@([\w.-]+))?\s*(?:\*(\d+\.?\d*|\.\d+))?\s*", part)
            if not match:
                raise ConfigError(
                    Fault(
                        where="cluster",
                        value=repr(text),
                        rule="must read NODESxGPUS, such as 70x8, or name a node file",
                        fix="50x8@V100+20x4@T4*0.4",
                    )
                )
            groups.append(NodeGroup(nodes=int(match[1]), gpus=int(match[2]), kind=match[3] or "", speed=float(match[4] or 1.0)))
        return cls(groups=tuple(groups))

    @classmethod
    def read(cls, path: Path) -> Cluster:
        """Read a node file: columns `vc,nodes,gpus_per_node` (+ `kind`, `speed`), or one node per row as Alibaba publishes them."""
        rows = read_rows(path)
        single = bool(rows) and "sn" in rows[0]
        groups: list[NodeGroup] = []
        faults: list[Fault] = []
        for line, row in enumerate(rows, start=2):
            try:
                groups.append(_single(row) if single else _group(row))
            except (KeyError, ValueError, TypeError) as error:
                reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                rule = f"cannot be read as a line of a node file: {reason}"
                faults.append(Fault(where=f"{path}:{line}", rule=rule, fix="Columns: vc,nodes,gpus_per_node"))
        if faults:
            raise ConfigError(faults)
        return cls.of_nodes([(group.gpus, group.kind) for group in groups if group.gpus > 0]) if single else cls(groups=tuple(groups))

    @classmethod
    def of_vcs(cls, nodes: Mapping[str, int], gpus: int = 8) -> Cluster:
        """Virtual clusters of equal nodes."""
        return cls(groups=tuple(NodeGroup(nodes=count, gpus=gpus, vc=vc) for vc, count in nodes.items()))

    @classmethod
    def of_nodes(cls, nodes: list[tuple[int, str]]) -> Cluster:
        """One virtual cluster from single nodes (GPUs, type), in their order."""
        groups: list[NodeGroup] = []
        for gpus, kind in nodes:
            if groups and groups[-1].gpus == gpus and groups[-1].kind == kind:
                groups[-1] = NodeGroup(nodes=groups[-1].nodes + 1, gpus=gpus, kind=kind)
            else:
                groups.append(NodeGroup(nodes=1, gpus=gpus, kind=kind))
        return cls(groups=tuple(groups))

    @property
    def vcs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group.vc for group in self.groups))

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group.kind for group in self.groups))

    @property
    def gpus(self) -> int:
        return sum(group.nodes * group.gpus for group in self.groups)

    def nodes_of(self, vc: str) -> Cluster:
        """The nodes of one virtual cluster."""
        return Cluster(groups=tuple(group for group in self.groups if group.vc == vc))

    def table(self) -> Records:
        """The nodes as records for kernels, all GPUs free."""
        nodes = [group for group in self.groups for _ in range(group.nodes)]
        table = np.zeros(len(nodes), NODE)
        table["gpus"] = table["free"] = [group.gpus for group in nodes]
        table["kind"] = [self.kinds.index(group.kind) for group in nodes]
        table["speed"] = [group.speed for group in nodes]
        return table


def _single(row: Mapping[str, str | None]) -> NodeGroup:
    """One node per line, as Alibaba publishes them."""
    return NodeGroup(nodes=1, gpus=int(row["gpu"] or ""), kind=row.get("model") or "")


def _group(row: Mapping[str, str | None]) -> NodeGroup:
    return NodeGroup(
        nodes=int(row["nodes"] or ""),
        gpus=int(row["gpus_per_node"] or ""),
        vc=row.get("vc") or EVERYONE,
        kind=row.get("kind") or "",
        speed=float(row.get("speed") or 1.0),
    )
