from __future__ import annotations

from pathlib import Path

import pytest

from autosched.sim.cluster import Cluster, NodeGroup
from autoscout.core.errors import ConfigError


def test_short_form() -> None:
    cluster = Cluster.parse("50x8@V100+20x4@T4*0.4")
    assert cluster.gpus == 480
    assert cluster.kinds == ("V100", "T4")
    table = cluster.table()
    assert len(table) == 70
    assert list(table["gpus"][[0, 69]]) == [8, 4]
    assert list(table["kind"][[0, 69]]) == [0, 1]
    assert list(table["speed"][[0, 69]]) == [1, 0.4]


@pytest.mark.parametrize("text", ["", "70", "x8", "70x", "70x8+", "axb"])
def test_what_does_not_read(text: str) -> None:
    with pytest.raises(ConfigError, match="NODESxGPUS"):
        Cluster.parse(text)


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Cluster(groups=(NodeGroup(nodes=0, gpus=8), NodeGroup(nodes=1, gpus=0, speed=0)))
    assert len(caught.value.faults) == 3


def test_node_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("vc,nodes,gpus_per_node\na,2,8\nb,1,4\n")
    cluster = Cluster.parse(str(path))
    assert cluster.vcs == ("a", "b")
    assert cluster.nodes_of("a").gpus == 16
    path.write_text("vc,nodes\na,2\n")
    with pytest.raises(ConfigError, match="gpus_per_node"):
        Cluster.read(path)


def test_single_nodes_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,0,\nn1,1,1,2,T4\nn2,1,1,2,T4\nn3,1,1,8,V100\n")
    assert [(group.nodes, group.gpus, group.kind) for group in Cluster.read(path).groups] == [(2, 2, "T4"), (1, 8, "V100")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vc,nodes,gpus_per_node\na,3\nb,x,1\n", "n.csv:2: .*\\n.*n.csv:3: "),
        ("vc,nodes,gpus_per_node\na,99999999999,8\n", "1 to 1,000,000 nodes"),
        ("vc,nodes,gpus_per_node\na,1,88888888\n", "1 to 65,536 GPUs"),
        ("sn,gpu\na\n", "n.csv:2: "),
    ],
)
def test_node_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "n.csv").write_text(text)
    with pytest.raises(ConfigError, match=words):
        Cluster.read(tmp_path / "n.csv")


@pytest.mark.parametrize("text", ["99999999999x8", "8x99999999999", f"{'9' * 5000}x8", "8x8*1.2.3"])
def test_clusters_that_nobody_has(text: str) -> None:
    with pytest.raises(ConfigError):
        Cluster.parse(text)
