"""How the processes of a launch on several machines find each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoscout.core.launch import Launch

HOSTFILE = "hostfile"
"""File of a launch on several machines: one `HOST slots=N` a line, as MPI and DeepSpeed read it."""


def rank_environment(rank: int, addresses: Sequence[str], port: int, per_node: int) -> dict[str, str]:
    """What the command on machine number `rank` is told: in words of its own, and in those that `torchrun` reads by itself."""
    variables = {
        "NNODES": len(addresses),
        "NODE_RANK": rank,
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": port,
        "NPROC_PER_NODE": per_node,
    }
    return {name: str(value) for key, value in variables.items() for name in (key, f"PET_{key}")}


def with_hostfile(launch: Launch, addresses: Sequence[str], per_node: int) -> Launch:
    """The launch with a hostfile among its files, unless it brings one."""
    files: Mapping[str, str] = {HOSTFILE: "".join(f"{address} slots={per_node}\n" for address in addresses)}
    return replace(launch, files={**files, **launch.files})
