"""The knobs of llama.cpp's server, their true defaults, and the conditions and constraints between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.backends.llamacpp.engine import SERVER_SLOTS
from autoscout.backends.llamacpp.model import weights_types
from autoscout.backends.llamacpp.workload import MOST_SLOTS, LlamaCppWorkload
from autoscout.core.config import Value
from autoscout.space import Choice, Constraint, Flag, Grid, Knob, Space

SERVER: Mapping[str, Value] = {"parallel": SERVER_SLOTS, "kv_unified": True}
"""Where `llama-server` begins differently from the library."""
EXACT_CACHE = ("f16", "f32")
OPEN_SLOTS = 32  # offered where the load does not bound the requests under way
LOSSY_CACHE = ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
BLOCK = 32  # values that share a scale in every quantised type of the KV cache


def build_space(
    workload: LlamaCppWorkload, hardware: Mapping[str, Any], software: Mapping[str, Any], defaults: Mapping[str, Value]
) -> Space:
    """The space for one task.

    Args:
        workload: What is asked of the server.
        hardware: Cores, NUMA nodes, lockable memory.
        software: How the engine was built.
        defaults: What the engine does by itself, knob by knob; a knob that is missing there is not offered.
    """
    own = {**defaults, **(SERVER if workload.engine_defaults == "llama-server" else {})}
    knobs = [
        *_threads(hardware, software, own),
        *_batching(workload, own),
        *_attention(workload, own),
        *_memory(workload, hardware, own),
        *(_gpu(workload, hardware, own) if software.get("gpu_build") else ()),
    ]
    renamed = ("threads", "threads_batch", "weights", "omp_wait_policy", "context_size")  # CommonParams does not know them by these names
    present = [knob for knob in knobs if knob.name in own or knob.name in renamed]
    facts = {"context": workload.context, "model_context": workload.facts.context, "cores": int(hardware["cores"])}
    return Space(present, _constraints(workload, present, own), facts=facts)


def _threads(hardware: Mapping[str, Any], software: Mapping[str, Any], own: Mapping[str, Value]) -> Iterable[Knob]:
    cores, default = int(hardware["cores"]), int(hardware["physical_cores"])
    counts = sorted({*_ladder(max(cores, default)), cores, default})
    yield Grid("threads", values=counts, default=default, log=True, help="threads that generate tokens")
    yield Grid("threads_batch", values=counts, default=default, log=True, help="threads that read prompts")
    if software.get("openmp"):
        values = ["default", "active", "passive"]
        yield Choice("omp_wait_policy", values, help="how idle threads wait: spin for a while, spin always, sleep (OMP_WAIT_POLICY)")
    else:
        poll = int(own.get("poll") or 0)
        yield Grid("poll", values=sorted({0, 50, 100, poll}), default=poll, help="how eagerly idle threads look for work")
    if hardware.get("pinnable", True):
        yield Flag("pin_threads", default=bool(own.get("pin_threads")), help="every thread on a core of its own")
    if int(hardware.get("numa_nodes", 1)) > 1:
        yield Choice("numa", ["off", "distribute", "isolate"], default=own.get("numa", "off"), help="how threads spread over NUMA nodes")


def _batching(workload: LlamaCppWorkload, own: Mapping[str, Value]) -> Iterable[Knob]:
    batch, ubatch, slots = (int(own[name] or 0) for name in ("batch", "ubatch", "parallel"))
    most = min(MOST_SLOTS, max(workload.concurrency or OPEN_SLOTS, slots))
    sizes = [size for size in (2**power for power in range(4, 14)) if size <= workload.context * most]
    larger = sorted({*(size for size in sizes if size >= 32), batch})
    yield Grid("batch", values=larger, default=batch, log=True, unit="tokens", help="most tokens handed to the model at once")
    yield Grid("ubatch", values=sorted({*sizes, ubatch}), default=ubatch, log=True, unit="tokens", help="most tokens computed at once")
    counts = sorted({*_ladder(most), most, slots})
    yield Grid("parallel", values=counts, default=slots, log=True, help="requests served at once, each with a context of its own")
    if workload.facts.context >= workload.context * slots:
        help = "tokens of the KV cache: the model's whole context, as the engine takes by itself, or what the slots need for this load"
        yield Choice("context_size", ["model", "load"], help=help)
    yield Flag("cont_batching", default=bool(own["cont_batching"]), when="parallel > 1", help="new prompts join while others generate")
    yield Flag("kv_unified", default=bool(own["kv_unified"]), when="parallel > 1", help="one KV cache for all requests, not one each")


def _attention(workload: LlamaCppWorkload, own: Mapping[str, Value]) -> Iterable[Knob]:
    yield Choice("flash_attention", ["auto", "on", "off"], default=own["flash_attention"], help="fused attention, less memory traffic")
    types = [*EXACT_CACHE, *(LOSSY_CACHE if workload.allow_lossy else ())]
    if workload.facts.head_size % BLOCK:
        types = [kind for kind in types if kind in (*EXACT_CACHE, "bf16")]
    for name, what in (("cache_type_k", "keys"), ("cache_type_v", "values")):
        yield Choice(name, types, default=own[name], help=f"how the KV cache stores {what}")
    if workload.facts.window:
        yield Flag("swa_full", default=bool(own.get("swa_full")), help="full-size cache for sliding-window layers")


def _memory(workload: LlamaCppWorkload, hardware: Mapping[str, Any], own: Mapping[str, Value]) -> Iterable[Knob]:
    weights = weights_types(workload.facts, workload.model)
    if workload.allow_lossy and len(weights) > 1:
        yield Choice("weights", weights, help="how the weights are stored; the first is the file's own")
    modes = ["auto", "none", "dio"]
    if float(hardware.get("lockable_gb", 0.0)) > workload.facts.size_gb:
        modes += ["mlock", "mmap+mlock"]
    yield Choice("load_mode", modes, default=own.get("load_mode", "auto"), help="how the file is loaded: auto maps it, none copies it")
    yield Flag("repack", default=bool(own.get("repack")), help="rearrange quantised weights for this processor while loading")


def _gpu(workload: LlamaCppWorkload, hardware: Mapping[str, Any], own: Mapping[str, Value]) -> Iterable[Knob]:
    layers = workload.facts.layers
    parts = sorted({layers * part // 4 for part in (1, 2, 3)} - {0, layers})
    yield Choice("gpu_layers", ["auto", 0, *parts, "all"], default=own.get("gpu_layers", "auto"), help="layers kept on the GPU")
    on = "gpu_layers != 0"
    yield Flag("kv_offload", default=bool(own.get("kv_offload", True)), when=on, help="KV cache on the GPU")
    yield Flag("op_offload", default=bool(own.get("op_offload", True)), help="large computations of CPU layers on the GPU")
    if int(hardware.get("gpus", 1)) > 1:
        values = ["layer", "row", "none"]
        yield Choice("split_mode", values, default=own.get("split_mode", "layer"), when=on, help="how the model spreads over several GPUs")


def _constraints(workload: LlamaCppWorkload, knobs: Iterable[Knob], own: Mapping[str, Value]) -> list[Constraint]:
    """What llama.cpp refuses, and what it would silently turn into another configuration."""
    names = {knob.name for knob in knobs}
    batch, ubatch = own["batch"], own["ubatch"]
    whole = '(model_context if context_size == "model" else context * parallel)' if "context_size" in names else "context * parallel"
    rules = [
        Constraint("ubatch <= batch", why="llama.cpp cuts ubatch down to batch"),
        Constraint(f"batch <= {whole} or batch == {batch}", why="llama.cpp cuts batch down to the whole context"),
        Constraint(f"ubatch <= {whole} or ubatch == {ubatch}", why="llama.cpp cuts ubatch down to the whole context"),
        Constraint("parallel <= batch", why="every slot adds a token to each batch"),
    ]
    if "context_size" in names:
        why = "every slot needs room for a whole request"
        rules.append(Constraint('context_size == "load" or context * parallel <= model_context', why=why))
    if workload.allow_lossy:
        exact = ", ".join(f'"{kind}"' for kind in (*EXACT_CACHE, "bf16"))
        rules.append(Constraint(f'flash_attention != "off" or cache_type_v in [{exact}]', why="a quantised V cache needs flash attention"))
    if "pin_threads" in names:
        why = "two threads on one core would wait for each other"
        rules.append(Constraint("not pin_threads or (threads <= cores and threads_batch <= cores)", why=why))
    return rules


def _ladder(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... up to `most`."""
    counts, step = [], 1
    while step <= most:
        counts += [step, step * 3 // 2] if step > 1 else [step]
        step *= 2
    return [count for count in counts if count <= most]
