"""Makes the shipped training calibrations from the ground-truth tables; `benchmarks.calibrate_serving` makes those of serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from autoscout.simulators.training import calibration
from autoscout.simulators.training.calibrate import calibrate
from autoscout.simulators.training.calibration import to_json
from benchmarks._simulator_tables import training_tables

OUT = Path(calibration.__file__).parent / "calibrations.yaml"
HOST = ["layer_host_s", "layer_gap_s", "micro_host_s", "step_host_s"]
MODERN = ["gemm_scale", "attention_share", "element_bytes", "nic_share", "reduced_share"]
OLD = ["host_skew", "head_host_s", "unaligned_cost", "score_passes"]  # what newer stacks fuse, pad or launch beside
EXPERTS = ["expert_share", "expert_host_s"]
PLANS: dict[str, tuple[tuple[str, ...], list[str], str]] = {
    "megatron-deepspeed": (
        ("vtrain",),
        [*HOST, *OLD, "gemm_scale", "element_bytes", "bus_scale", "optimizer_bytes", "dp_overlap"],
        "vTrain single-node table: 1440 runs of Megatron-DeepSpeed on up to 8 A100 (VIA-Research/vTrain, MIT)",
    ),
    "megatron-core": (
        ("bridge", "nemo"),
        # its dense runs never wait for the host, so they say nothing of layer_host_s
        [*(name for name in HOST if name != "layer_host_s"), *MODERN, *EXPERTS, "bus_scale", "ring_share", "dp_overlap"],
        "Megatron-Bridge 25.09 to 26.08 and NeMo 24.07 performance tables, H100 to GB300 (NVIDIA, Apache-2.0)",
    ),
    "fsdp": (
        ("llm-foundry", "torchtitan"),
        [*HOST, *MODERN, "norm_bytes", "shard_overlap", "tp_overlap"],
        "llm-foundry FSDP tables, A100 and H100 (MosaicML, Apache-2.0), and torchtitan benchmarks (BSD-3-Clause)",
    ),
    "default": (
        ("vtrain", "papers", "llm-foundry", "bridge", "nemo", "torchtitan", "internevo"),
        [*HOST, *MODERN, *EXPERTS, *OLD, "norm_bytes", "bus_scale", "ring_share", "dp_overlap", "shard_overlap"],
        "all training tables together, each source counting the same: vTrain, Megatron papers, llm-foundry, Megatron-Bridge, NeMo, "
        "torchtitan, InternEvo",
    ),
}
ASSUMES: dict[str, dict[str, float]] = {
    "megatron-deepspeed": {"gradient_bytes": 2.0, "loss_parallel": 1.0, "zero": 0.0, "attention": 1.0, "norm_fused": 1.0, "act_fused": 1.0},
    "megatron-core": {
        "gradient_bytes": 4.0,
        "loss_parallel": 1.0,
        "zero": 1.0,
        "norm_fused": 1.0,
        "act_fused": 1.0,
        "narrow_inputs": 1.0,
        "gather_overlap": 1.0,
    },
    "fsdp": {"gradient_bytes": 2.0, "zero": 3.0, "vocab_multiple": 1.0},
    "default": {"gradient_bytes": 2.0, "zero": 1.0},
}
"""What each stack does when a task does not say: bytes of a gradient, logits split or gathered, sharding, attention and norm kernels,
padding of the vocabulary, one byte for the inputs of fp8 layers."""


def main() -> None:
    head = "# Written by benchmarks/calibrate_shipped.py; made_from names the data, mape is the error on unseen workloads.\n"
    OUT.write_text(head + yaml.safe_dump({"training": training()}, sort_keys=False, width=140))


def training() -> list[dict[str, Any]]:
    tables = training_tables()
    entries = []
    for name, (sources, constants, made_from) in PLANS.items():
        parts = [tables[source] for source in sources]
        fitted = calibrate(parts, constants, name=name, made_from=made_from, assumes=ASSUMES[name])
        found = fitted.calibration
        entries.append(
            {key: value for key, value in to_json(found).items() if key not in ("kind", "memory")}
        )  # memory is counted in one way for all
        print(f"{name}: {found.rows} rows, {_error(found.mape)} on unseen workloads, {len(found.shapes.points)} measured layer shapes")
    return entries


def _error(mape: float | None) -> str:
    return "MAPE not judged" if mape is None else f"MAPE {mape:.1%}"


if __name__ == "__main__":
    main()
