from __future__ import annotations

from pathlib import Path

import pytest

from autoscout.catalog.gpus import cluster, gpu
from autoscout.core.errors import ConfigError

USUAL = ("A100-40", "A100-80", "A40", "H100", "H200", "B200", "L40S", "RTX 4090", "MI300X", "a100_sxm", "DGX-GB200")
OTHERS = ("MI250", "MI350X", "H800", "A800", "A30", "L20", "RTX A6000", "RTX-6000-Ada")


def test_gpus_that_people_run_are_there() -> None:
    for name in (*USUAL, *OTHERS):
        assert gpu(name).bf16_tflops > 0


def test_narrow_types_fall_back_to_what_the_gpu_has() -> None:
    assert gpu("A100-80").flops("fp8") == gpu("A100-80").flops("bf16")
    assert gpu("H100").flops("fp8") == 1979e12
    assert gpu("H100").flops("nvfp4") == gpu("H100").flops("fp8")


def test_a_mixed_cluster_is_read() -> None:
    mixed = cluster("8xA100-80+4xA40")
    assert mixed.is_mixed
    assert mixed.gpus == 12
    assert not cluster("16x H100").is_mixed


def test_all_faults_of_a_cluster_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        cluster("8xNoSuch+A100")
    assert len(caught.value.faults) == 2
    assert "H100" in str(caught.value)


def test_a_users_file_adds_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gpus:\n  Lab-X: {bf16_tflops: 100, memory_gb: 10, memory_gbps: 500, aliases: [labx2]}\n")
    assert gpu("lab x", path).memory_gb == 10
    assert gpu("LABX2", path).name == "Lab-X"
    assert gpu("H100", path).memory_gb == 80


def test_a_bad_file_names_every_fault(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("gpus:\n  X: {bf16_tflops: -1, memory_gbps: 5, colour: red}\n")
    with pytest.raises(ConfigError) as caught:
        gpu("X", path)
    fields = {fault.field for fault in caught.value.faults}
    assert {"gpus.X.colour", "gpus.X.memory_gb", "gpus.X.bf16_tflops"} <= fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "maps names of GPUs"),
        ("gpus: 3", "maps names of GPUs"),
        ("gpus: {X: 3}", "must map fields to numbers"),
        ("gpus: {X: {bf16_tflops: true, memory_gb: .inf, memory_gbps: 1e99}}", "positive number"),
        ("gpus: {X: {aliases: 3}}", "aliases to a list"),
        ("gpus: &a [*a]", "must not contain itself"),
        ("gpus: {X: {bf16_tflops: 1, memory_gb: 1, memory_gbps: 1, measured: {}}}", "says in words"),
        ("gpus: {X: {bf16_tflops: 1, memory_gb: 1, memory_gbps: 1, measured: [1]}}", "says in words"),
    ],
)
def test_hardware_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gpus.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        gpu("X", tmp_path / "gpus.yaml")


def test_more_gpus_than_there_are() -> None:
    for text in ("88888888xA100-80", f"{'9' * 5000}xA100-80"):
        with pytest.raises(ConfigError, match="at most 1,000,000 GPUs"):
            cluster(text)
