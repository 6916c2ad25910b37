"""Measures tables of configurations on a GPU: `python -m benchmarks.record_gpu --out folder` (PyTorch and Triton; minutes each).

`triton_*` are kernels (`_gpu_kernels`, `_gpu_products`, `_gpu_sweeps`), `torch_*` whole steps of a model (`_gpu_training`, `_gpu_serving`).
What is written is what `autoscout bench search --tables folder` reads: `manifest.json`, `tasks.json` and a CSV per table. A
configuration that does not compile, does not fit or gives a wrong result is a failed row. Configurations are measured in an order drawn by
lot, and written one by one: what the time does not suffice for is left out until the same command is given again, and until then the table
is not called complete.
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib
import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Config = dict[str, Any]
Result = tuple[Config, float | None, str]  # the reason where there is no figure
TORCH = {"torch_training": "_gpu_training", "torch_decoding": "_gpu_serving"}  # their modules have PARAMS, allowed and measure
NAMES = (
    "triton_matmul", "triton_matmul_128", "triton_matmul_2048", "triton_matmul_wide", "triton_attention", "triton_norm", "triton_decode",
    "triton_convolution", "triton_gated", "triton_quantized",
    "triton_loss", "triton_columns", "triton_stencil", "triton_scan",
    *TORCH,
)  # fmt: skip
UNITS = {"torch_training": "s"}  # all else: ms
_NEAR = 2e-2  # of bf16
_COMPILING = 0.6  # of the time, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--seconds", type=float, default=500, help="for each table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    wanted = asked.only.split(",")
    if unknown := [name for name in wanted if name not in NAMES]:
        parser.error(f"--only: no such table: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    for name in wanted:
        _record(name, asked.out, asked.seconds, asked.jobs)


def _record(name: str, out: Path, seconds: float, jobs: int) -> None:
    begun = time.perf_counter()
    params, allowed = _described(name)
    names = [param["name"] for param in params]
    configs = [config for config in _configs(params) if allowed(config)]
    random.Random(0).shuffle(configs)
    file = out / f"{name}.csv"
    lines = list(csv.reader(file.read_text().splitlines())) if file.is_file() else []
    known = lines[1:]
    measured = {tuple(row[:-1]) for row in known}
    wanted = [config for config in configs if tuple(str(config.get(key, "")) for key in names) not in measured]
    reasons: dict[str, int] = {}
    with file.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if not lines:
            writer.writerow([*names, "value"])
        results = _steps(name, wanted, seconds) if name in TORCH else _kernels(name, wanted, seconds, jobs)
        for config, value, why in results:
            writer.writerow([*(config.get(key, "") for key in names), "" if value is None else f"{value:.5g}"])
            stream.flush()
            reasons[why[:150]] = reasons.get(why[:150], 0) + 1
    _describe(out / "manifest.json", name, params, complete=len(known) + sum(reasons.values()) == len(configs))
    took = time.perf_counter() - begun
    print(f"{name}: {len(known)} rows known, {sum(reasons.values())} of {len(wanted)} added in {took:.0f} s", reasons)


def _described(name: str) -> Any:
    """Parameters of a table, and which of their combinations are meant at all."""
    if name in TORCH:
        module = importlib.import_module(f"benchmarks.{TORCH[name]}")
        return module.PARAMS, module.allowed
    kernel = _kernel(name)
    return kernel.params, getattr(kernel, "allowed", bool)


def _describe(manifest: Path, name: str, params: list[Config], *, complete: bool) -> None:
    import torch

    kernel = None if name in TORCH else _kernel(name)
    _add(manifest, name, {
        "objective": "min",
        "unit": UNITS.get(name, "ms"),
        "complete": complete,
        "family": getattr(kernel, "family", name),
        "measured": f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}",
        "params": params,
    })  # fmt: skip
    if hasattr(kernel, "facts"):
        _add(manifest.with_name("tasks.json"), name, kernel.facts)


def _add(file: Path, name: str, about: Config) -> None:
    known = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(known | {name: about}, indent=1) + "\n")


def _configs(params: list[Config]) -> Iterator[Config]:
    free, bound = ([param for param in params if ("when" in param) == conditional] for conditional in (False, True))
    for values in itertools.product(*(param["values"] for param in free)):
        config = dict(zip((param["name"] for param in free), values, strict=True))
        active = [param for param in bound if all(config[key] in allowed for key, allowed in param["when"].items())]
        for more in itertools.product(*(param["values"] for param in active)):
            yield config | dict(zip((param["name"] for param in active), more, strict=True))


@lru_cache(maxsize=1)
def _kernel(name: str) -> Any:
    from benchmarks import _gpu_kernels, _gpu_products, _gpu_sweeps

    return (_gpu_kernels.KERNELS | _gpu_products.KERNELS | _gpu_sweeps.KERNELS)[name]()


def _tried(name: str, config: Config) -> str:
    """Compile (into the cache on disk, for all processes), run once, and compare; why it cannot be used, or nothing."""
    import torch

    kernel = _kernel(name)
    try:
        for buffer in kernel.written:
            buffer.fill_(float("nan"))  # what is not written must not be taken for the last one's result
        result = kernel.call(config)()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    if not bool(result.isfinite().all()):
        return "not all of it was written"
    apart = float((result.float() - kernel.reference).norm() / kernel.reference.norm())
    return "" if apart < getattr(kernel, "near", _NEAR) else f"wrong by {apart:.2g}"


def _kernels(name: str, configs: list[Config], seconds: float, jobs: int) -> Iterator[Result]:
    from triton.testing import do_bench

    until = time.perf_counter() + seconds
    kernel = _kernel(name)

    def binary(config: Config) -> str:
        return json.dumps({key: value for key, value in config.items() if key not in kernel.own})

    apart = {binary(config): config for config in configs}
    compiled: dict[str, str] = {}
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    waiting = {pool.submit(_tried, name, config): key for key, config in apart.items()}
    try:
        for done in as_completed(waiting, timeout=_COMPILING * seconds):
            compiled[waiting[done]] = done.result()
    except TimeoutError:
        print(f"{name}: {len(compiled)} of {len(apart)} compiled in time", flush=True)
    for process in list(pool._processes.values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    for config in configs:
        why = compiled.get(binary(config))
        if why is not None and time.perf_counter() < until:
            why = why or _tried(name, config)
            yield config, None if why else do_bench(kernel.call(config), warmup=3, rep=15, return_mode="median"), why


def _steps(name: str, configs: list[Config], seconds: float) -> Iterator[Result]:
    import torch

    measure = importlib.import_module(f"benchmarks.{TORCH[name]}").measure
    _kernel.cache_clear()  # what the last kernel held would count as the model's memory
    gc.collect()
    torch.cuda.empty_cache()
    until = time.perf_counter() + seconds
    for config in configs:
        if time.perf_counter() > until:
            break
        value, why = None, ""
        try:
            value = measure(config)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0][:40]}"
        gc.collect()
        torch.cuda.empty_cache()
        yield config, value, why


if __name__ == "__main__":
    main()
