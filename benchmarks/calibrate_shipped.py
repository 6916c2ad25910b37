"""Makes src/autoscout/simulators/data/calibrations.yaml from the ground-truth tables: `python -m benchmarks.calibrate_shipped`."""

from __future__ import annotations

from pathlib import Path

import yaml

from autoscout.simulators import _calibration
from autoscout.simulators._calibrate import calibrate
from autoscout.simulators._calibration import to_json
from benchmarks._simulator_tables import training_tables

OUT = Path(_calibration.__file__).parent / "data" / "calibrations.yaml"
HOST = ["layer_host_s", "layer_gap_s", "step_host_s"]
MODERN = ["gemm_scale", "attention_share", "element_bytes", "nic_share", "reduced_share"]
PLANS: dict[str, tuple[tuple[str, ...], list[str], str]] = {
    "megatron-deepspeed": (
        ("vtrain",),
        [*HOST, "host_skew", "gemm_scale", "score_passes", "element_bytes", "bus_scale", "optimizer_bytes", "dp_overlap"],
        "vTrain single-node table: 1440 runs of Megatron-DeepSpeed on up to 8 A100 (VIA-Research/vTrain, MIT)",
    ),
    "megatron-core": (
        ("bridge", "nemo"),
        [*HOST, *MODERN, "bus_scale", "dp_overlap", "expert_share", "expert_host_s"],
        "Megatron-Bridge 25.09 to 26.08 and NeMo 24.07 performance tables, H100 to GB300 (NVIDIA, Apache-2.0)",
    ),
    "fsdp": (
        ("llm-foundry", "torchtitan"),
        [*HOST, *MODERN, "shard_overlap", "tp_overlap"],
        "llm-foundry FSDP tables, A100 and H100 (MosaicML, Apache-2.0), and torchtitan benchmarks (BSD-3-Clause)",
    ),
    "default": (
        ("vtrain", "papers", "llm-foundry", "bridge", "nemo", "torchtitan", "internevo"),
        [*HOST, *MODERN, "host_skew", "score_passes", "bus_scale", "dp_overlap", "shard_overlap", "expert_share", "expert_host_s"],
        "all training tables together, each source counting the same: vTrain, Megatron papers, llm-foundry, Megatron-Bridge, NeMo, "
        "torchtitan, InternEvo",
    ),
}
ASSUMES: dict[str, dict[str, float]] = {
    "megatron-deepspeed": {"gradient_bytes": 2.0, "loss_parallel": 1.0, "zero": 0.0, "attention": 1.0},
    "megatron-core": {"gradient_bytes": 4.0, "loss_parallel": 1.0, "zero": 1.0},
    "fsdp": {"gradient_bytes": 2.0, "zero": 3.0},
    "default": {"gradient_bytes": 2.0, "zero": 1.0},
}
"""What each stack does when a task does not say: bytes of a gradient, logits split or gathered, sharding, attention kernels."""


def main() -> None:
    tables = training_tables()
    entries = []
    for name, (sources, constants, made_from) in PLANS.items():
        fitted = calibrate([tables[source] for source in sources], constants, name=name, made_from=made_from, assumes=ASSUMES[name])
        entries.append({key: value for key, value in to_json(fitted.calibration).items() if key != "kind"})
        print(f"{name}: {fitted.calibration.rows} rows, MAPE {fitted.calibration.mape:.1%} on unseen workloads")
    head = "# Written by benchmarks/calibrate_shipped.py; made_from names the data, mape is the error on unseen workloads.\n"
    OUT.write_text(head + yaml.safe_dump({"training": entries}, sort_keys=False, width=140))


if __name__ == "__main__":
    main()
