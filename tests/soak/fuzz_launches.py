"""Launches of servers in the forms in which people write them down, for the readers of launches."""

from __future__ import annotations

from pathlib import Path

COMMAND = (
    "HF_TOKEN=x VLLM_USE_DEEP_GEMM=0 vllm serve org/model -tp 8 --max-num-seqs 256 --kv-cache-dtype=fp8 -O3 --no-enable-prefix-caching "
    """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' --compilation-config.cudagraph_mode FULL --port 80\n"""
    "docker run --gpus all -e A=1 vllm/vllm-openai:v0.33.0 --model m --max-model-len 8k\n"
    "python3 -m sglang.launch_server --model-path m --tp 4 --mem-fraction-static 0.85 --enable-dp-attention --dp-size 2\n"
)
SCRIPT = """#!/usr/bin/env bash
export VLLM_USE_DEEP_GEMM=${DEEP:-0}
ARGS=(--max-num-seqs "$((CONC * 2))" ${EXTRA[@]})
for ((i = 1; i <= 4; i++)); do SIZES+=("$((i * 8))"); done
if [[ "$TP" -gt 8 && -n "$X" || $MODE == f* ]]; then ARGS+=(-pp 2); elif [ -d /x ]; then Y=1; else Y=2; fi
case "$MODE" in fast|quick) ARGS+=(-O3) ;; *) : ;; esac
start() { local M="$1"; shift; vllm serve "$M" "$@" --cudagraph-capture-sizes "${SIZES[@]}" > log 2>&1 & }
cat > config.yaml << EOF
max-model-len: $LEN
EOF
while [ $Z -lt 3 ]; do Z=$((Z + 1)); done
start "${MODEL:-org/model}" --config config.yaml "${ARGS[@]}" --block-size "$(nproc)" || exit 1
"""
MANIFEST = """
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - {name: a, image: 'vllm/vllm-openai:v0.33.0', command: [sh, -c], args: ['vllm serve m --max-num-seqs $N'],
           env: [{name: N, value: '8'}]}
        - {image: lmsysorg/sglang, args: [--model-path, m, --tp, $(N)], resources: {limits: {nvidia.com/gpu: 8}}}
services: {llm: {image: vllm/vllm-openai, command: --model m --max-num-seqs 8, environment: [A=1, B]}}
"""
RECIPE = """
model: {model_id: org/model, base_args: [--trust-remote-code, --max-num-seqs, '8'], base_env: {A: 1}}
features: {spec: {args: [--speculative-config, '{"method":"mtp"}'], modes: {a: {args: [-tp, '2'], variants: [default]}}, default_mode: a}}
opt_in_features: [spec]
variants:
  default: {precision: bf16}
  fp8: {model_id: m, tp: 4, extra_args: [--kv-cache-dtype, fp8], hardware_overrides: {amd: {extra_env: {B: 1}}}}
hardware_overrides: {amd: {extra_args: [--block-size, 16], extra_env: {C: '1'}}}
strategy_overrides: {single_node_tep: {tp: 2}}
compatible_strategies: [single_node_tp, single_node_tep]
"""
FLAGS = "model: m\ntensor_parallel_size: 4\nmax-num-seqs: 64\nspeculative-config: {method: mtp}\n"
FLAGS += "no-enable-prefix-caching: true\nblock_size: 16\n"
PAGE = f"# A page\n\n```bash\n{COMMAND}```\n\n## Other\n\n```sh\nvllm serve <your model> --max-num-seqs 8 \\\n  ...\n```\n"
LAUNCHES = {
    "command": (" =", COMMAND),
    "script": (" ;", SCRIPT),
    "manifest": ("yaml", MANIFEST),
    "recipe": ("yaml", RECIPE),
    "flags": ("yaml", FLAGS),
    "page": (" `", PAGE),
}
"""Form of mutation, see `mutate`, and a good input."""


def read_launches(path: Path) -> None:
    """Both engines, the whole file and one of its parts."""
    from autoscout.backends.sglang.backend import SglangBackend
    from autoscout.backends.vllm.backend import VllmBackend
    from autoscout.core.errors import AutoScoutError

    text = path.read_bytes().decode("utf-8", "replace")
    refusal: AutoScoutError | None = None
    for backend in (VllmBackend(), SglangBackend()):
        for name in ("FILE", "FILE#1", "FILE#fp8+amd+spec+single_node_tep"):
            try:
                launch = backend.read_launch(text, name)
            except AutoScoutError as error:
                refusal = refusal or error
                continue
            if not all(isinstance(value, (int, float, str, type(None))) for value in launch.knobs.values()):
                raise RuntimeError(f"a value of a knob is no value: {launch.knobs}")
            if not all(type(value) is str for value in launch.workload.get("env", {}).values()):
                raise RuntimeError("a variable is no text")
    if refusal is not None:
        raise refusal


__all__ = ["LAUNCHES", "read_launches"]
