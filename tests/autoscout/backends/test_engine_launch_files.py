"""Files in which people write down how they start vLLM and SGLang."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_engine_launch import sglang, vllm

from autoscout.core.errors import ConfigError

KNOBS = {"tensor_parallel_size": 4, "max_num_seqs": 64}

COMPOSE = """
x-common: &common
  restart: always
services:
  web:
    image: nginx
  llm:
    <<: *common
    image: vllm/vllm-openai:v0.32.0
    environment: [HF_TOKEN, VLLM_USE_DEEP_GEMM=0]
    command: >
      --model org/model --tensor-parallel-size ${TP:-4}
      --max-num-seqs 64
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 8, capabilities: [gpu]}]}}}
"""
DEPLOYMENT = """
apiVersion: v1
kind: Service
metadata: {name: llm}
spec: {ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
      - name: server
        image: vllm/vllm-openai:v0.33.0
        command: [/bin/sh, -c]
        args:
        - |
          vllm serve org/model --tensor-parallel-size $TP \\
            --max-num-seqs 64
        env:
        - {name: TP, value: "4"}
        - {name: VLLM_USE_DEEP_GEMM, value: "0"}
        - name: HF_TOKEN
          valueFrom: {secretKeyRef: {name: hf, key: token}}
        resources: {limits: {nvidia.com/gpu: "8"}}
"""
LEADER = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
        - {name: leader, image: registry.local/team/serving:7,
           command: [vllm, serve, org/model, "--tensor-parallel-size", "$(TP)", --max-num-seqs=64],
           env: [{name: TP, value: "4"}, {name: VLLM_USE_DEEP_GEMM, value: "0"}]}
    workerTemplate:
      spec: {containers: [{name: worker, image: registry.local/team/serving:7, command: [ray, start]}]}
"""
KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llm}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llm, --model_id=org/model, --tensor-parallel-size=4, --max-num-seqs=64]
      env: [{name: VLLM_USE_DEEP_GEMM, value: "0"}]
"""
SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
export VLLM_USE_DEEP_GEMM=0   # as the recipe says
TP=${TP:-4}
ARGS=(--max-num-seqs 64)
if [ "$TP" -gt 8 ]; then ARGS+=(--pipeline-parallel-size 2); fi
echo "starting"
vllm serve "${MODEL:-org/model}" --port "$PORT" \\
    --tensor-parallel-size "$TP" "${ARGS[@]}" > server.log 2>&1 &
"""
PAGE = """# Run it

```python
print("vllm serve other")
```

## On four GPUs

```bash
# starts in a minute
VLLM_USE_DEEP_GEMM=0 vllm serve org/model -tp 4 --max-num-seqs 64
```
"""


@pytest.mark.parametrize(
    "text", [COMPOSE, DEPLOYMENT, LEADER, KSERVE, SCRIPT, PAGE], ids=["compose", "deployment", "leader", "kserve", "script", "page"]
)
def test_where_people_write_it_down(text: str) -> None:
    launch = vllm(text, "FILE")
    assert launch.knobs == KNOBS
    assert launch.workload["model"] == "org/model"
    assert launch.workload["env"] == {"VLLM_USE_DEEP_GEMM": "0"}


def test_what_a_file_says_besides_flags() -> None:
    launch = vllm(COMPOSE, "compose.yaml")
    assert launch.hardware == {"gpus": 8}
    assert launch.workload["engine_version"] == "0.32.0"  # none is installed here
    assert any("v0.32.0 is not started" in sentence for sentence in launch.left_out)
    assert any(sentence.startswith("HF_TOKEN") for sentence in launch.left_out)
    assert vllm(DEPLOYMENT, "d.yaml").hardware == {"gpus": 8}


def test_a_file_of_flags(tmp_path: Path) -> None:
    flags = "model: org/model\ntensor_parallel_size: 4\nmax-num-seqs: 64\nport: 80\n"
    flags += "no-enable-prefix-caching: true\nspeculative-config:\n  method: mtp\n"
    launch = vllm(flags, "config.yaml")
    assert launch.knobs == {**KNOBS, "enable_prefix_caching": False, "speculative_method": "mtp"}
    path = tmp_path / "config.yaml"
    path.write_text(flags)
    launch = vllm(f"vllm serve --config {path} --max-num-seqs 32")
    assert (launch.workload["model"], launch.knobs["max_num_seqs"], launch.knobs["tensor_parallel_size"]) == ("org/model", 32, 4)


def test_a_script_with_variables_before_it(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(SCRIPT)
    launch = vllm(f"TP=16 MODEL=m bash {path}")
    assert launch.workload["model"] == "m"
    assert launch.knobs == {"tensor_parallel_size": 16, "pipeline_parallel_size": 2, "max_num_seqs": 64}
    (tmp_path / "guard.sh").write_text('if [ "$CONC" != 8 ]; then exit 1; fi\nvllm serve m')
    with pytest.raises(ConfigError, match=r"ends before it starts vLLM .*\(CONC\)"):
        vllm(f"CONC=4 {tmp_path}/guard.sh")


def test_what_a_script_leaves_open_is_said() -> None:
    launch = vllm('if [ "$MODE" = fast ]; then X=1; fi\nvllm serve m --max-num-seqs $SEQS --block-size $(nproc) --max-model-len 8k')
    assert launch.workload == {"model": "m", "max_model_len": 8000}
    assert launch.left_out == (
        "MODE is not set and is read as empty: write MODE=... before the command.",
        "--max-num-seqs is not read: SEQS is not set: write SEQS=... before the command, or give --set max_num_seqs=VALUE.",
        "--block-size is not read: $(nproc) is computed when it runs, or give --set block_size=VALUE.",
    )
    assert any("model is not read" in sentence for sentence in vllm("vllm serve $MODEL").left_out)


def test_several_launches_are_named() -> None:
    text = "vllm serve a\nvllm serve b --max-num-seqs 8\n"
    with pytest.raises(ConfigError, match=r"holds 2 launches.*FILE#1"):
        vllm(text, "FILE")
    assert vllm(text, "FILE#2").knobs == {"max_num_seqs": 8}
    page = "## Small\n```\nvllm serve a\n```\n## Large\n```\nvllm serve b\n```\n"
    assert vllm(page, "README.md#Large").workload["model"] == "b"
    with pytest.raises(ConfigError, match=r"no launch of that name.*1: Small, 2: Large"):
        vllm(page, "README.md#Other")


RECIPE = """
meta: {title: A model}
model: {model_id: org/model, base_args: [--trust-remote-code], base_env: {A: "1"}}
features:
  tools: {args: [--enable-auto-tool-choice, --tool-call-parser, hermes]}
  spec: {args: [--speculative-config, '{"method":"mtp","num_speculative_tokens":3}']}
opt_in_features: [spec]
variants:
  default: {precision: bf16}
  fp8: {model_id: org/model-FP8, tp: 4, extra_args: [--kv-cache-dtype, fp8], extra_env: {B: 2}}
hardware_overrides: {amd: {extra_args: [--attention-backend, ROCM_AITER_FA], extra_env: {VLLM_ROCM_USE_AITER: "1"}}}
strategy_overrides: {}
compatible_strategies: [single_node_tp, single_node_tep]
"""


def test_a_recipe() -> None:
    launch = vllm(RECIPE, "model.yaml")
    assert launch.workload["model"] == "org/model"
    assert launch.workload["env"] == {"A": "1"}
    assert launch.knobs == {}
    assert launch.left_out == ("The recipe also has fp8, spec, amd: name what you run, such as model.yaml#fp8+spec.",)
    launch = vllm(RECIPE, "model.yaml#fp8+spec+amd+single_node_tep")
    assert launch.workload["model"] == "org/model-FP8"
    assert launch.workload["env"] == {"A": "1", "B": "2", "VLLM_ROCM_USE_AITER": "1"}
    assert launch.knobs == {
        "kv_cache_dtype": "fp8",
        "attention_backend": "ROCM_AITER_FA",
        "enable_expert_parallel": True,
        "tensor_parallel_size": 4,
        "speculative_method": "mtp",
        "num_speculative_tokens": 3,
    }
    with pytest.raises(ConfigError, match="no such variant, feature, strategy or hardware"):
        vllm(RECIPE, "model.yaml#fp4")
    with pytest.raises(ConfigError, match="vLLM-Omni"):
        vllm(RECIPE + "omni: {tasks: []}\n", "model.yaml")


def test_sglang_says_some_things_in_two_ways() -> None:
    launch = sglang("sglang serve --model-path m --tp 8 --dp 8 --enable-dp-attention --cuda-graph-max-bs 256 --nsa-prefill-backend trtllm")
    assert launch.knobs["attn_dp_size"] == 8
    assert "dp_size" not in launch.knobs
    assert launch.hardware == {"gpus": 8}
    assert any("--attn-dp-size" in sentence for sentence in launch.left_out)
    assert any("--cuda-graph-max-bs-decode" in sentence for sentence in launch.left_out)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)),
        "services: " + "[" * 500,
        "model: " + "{a: " * 200,
        "vllm serve " + "x" * 500_000,
        "\x00\x01\x02vllm serve m",
        "---\n" * 300 + "\n".join("---\na: 1" for _ in range(300)),
        "vllm serve m " + " ".join(f"--nope-{n}" for n in range(3000)),
        "vllm serve m " + "--max-num-seqs " * 3000,
    ],
)
def test_hostile_files_end_with_one_bounded_error(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        vllm(text, "FILE")
    assert len(str(error.value)) < 21_000


def test_a_unit_of_systemd() -> None:
    unit = "[Service]\nEnvironment=VLLM_USE_DEEP_GEMM=0\nExecStart=/opt/venv/bin/vllm serve org/model \\\n  -tp 4 --max-num-seqs 64\n"
    launch = vllm(unit, "llm.service")
    assert (launch.knobs, launch.workload["env"]) == (KNOBS, {"VLLM_USE_DEEP_GEMM": "0"})
