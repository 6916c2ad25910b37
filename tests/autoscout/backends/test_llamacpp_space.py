"""Knobs of the `llamacpp` backend: the engine's true defaults, and the conditions between them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llamacpp_running import config_of, fixed_task

from autoscout.backends.llamacpp import LlamaCppBackend, engine
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.backends.llamacpp.serve import CACHE_TYPES, FLASH, LOAD_MODES, NUMA, SPLIT_MODES, parameters
from autoscout.common import machine
from autoscout.core.config import Config
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Status
from autoscout.space import Space

gguf = pytest.importorskip("gguf", reason="needs the extra llamacpp")
xllamacpp = pytest.importorskip("xllamacpp", reason="needs the extra llamacpp")

START = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.verbosity, params.n_parallel = sys.argv[1], 1024, 3, int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
server = xllamacpp.Server(params)
import threading; threading.Event().wait(600)
"""


def space_of(task: Task | None = None, **workload: Any) -> Space:
    return LlamaCppBackend().space(task or fixed_task(**workload))


def engine_log(tmp_path: Path, slots: int) -> str:
    path = ensure_model("random-tiny", "q8_0", tmp_path)
    said = ""
    with subprocess.Popen([sys.executable, "-c", START, path, str(slots)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # written by a thread of the engine's own, so wait for the last line
            said += line
            if "listening on" in line:
                break
        process.kill()
    return said


def test_the_default_configuration_leaves_the_engine_alone() -> None:
    """Applied to the engine, the default changes no parameter but model, threads, and the slots of llama-server."""
    task = LlamaCppBackend().task({})
    settings = json.loads(LlamaCppBackend().export(config_of(task), task)["server.json"])
    ours, fresh = parameters(settings), xllamacpp.CommonParams()
    named = {"model", "cpuparams", "cpuparams_batch", "n_parallel", "kv_unified"}
    assert (ours.n_parallel, ours.kv_unified) == (engine.SERVER_SLOTS, True)
    plain = [name for name in dir(fresh) if not name.startswith("_") and name not in named and not callable(getattr(fresh, name))]
    checked = 0
    for name in plain:
        value = getattr(fresh, name)
        if isinstance(value, (bool, int, float, str, list)):
            assert getattr(ours, name) == value, name
            checked += 1
    assert checked > 100
    for which in ("cpuparams", "cpuparams_batch"):
        for name in ("poll", "strict_cpu", "mask_valid", "priority"):
            assert getattr(getattr(ours, which), name) == getattr(getattr(fresh, which), name)


def test_the_engine_takes_as_many_threads_as_we_say_it_does(tmp_path: Path) -> None:
    assert f"n_threads = {machine.physical_cores()}" in engine_log(tmp_path, 1)


def test_the_defaults_of_llama_server(tmp_path: Path) -> None:
    assert f"n_slots = {engine.SERVER_SLOTS}" in (log := engine_log(tmp_path, -1)), "what -1, the program's default, stands for"
    assert "kv_unified = 'true'" in log
    default = space_of(concurrency=2).default()
    assert (default["parallel"], default["kv_unified"], default["context_size"]) == (4, True, "model")
    assert space_of(engine_defaults="xllamacpp").default()["parallel"] == xllamacpp.CommonParams().n_parallel == 1


def test_the_context_of_the_model_is_offered_where_it_holds_the_load() -> None:
    space = space_of(input_tokens=1000, output_tokens=24, concurrency=16)
    assert space.default()["context_size"] == "model"
    assert set(space.choices("parallel", Config(context_size="model"))) == {1, 2, 3, 4, 6, 8}, "8 x 1024 is all that the model holds"
    assert max(space.choices("parallel", Config(context_size="load"))) == 16  # type: ignore[type-var]
    assert "context_size" not in space_of(input_tokens=3000, output_tokens=24).knobs, "four such requests are too long for it"
    backend, task = LlamaCppBackend(), fixed_task(input_tokens=100, output_tokens=24)
    sizes = {
        kind: json.loads(backend.export(config_of(task, context_size=kind), task)["server.json"])["context"] for kind in ("model", "load")
    }
    assert sizes == {"model": 0, "load": 4 * 256}


def test_our_words_are_the_engines_words() -> None:
    for words, kind, prefix in (
        (FLASH, xllamacpp.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_"),
        (CACHE_TYPES, xllamacpp.ggml_type, "GGML_TYPE_"),
        (LOAD_MODES, xllamacpp.llama_load_mode, "LLAMA_LOAD_MODE_"),
        (SPLIT_MODES, xllamacpp.llama_split_mode, "LLAMA_SPLIT_MODE_"),
        (NUMA, xllamacpp.ggml_numa_strategy, "GGML_NUMA_STRATEGY_"),
    ):
        spelt = {"ON": "ENABLED", "OFF": "DISABLED", "DIO": "DIRECT_IO", "MMAP+MLOCK": "MMAP_MLOCK"}
        for word, number in words.items():
            assert kind(number).name == prefix + spelt.get(word.upper(), word.upper())


def test_nothing_lossy_unless_asked_for() -> None:
    space = space_of()
    assert "weights" not in space.knobs
    assert set(space.knobs["cache_type_k"].values) == set(space.knobs["cache_type_v"].values) == {"f16", "f32"}
    lossy = space_of(allow_lossy=True)
    assert lossy.knobs["weights"].default == "q8_0"
    assert {"q4_0", "q8_0", "bf16"} < set(lossy.knobs["cache_type_v"].values)
    assert lossy.default() == space.default().extend(weights="q8_0"), "asking for them changes no default"


def test_a_quantised_v_cache_needs_flash_attention() -> None:
    space = space_of(allow_lossy=True)
    assert "q8_0" not in space.choices("cache_type_v", Config(flash_attention="off"))
    assert "q8_0" in space.choices("cache_type_k", Config(flash_attention="off")), "the K cache does not"
    assert "q8_0" in space.choices("cache_type_v", Config(flash_attention="auto"))
    assert any("flash attention" in line for line in space.check(space.default().extend(cache_type_v="q4_0", flash_attention="off")))


def test_what_the_engine_would_cut_down_is_not_offered() -> None:
    space = space_of(input_tokens=64, output_tokens=64, concurrency=8)
    assert max(space.choices("ubatch", Config(batch=64))) == 64  # type: ignore[type-var]
    assert set(space.choices("batch", Config(parallel=2, context_size="load"))) == {32, 64, 128, 256, 512, 2048}, (
        "two slots of 256, or the default"
    )
    assert set(space.choices("ubatch", Config(parallel=1, context_size="load"))) == {16, 32, 64, 128, 256, 512}
    assert set(space.knobs["parallel"].values) == {1, 2, 3, 4, 6, 8}, "more slots than clients stay empty"


def test_batching_of_one_slot_is_no_choice() -> None:
    assert {"cont_batching", "kv_unified"} & set(config_of(fixed_task(), parallel=1)) == set()
    assert {"cont_batching", "kv_unified"} <= set(config_of(fixed_task(), parallel=4))


def test_threads_know_their_machine() -> None:
    wide = space_of(fixed_task(hardware={"cores": 96, "physical_cores": 48, "numa_nodes": 2}))
    assert wide.default()["threads"] == 48
    assert 96 in wide.knobs["threads"]
    assert wide.knobs["numa"].default == "off"
    narrow = space_of(fixed_task(hardware={"cores": 2, "physical_cores": 8}))
    assert narrow.default()["threads"] == 8, "in a small container the engine still counts the whole machine"
    assert narrow.choices("threads", Config(pin_threads=True)) == (1, 2)
    assert "numa" not in narrow.knobs


def test_how_idle_threads_wait_depends_on_the_build() -> None:
    openmp = space_of(fixed_task(software={"openmp": True}))
    assert "omp_wait_policy" in openmp.knobs
    assert "poll" not in openmp.knobs
    own = space_of(fixed_task(software={"openmp": False}))
    assert own.default()["poll"] == xllamacpp.CommonParams().cpuparams.poll == 50
    assert "omp_wait_policy" not in own.knobs


def test_memory_is_locked_only_where_it_may_be() -> None:
    assert "mlock" not in space_of().knobs["load_mode"]
    assert "mlock" in space_of(fixed_task(hardware={"lockable_gb": 1.0})).knobs["load_mode"]


def test_gpu_knobs_need_a_gpu_build() -> None:
    assert not {"gpu_layers", "kv_offload", "split_mode"} & set(space_of().knobs)
    space = space_of(fixed_task(software={"gpu_build": True}, hardware={"gpus": 2}))
    assert space.knobs["gpu_layers"].values == ("auto", 0, 2, 4, 6, "all")
    assert "kv_offload" not in space.project(space.default(), Config(gpu_layers=0))
    assert space.default()["split_mode"] == "layer"
    task = fixed_task(software={"gpu_build": True}, hardware={"gpus": 2})
    assert LlamaCppBackend().render(config_of(task), task, seed=1).resources.gpus == 2
    assert LlamaCppBackend().render(config_of(task, gpu_layers=0), task, seed=1).resources.gpus == 0
    assert "split_mode" not in space_of(fixed_task(software={"gpu_build": True}, hardware={"gpus": 1})).knobs


@pytest.mark.parametrize(("head", "quantised"), [(64, True), (80, False)])
def test_cache_types_must_divide_the_heads(tmp_path: Path, head: int, quantised: bool) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(head * 2)
    writer.add_head_count(2)
    writer.add_context_length(4096)
    writer.add_sliding_window(256)
    writer.add_tensor("a.weight", np.zeros((2, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    space = space_of(model=str(tmp_path / "m.gguf"), allow_lossy=True)
    assert ("q4_0" in space.knobs["cache_type_k"]) == quantised
    assert space.default()["swa_full"] is False, "the model has sliding windows"
    assert space.knobs["weights"].values[:2] == ("f16", "q8_0")


def test_hints_are_valid_and_new() -> None:
    backend, task = LlamaCppBackend(), fixed_task(concurrency=6)
    hints = backend.hints(task)
    assert [hint["parallel"] for hint in hints] == [1, 6], "as a library; a slot for every client"
    assert all(backend.space(task).check(hint) == [] for hint in hints)
    assert [hint["parallel"] for hint in backend.hints(fixed_task(concurrency=1))] == [1]
    assert backend.hints(fixed_task(concurrency=1, engine_defaults="xllamacpp")) == ()
    assert backend.hints(fixed_task(concurrency=6, engine_defaults="xllamacpp"))[0]["kv_unified"] is True


def test_threads_that_sleep_are_tried_first_where_others_use_the_cores() -> None:
    backend, task = LlamaCppBackend(), fixed_task()
    space = backend.space(task)
    assert backend.hints_after(Measurement(status=Status.OK), task) == ()
    hint, *others = backend.hints_after(Measurement(status=Status.OK, conditions={"dirty": 1.0}), task)
    changed = {name: value for name, value in hint.items() if value != space.default()[name]}
    assert changed in ({"omp_wait_policy": "passive"}, {"poll": 0})
    assert [config["parallel"] for config in others] == [config["parallel"] for config in backend.hints(task)]
    assert all(config.extends(Config(changed)) for config in others), "the hints take many times as long without it"
    assert all(space.check(config) == [] for config in (hint, *others))


def test_every_knob_needs_a_new_process() -> None:
    assert all(knob.restart for knob in space_of(allow_lossy=True).knobs.values())
