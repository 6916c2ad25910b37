from __future__ import annotations

from collections.abc import Iterator

import pytest

from _slurm import SlurmCluster, missing


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm of four nodes with four GPUs each, two kinds of them, for all tests of this folder; no database, which takes long."""
    reason = missing(accounting=False)
    if reason:
        pytest.skip(reason)
    partitions = [
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE",
        "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=off",
    ]
    with SlurmCluster(
        tmp_path_factory.mktemp("slurm"),
        accounting=False,
        gpu_types=("a100", "a100", "h100", "h100"),
        partitions=partitions,
        options={"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE", "SlurmdTimeout": 8, "InactiveLimit": 0},
    ) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The same, as the programs of this process find it."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm_cluster.environment[name])
    return slurm_cluster
