"""The knobs of llama.cpp's server, their true defaults, and the conditions and constraints between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autoscout.backends.llamacpp.engine import SERVER_SLOTS, LlamaCppBuild
from autoscout.backends.llamacpp.flags import DRAFT_KINDS, LOOKUPS, all_flags
from autoscout.backends.llamacpp.gguf_file import GgufError, GgufFile
from autoscout.backends.llamacpp.model import weights_types
from autoscout.backends.llamacpp.program import placement
from autoscout.backends.llamacpp.workload import MOST_SLOTS, LlamaCppWorkload
from autoscout.core.config import Value
from autoscout.engines.table import plain
from autoscout.space import Choice, Constraint, Flag, Grid, Knob, Space

SERVER: Mapping[str, Value] = {"parallel": SERVER_SLOTS, "kv_unified": True}
"""Where `llama-server` begins differently from the library."""
EXACT_CACHE = ("f16", "f32")
OPEN_SLOTS = 32  # offered where the load does not bound the requests under way
LOSSY_CACHE = ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
RENAMED = ("threads", "threads_batch", "weights", "omp_wait_policy", "context_size")
"""Knobs that are no setting of the engine by that name."""
ON_GPU = "gpu_layers != 0"
BY_HAND = 'gpu_layers != 0 and gpu_layers != "auto"'
"""Where the engine's own fitting is off."""
CACHES = ("cache_type_k", "cache_type_v")
PATTERNS = ("tensor_split", "override_tensor")
"""Knobs that take any text."""
BLOCK = 32  # values that share a scale in every quantised type of the KV cache


def build_space(
    workload: LlamaCppWorkload,
    hardware: Mapping[str, Any],
    software: Mapping[str, Any],
    build: LlamaCppBuild,
    today: Mapping[str, Value] = MappingProxyType({}),
) -> Space:
    """The space for one task.

    Args:
        workload: What is asked of the server.
        hardware: Cores, NUMA nodes, lockable memory, GPUs.
        software: How the engine was built, and the placement that its own fitting chose.
        build: The engine; a knob that has no default there is not offered.
        today: What the user runs: numbers and patterns need not be among the usual ones, and a quantised cache holds in every
            configuration.
    """
    own = {**build.defaults, **(SERVER if workload.engine_defaults == "llama-server" else {})}
    has_gpu = bool(software.get("gpu_build"))
    knobs = [
        *_threads(hardware, software, own),
        *_batching(workload, own),
        *_attention(workload, own),
        *_memory(workload, hardware, own),
        *_prompt_cache(workload, own),
        *_speculation(workload, own, build.speculation),
        *(_gpu(workload, hardware, own, build) if has_gpu else ()),
        *(_placing(workload, own) if has_gpu else ()),
    ]
    fixed = {setting for setting, flag in spellings(build).items() if flag in workload.engine_args}
    present = [knob for knob in knobs if knob.name in {*own, *RENAMED} and knob.name not in fixed]
    fit = fit_values(placement(str(software.get("fit", ""))), workload.facts.layers)
    present = [with_values(knob, [fit[knob.name]]) if knob.name in fit else knob for knob in present]
    present = [_as_today(knob, today[knob.name], workload) if knob.name in today else knob for knob in present]
    facts = {"context": workload.context, "model_context": workload.facts.context, "cores": int(hardware["cores"])}
    return Space(present, _constraints(present, own), facts=facts)


def _as_today(knob: Knob, value: Value, workload: LlamaCppWorkload) -> Knob:
    """The knob with the value that somebody runs today; that alone where it changes answers without consent."""
    is_number = isinstance(knob, Grid) and isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number or knob.name in PATTERNS:
        return with_values(knob, [value])
    if knob.name in CACHES and value in LOSSY_CACHE and not workload.allow_lossy:
        return Choice(knob.name, [value], help=knob.help)
    return knob


def spellings(build: LlamaCppBuild) -> dict[str, str]:
    """The plain name of the flag of every setting, as `engine_args` has it."""
    return {setting: plain(flag) for setting, flag in all_flags(build.server.flags if build.server else {}).items()}


def fit_values(fit: Mapping[str, str], layers: int) -> dict[str, Value]:
    """What llama.cpp's own fitting chose, as values of knobs."""
    values: dict[str, Value] = {}
    if "-ngl" in fit:
        count = int(fit["-ngl"])
        values["gpu_layers"] = "all" if count < 0 or count > layers else count
    return values | {name: fit[flag] for name, flag in (("tensor_split", "-ts"), ("override_tensor", "-ot")) if flag in fit}


def with_values(knob: Knob, more: Iterable[Value]) -> Knob:
    """The knob with further values."""
    values = [*knob.values, *(value for value in dict.fromkeys(more) if value not in knob.values)]
    if len(values) == len(knob.values):
        return knob
    common: dict[str, Any] = {"default": knob.default, "when": knob.when, "unit": knob.unit, "help": knob.help, "warning": knob.warning}
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if isinstance(knob, Grid) and len(numbers) == len(values):
        return Grid(knob.name, values=sorted(numbers), log=knob.log, **common)
    return Choice(knob.name, values, **common)


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


def _prompt_cache(workload: LlamaCppWorkload, own: Mapping[str, Value]) -> Iterable[Knob]:
    """What is kept of earlier prompts: of use where prompts share something."""
    if workload.has_fresh_prompts and not workload.has_text:
        return
    reuse, room = own.get("cache_reuse", 0), own.get("cache_ram", 0)
    yield Choice(
        "cache_reuse", [0, 64, 256, 1024], default=reuse, unit="tokens", help="shortest piece of an earlier prompt used again; 0: none"
    )
    sizes = sorted({0, 2048, 8192, 32768, int(room or 0)} - {-1})
    yield Choice("cache_ram", [*sizes, -1], default=room, unit="MiB", help="memory for the caches of earlier conversations; -1: no bound")
    likeness = sorted({0.0, 0.1, 0.5, float(own.get("slot_prompt_similarity") or 0.0)})
    help = "share of a prompt that must be a slot's own for it to be chosen; 0: slots in turn"
    yield Choice("slot_prompt_similarity", likeness, default=own.get("slot_prompt_similarity", 0.1), help=help)
    if workload.facts.window:
        counts = sorted({0, 4, 32, 128, int(own.get("ctx_checkpoints") or 0)})
        yield Choice(
            "ctx_checkpoints", counts, default=own.get("ctx_checkpoints", 32), help="points a slot of sliding windows can return to"
        )


def _speculation(workload: LlamaCppWorkload, own: Mapping[str, Value], kinds: Iterable[str]) -> Iterable[Knob]:
    """Guessing tokens ahead, where something can guess: another model, layers of this one, or text that repeats itself."""
    possible = [kind for kind in kinds if _can_guess(kind, workload)]
    if not possible:
        return
    yield Choice("spec_type", ["none", *possible], default=own.get("spec_type", "none"), help="what guesses tokens ahead")
    drafts = [kind for kind in possible if kind in DRAFT_KINDS]
    if drafts:
        when = f"spec_type in {_listed(drafts)}"
        most, least, sure = (_number(own.get(name), usual) for name, usual in (("draft_max", 3), ("draft_min", 0), ("draft_p_min", 0.0)))
        yield Grid(
            "draft_max", values=_numbers([1, 2, 3, 4, 6, 8, 12, 16], most), default=most, when=when, log=True, help="tokens guessed at once"
        )
        yield Grid("draft_min", values=_numbers([0, 1, 2, 4], least), default=least, when=when, help="fewest tokens worth checking")
        yield Grid(
            "draft_p_min", values=_numbers([0.0, 0.4, 0.6, 0.75, 0.9], sure), default=sure, when=when, help="guesses less likely end it"
        )
    lookups = [kind for kind in possible if kind in LOOKUPS]
    if lookups:
        when = f"spec_type in {_listed(lookups)}"
        most, match = _number(own.get("ngram_max"), 48), _number(own.get("ngram_match"), 12)
        yield Grid(
            "ngram_max", values=_numbers([4, 8, 16, 32, 48, 64], most), default=most, when=when, log=True, help="tokens guessed at once"
        )
        help = "tokens that must be the same before a guess"
        yield Grid("ngram_match", values=_numbers([2, 3, 4, 8, 12, 24], match), default=match, when=when, log=True, help=help)


def _can_guess(kind: str, workload: LlamaCppWorkload) -> bool:
    if kind == "draft-mtp":
        return workload.facts.mtp_layers > 0
    if kind in DRAFT_KINDS:
        return bool(workload.draft_model) and kind == _draft_kind(workload.draft_model)
    return kind.startswith("ngram") and workload.has_text


def _draft_kind(model: str) -> str:
    """The kind of speculation that a model for it is made for."""
    try:
        architecture = GgufFile(model).architecture
    except GgufError:
        return "draft-simple"
    return next((kind for kind in DRAFT_KINDS[1:] if kind.removeprefix("draft-") in architecture), "draft-simple")


def _number(value: Value, usual: float) -> float:
    return value if isinstance(value, (int, float)) else usual


def _numbers(values: list[float], own: float) -> list[float]:
    return sorted({*values, own})


def _listed(words: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def _gpu(workload: LlamaCppWorkload, hardware: Mapping[str, Any], own: Mapping[str, Value], build: LlamaCppBuild) -> Iterable[Knob]:
    layers = workload.facts.layers
    parts = sorted({layers * part // 4 for part in (1, 2, 3)} - {0, layers})
    yield Choice(
        "gpu_layers", ["auto", 0, *parts, "all"], default=own.get("gpu_layers", "auto"), help="layers kept on the GPU; auto: as fit"
    )
    yield Flag("kv_offload", default=bool(own.get("kv_offload", True)), when=ON_GPU, help="KV cache on the GPU")
    yield Flag("op_offload", default=bool(own.get("op_offload", True)), help="large computations of CPU layers on the GPU")
    count = int(hardware.get("gpus", 1))
    if count > 1:
        listed = build.server.flags["--split-mode"].values if build.server and "--split-mode" in build.server.flags else ()
        values = [mode for mode in ("layer", "row", "tensor", "none") if mode in (listed or ("layer", "row", "none"))]
        yield Choice(
            "split_mode", values, default=own.get("split_mode", "layer"), when=ON_GPU, help="how the model spreads over several GPUs"
        )
        shares = ["auto", ",".join(["1"] * count), ",".join(["3", *["4"] * (count - 1)])]
        when = f'({ON_GPU}) and split_mode != "none"'
        yield Choice("tensor_split", shares, default="auto", when=when, help="share of the model on each GPU; auto: by free memory")
        when = f'({ON_GPU}) and split_mode in ["none", "row"]'
        yield Choice("main_gpu", list(range(count)), default=0, when=when, help="the GPU of the whole model, or of what is not spread")


def _placing(workload: LlamaCppWorkload, own: Mapping[str, Value]) -> Iterable[Knob]:
    """Weights that stay in main memory although their layer is on the GPU."""
    layers = workload.facts.layers
    counts = sorted({0, *(layers * part // 8 for part in range(1, 8)), layers})
    if workload.facts.experts:
        yield Grid("n_cpu_moe", values=counts, default=0, when=BY_HAND, help="layers whose experts stay in main memory")
        if own.get("moe_cache_mib") is not None:
            when = f"({BY_HAND}) and n_cpu_moe > 0"
            yield Choice("moe_cache_mib", [0, 1024, 4096], default=0, when=when, unit="MiB", help="GPU memory for experts in use")
        patterns = ["none", r"\.ffn_up_exps\.=CPU", r"\.ffn_(up|down)_exps\.=CPU"]
        when = f"({BY_HAND}) and n_cpu_moe == 0"
    else:
        yield Grid("n_cpu_ffn", values=counts, default=0, when=BY_HAND, help="layers whose feed-forward weights stay in main memory")
        patterns = ["none", r"\.ffn_up\.=CPU", r"\.ffn_(up|gate)\.=CPU"]
        when = f"({BY_HAND}) and n_cpu_ffn == 0" if "n_cpu_ffn" in own else BY_HAND
    yield Choice("override_tensor", patterns, default="none", when=when, help="tensors by pattern, and where they are kept")


def _constraints(knobs: Sequence[Knob], own: Mapping[str, Value]) -> list[Constraint]:
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
    if any(set(knob.values) & set(LOSSY_CACHE) for knob in knobs if knob.name == "cache_type_v"):
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
