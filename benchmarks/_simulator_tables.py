"""The ground-truth training tables as jobs: what each source leaves unsaid is said here, once, with the reason."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError
from autoscout.simulators.serving.tables import ServingTable, serving_table
from autoscout.simulators.training.tables import TrainingTable, read_training_table, table_of

GROUND_TRUTH = Path(__file__).resolve().parent.parent.parent / "shared" / "ground-truth"
TABLES = GROUND_TRUTH.parent / "tables"


def training_tables(folder: Path = GROUND_TRUTH) -> dict[str, TrainingTable]:
    """All training tables whose layouts are complete enough to predict."""
    # vTrain: plain attention kernels, no optimizer sharding, GPT-2's vocabulary without padding (its src/config.py and
    # src/model/gpt_modeling.py). Its configs ask for recomputation, but the times cannot hold it: with four passes the matrix products
    # alone would run at 0.92 of the A100's peak, and constants fitted that way are 1.3 to 2 times as wrong on every other A100 source.
    said = {
        "ar": 0,
        "attention": "torch",
        "norm_fused": 1,
        "gradient_bytes": 2.0,
        "zero": 0,
        "loss_parallel": 1,
        "vocab": 50257,
        "vocab_multiple": 1,
    }
    found = {"vtrain": _read(folder, "train_vtrain_a100_1node", **said)}
    found["papers"] = table_of("papers", [_paper(row) for row in rows_of_file(folder / "train_megatron_papers.csv")])
    found["llm-foundry"] = _read(folder, "train_llmfoundry_fsdp", gradient_bytes=2.0, norm_fused=1, loss_fused=1)  # LayerNorm is one kernel
    # Megatron-core's benchmark recipes: Transformer Engine's norms, gradients reduced in 2 bytes
    core = {"sp": 1, "loss_parallel": 1, "loss_fused": 1, "norm_fused": 1, "act_fused": 1, "gradient_bytes": 2.0}
    core |= {"narrow_inputs": 1, "gather_overlap": 1}
    found["bridge"] = _read(folder, "train_megatron_bridge", **core, precision="fp8")  # where its first tables name no format
    found["nemo"] = _read(folder, "train_nemo_2407_h100", **core)
    found["torchtitan"] = table_of("torchtitan", [_titan(row) for row in rows_of_file(folder / "train_torchtitan.csv")])
    found["internevo"] = _read(folder, "train_internevo_7b", gradient_bytes=2.0, norm_fused=1, nic_gbps=6.25)  # 4 x 100 Gb per node of 8
    return found


KNOWN = ("vtrain_a100_1node", "megatron_papers", "llmfoundry_fsdp", "megatron_bridge", "nemo_2407_h100", "torchtitan", "internevo_7b")
OTHER = ("amp_16gpu", "litgpt_finetune", "nemo_longseq")
"""Tables that are read in their own way, or give no layout or no step time."""


def further_tables(folder: Path = GROUND_TRUTH) -> dict[str, TrainingTable]:
    """Training tables that somebody has added to the folder, as far as their columns say enough; never used for fitting."""
    found = {}
    for path in sorted(folder.glob("train_*.csv")):
        stem = path.stem.removeprefix("train_")
        if stem in (*KNOWN, *OTHER):
            continue
        old = "deepspeed" in path.read_text()[:2000].lower()
        given = (
            {"ar": 1, "attention": "torch", "gradient_bytes": 2.0, "zero": 0, "loss_parallel": 1} if old else {"sp": 1, "loss_parallel": 1}
        )
        try:
            found[stem] = read_training_table(path, columns=given)
        except ConfigError as error:
            print(f"{path.name} cannot be read: {error}")
    return found


def _read(folder: Path, stem: str, **given: Any) -> TrainingTable:
    return read_training_table(folder / f"{stem}.csv", columns=given)


def rows_of_file(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [{key: value for key, value in row.items() if value != ""} for row in csv.DictReader(file)]


def _paper(row: dict[str, Any]) -> dict[str, Any]:
    """Megatron papers: fused softmax; the first one recomputes everything and counts that in its TFLOP/s."""
    scheme = row["scheme"]
    row = {**row, "attention": "fused", "norm_fused": 1, "gradient_bytes": 2.0, "loss_parallel": 1}
    if "2104.04473" in row["paper"]:
        return {**row, "ar": 1, "tflops_gpu": float(row["tflops_gpu"]) * 0.75, "zero": 3 if scheme == "ZeRO-3" else 0}
    return {**row, "ar": "full" if scheme == "full_recompute" else "selective", "sp": int("SP" in scheme), "zero": 0}


def _titan(row: dict[str, Any]) -> dict[str, Any]:
    """torchtitan: selective checkpointing is every second layer; with pipelines the micro-batch is one sequence."""
    row = {**row, "sp": 1, "gradient_bytes": 4.0, "loss_parallel": 1}
    if row["act_ckpt"] == "selective":
        row.update(act_ckpt="full", recompute_share=0.5)
    if int(row["pp"]) > 1:
        row["local_batch"] = 1
    if row.get("pp_schedule") == "Interleaved1F1B":
        row["vp"] = 2
    if row["compile"] == "1":
        row["kernel"] = "flash, rms norm compiled"
    return row


def serving_sample(folder: Path = GROUND_TRUTH, part: str = "a") -> ServingTable:
    """The silicon sample's aggregated runs.

    Runs of the public nightly benchmark (prompts of 1,024 and 8,192 tokens) draw lengths from 0.8 to 1 of the longest, the others send
    requests of one length. With fp8 and fp4 weights the nightly runs keep an fp8 cache: half of them could not hold theirs in 2 bytes.
    """
    return serving_table(f"serve_silicon_{part}", [_nightly(row) for row in rows_of_file(folder / f"serve_silicon_{part}.csv")])


def _nightly(row: dict[str, Any]) -> dict[str, Any]:
    if row["isl"] not in ("1024", "8192"):
        return {**row, "length_spread": "0"}
    narrow = {"kvcache_quant_mode": "fp8"} if row.get("precision") in ("fp8", "fp4") else {}
    return {**narrow, **row, "length_spread": "0.1"}


def families(table: ServingTable) -> list[str]:
    """The model family of each row: quantised copies of one model are one family."""
    names = ("llama-3.1-8b", "qwen3-32b", "qwen3-235b", "minimax", "qwen3.5", "kimi", "gpt-oss", "deepseek")
    return [next((name for name in names if name in model.lower()), model.lower()) for model in table.models]


def amp_tables(folder: Path = GROUND_TRUTH) -> list[TrainingTable]:
    """AMP's two GPT-2 sweeps on 16 GPUs; its third is TransGAN, which is no stack of equal layers.

    Machines as AMP's paper describes them: 4 nodes of 4 T4 with 50 Gb/s; and three nodes of 4 V100 with 10 Gb/s beside one of 4 T4, where
    the T4 set the pace and the 10 Gb/s the network.
    """
    machines = {"homogeneous": {"gpu": "T4", "nic_gbps": 1.56}, "het_cluster": {"gpu": "T4", "nic_gbps": 0.31}}
    # recomputation as in Megatron's scripts of that time: without it half of what ran would not fit into a T4, and times are a third short
    common = {
        "model": "gpt2-345m",
        "seq": 1024,
        "attention": "torch",
        "norm_fused": 1,
        "zero": 0,
        "loss_parallel": 1,
        "gradient_bytes": 2.0,
        "node_gpus": 4,
        "ar": 1,
    }
    return [
        table_of(
            f"amp {name}",
            [
                {**row, **common, **machine, "status": row["status"].replace("failed_or_oom", "oom")}
                for row in rows_of_file(folder / "train_amp_16gpu.csv")
                if row["experiment"] == name
            ],
        )
        for name, machine in machines.items()
    ]


def longseq_table(folder: Path = GROUND_TRUTH) -> TrainingTable:
    """NeMo's long sequences with context parallelism, 4K to 1M tokens on H100; never used for fitting.

    On B200 the given degrees do not multiply up to the GPUs: those layouts are not told completely.
    """
    rows = []
    for row in rows_of_file(folder / "train_nemo_longseq.csv"):
        told = row["variant"] == "with_cp" and int(row["tp"]) * int(row["pp"]) * int(row["dp"]) * int(row["cp"]) >= int(row["n_gpus"])
        if told:
            rows.append(
                {
                    **row,
                    "sp": 1,
                    "loss_parallel": 1,
                    "loss_fused": 1,
                    "norm_fused": 1,
                    "act_fused": 1,
                    "gradient_bytes": 2.0,
                    "mbs": 1,
                    "gpu": row["system"],
                }
            )
    return table_of("nemo_longseq", rows)


def layout_tables(folder: Path = TABLES) -> dict[str, TrainingTable]:
    """The LLaMA 13B layouts with their failures; needs pyarrow."""
    found = {}
    for name, about in json.loads((folder / "tasks.json").read_text()).items() if folder.is_dir() else ():
        import pyarrow.parquet as parquet

        shape = {key: int(value) for key, value in about["model"].items()}
        base = {**shape, "gpu": "A100-80", "n_gpus": about["gpus"], "seq": about["seq_len"], "gbs": about["global_batch"], "tied": 0}
        rows = []
        for row in parquet.read_table(folder / f"{name}.parquet").to_pylist():
            value = row.pop("value")
            outcome = {"status": "ok", "step_s": value} if value is not None else {"status": "oom"}
            rows.append({**base, **row, **outcome, "zero": about["zero"], "gradient_bytes": 2.0})
        found[name] = table_of(name, rows)
    return found


WORKLOADS: dict[str, tuple[int, int, tuple[float, ...]]] = {
    "general": (547, 248, (8.0, 20.0)),
    "general-lite": (547, 248, (2.5, 6.0)),
    "codegen": (566, 247, (5.0, 10.0)),
    "roleplay": (750, 251, (6.0,)),
    "reasoning": (1034, 1448, (4.0,)),
    "reasoning-lite": (1034, 1448, (1.0,)),
}
"""Prompt and answer lengths and request rates per load stage of the inference-sim experiments, which its table leaves out; read
from testdata/roofline_goldendataset.json of inference-sim/inference-sim (Apache-2.0); the rate of `reasoning` is inferred."""


def experiments(folder: Path = GROUND_TRUTH) -> list[dict[str, Any]]:
    """Rows of the recorded simulators' predictions, with the load that each stage had.

    One experiment is listed three times with the same figures, as three workloads; its name tells which one it was.
    """
    found = []
    for row in rows_of_file(folder / "simpred_inferencesim.csv"):
        if row["workload"].removesuffix("-lite") not in row["experiment"] and any(name in row["experiment"] for name in WORKLOADS):
            continue
        name = row["workload"] if row["workload"].endswith("lite") or "lite" not in row["experiment"] else f"{row['workload']}-lite"
        inputs, outputs, rates = WORKLOADS[name]
        stage = int(float(row["load_stage"]))
        if (stage < 0 and len(rates) > 1) or stage >= len(rates):  # all stages together, or one we know no rate of
            continue
        found.append({**row, "input_tokens": inputs, "output_tokens": outputs, "rate": rates[max(stage, 0)]})
    return found
