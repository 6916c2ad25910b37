"""Good input of every kind, short: what the fuzzer begins from."""

from __future__ import annotations

import json

SPACE = """
facts: {gpus: 8, layers: 32}
knobs:
  tp: {values: [1, 2, 4, 8], sparse: true}
  sp: {type: bool, when: tp > 1}
  x: {range: [1, 512], log: true, when: tp < gpus, default: 25, unit: MB}
  lr: {range: [0.1, 0.9], step: 0.1}
  p: {range: [1, 100], points: 5}
  kind: [a, b, c]
constraints:
  - layers % tp == 0
  - {rule: tp <= gpus and x < 500, why: no more ranks than devices, strict: true}
"""
AMONG = "knobs: {k: [1, 2], s: [a, b]}\namong: [{k: 1, s: a}, {k: 2, s: b}]\n"
CAMPAIGN = """
system: command
name: numbers
workload:
  command: 'echo {x} {y:flag} [--z {z|3}]'
  env: {OMP: '{x}'}
  files: {a.json: {n: $x}, b.txt: 'x={x}'}
  metrics: {score: {regex: 'score ([0-9.]+)'}, t: wall, n: 'json:a.b'}
  checks: [{expression: score >= 0}]
  resources: {cpus: 1, gpus: 'x - x', memory_gb: 1}
  limit_s: 5
goal: {metric: score, direction: minimize, slo: ['score<=500']}
budget: {trials: 6, wall: 10m}
space: {knobs: {x: {range: [0, 5], default: 0}, y: {range: [0, 3]}, z: {type: bool, when: x > 1}}, constraints: [x + y < 7]}
set: {y: 1}
first: [{x: 2}]
search: {searcher: random, seed: 1}
measure: {limit: 90s, repeats: 1}
hardware: {gpus: 8}
"""
FRONT = """
system: command
workload: {command: 'echo {x}', metrics: {score: {regex: 'score ([0-9.]+)'}, t: wall}}
goal: {metrics: ['score:maximize', t], guards: ['t<=1.2x']}
space: {knobs: {x: {range: [0, 5], default: 0}}}
"""
CALIBRATION = "kind: {kind}\nname: mine\nspread: 0.3\nrows: 4\nmape: 0.1\nmade_from: table\nconstants: {{}}\nmodels: [a]\ngpus: [b]\n"
GPUS = "gpus:\n  MyGPU: {bf16_tflops: 100, memory_gb: 80, memory_gbps: 2000, node_gpus: 8, aliases: [mine], measured: once}\n"
MODEL = json.dumps(
    {"model_type": "x", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "num_local_experts": 4}
    | {"num_experts_per_tok": 2, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "text_config": {"x": 1}}
)
TUNING = json.dumps({"zero": {"stage": [0, 1, 2], "bucket": [1e6, 5e6], "on": [True, False]}, "batch": ["$N", 8], "fixed": 3})
SWEEPS = [
    json.dumps([{"max_num_seqs": 64, "eager": True}, {"max_num_seqs": 128, "eager": False}]),
    json.dumps({"a": {"n": 1}, "b": {"n": 2, "m": {"k": [1, 2]}}}),
]
T4 = json.dumps(
    {
        "schema_version": "1.0.0",
        "results": [
            {
                "configuration": {"x": x, "kind": kind},
                "objectives": ["time"],
                "invalidity": "correct",
                "correctness": 1,
                "times": {"runtimes": [1.0]},
                "measurements": [{"name": "time", "value": x * 1.5, "unit": "ms"}],
            }
            for x in (1, 2, 4)
            for kind in ("a", "b")
        ],
    }
)
TRACES = {
    "plain": "job_id,submit_time,duration,gpus,user\na,0,5,1,u\nb,2017-10-01 00:00:00,5,0.5,v\nc,3,1e2,8,u\n",
    "philly": "timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:10,100,2,vc1\n2017-10-01 00:00:00,50,1,vc2\n",
    "helios": "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n1,u,v,n,2,4,COMPLETED,2020-04-01 00:00:00,10\n",
    "acme": "job_id,user,node_num,gpu_num,type,state,submit_time,duration\n1,u,1,8,t,COMPLETED,2023-01-01 00:00:00+08:00,10\n",
    "alibaba": "name,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "a,1,500,LS,Running,0,10,1\nb,2,1000,BE,X,1,9,\n",
    "sacct": "JobID|User|Partition|Submit|Start|End|State|ReqTRES|Timelimit\n1|u|p|2024-01-01T00:00:00|2024-01-01T00:01:00|"
    "2024-01-01T01:00:00|COMPLETED|cpu=4,gres/gpu:a100=2|1-00:00:00\n",
}
LOG = json.dumps(
    [
        {
            "jobid": "a",
            "submitted_time": "2017-10-01 00:00:00",
            "user": "u",
            "vc": "v",
            "status": "Pass",
            "attempts": [{"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:01:00", "detail": [{"ip": "m", "gpus": ["g0"]}]}],
        }
    ]
)
NODES = ["vc,nodes,gpus_per_node,kind,speed\na,3,8,V100,1.0\nb,1,4,,0.5\n", "sn,gpu,model\nn1,8,V100\nn2,4,T4\n"]
EXPRESSIONS = [
    "a + 2 * b <= 8 and not (c == 'x')",
    "a in (1, 2, 3) or `b` ** 2 % 3 == 1",
    "min(a, b) // 2 if a > 1 else max(b, 3)",
    "abs(a - b) < 1.5e3",
]
TEMPLATES = [
    "run --x {x} {y:flag} [--z {z}] '{s}' \"{s|none}\" {x:04d} {f:.2f} {flags} > {folder}/out",
    "a {y:switch=--fast} {{x}} ${HOME} {port}",
]
FLAGS = ["threads=2", "a.b.c=[1, 2]", "gpus=8xA100-80", "x=.5", "limit=p95_ttft_ms<=500", "on=true", "m={a: 1}"]
TRAINING = "model,gpu,n_gpus,seq,gbs,tp,pp,iter_ms,peak_mem_gib\nllama-3.1-8b,A100-80,8,4096,64,2,1,1200,40\n"
TRAINING += "llama-3.1-8b,A100-80,8,4096,64,4,1,1500,\n"
FIELDS = "model: {layers: 2, hidden: 64, heads: 4, experts: 2, active_experts: 1, vocab: 9}\n"
FIELDS += "hardware: {gpus: 8, gpu: A100-80, nic_gbps: 2}\n"
SERVING = (
    "model_path,system,backend,isl,osl,batch_size,concurrency,tp_size,silicon_tpot_ms,silicon_ttft_ms\n"
    "Qwen/Qwen3-8B,h100_sxm,vllm,1024,128,8,8,1,9.5,120\n"
)
REQUESTS = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    "arrival_time,input_tokens,output_tokens\n0.0,12,3\n1.5,20,0\n",
]
REQUEST_LINES = '{"timestamp": 0, "input_length": 675, "output_length": 5, "hash_ids": [0, 1]}\n'
REQUEST_LINES += '{"timestamp": 3000, "input_length": 700, "output_length": 7, "hash_ids": [0, 2]}\n'
TALKS = json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "because " * 4}]}])
PLAN = json.dumps(
    {
        "serve": ["program", "--port", "{port}"],
        "model": "m",
        "load": {"workload": "random", "input_tokens": 32, "output_tokens": 8, "concurrency": 4, "requests": 16},
        "goal": {"kind": "capacity", "slo": ["p95_ttft_ms<=500"]},
        "check": {"prompts": 2, "reference": {"key": "k", "serve": ["program", "{port}"]}},
    }
)
_DETAILS = {"ttfts": [0.1, 0.2], "itls": [[0.01, 0.02], [0.01]], "input_lens": [8, 9], "output_lens": [3, 2], "errors": ["", ""]}
_NUMBERS = {"mean": 1.0, "median": 1.0, "total_sum": 9.0, "percentiles": {"p50": 1.0, "p90": 2.0, "p95": 2.5, "p99": 3.0}}
_NAMES = ("output_tokens_per_second", "tokens_per_second", "requests_per_second", "prompt_token_count", "output_token_count")
_NAMES += ("time_to_first_token_ms", "inter_token_latency_ms", "request_latency")
_AVERAGES = ("output_token_throughput", "request_throughput", "request_count", "total_osl", "total_isl", "time_to_first_token")
CLIENTS = {
    "vllm": json.dumps({**_DETAILS, "duration": 1.5}),
    "guidellm": json.dumps(
        {"benchmarks": [{"metrics": {"request_totals": {"successful": 2, "errored": 0}, **{n: {"successful": _NUMBERS} for n in _NAMES}}}]}
    ),
    "aiperf": json.dumps({name: {"avg": 2.0, "p50": 2.0, "p95": 3.0} for name in _AVERAGES}),
}
RESULTS = [
    json.dumps({"metrics": {"step_ms": 3.5, "peak_mem_gib": 1.0}, "samples": {"step_ms": [3.4, 3.6]}, "spent": {"starting_s": 2.0}}),
    json.dumps({"metrics": {"output_throughput": 3.5}, "bounds": {"output_throughput": 4.0}, "samples": {"tpot_ms": [1.0]}, "reason": "x"}),
    json.dumps({"failure": "ended", "reason": "gone", "returncode": -9, "stage": "starting", "spent": {"starting_s": 2.0}}),
]
ENGINE = "model: llama-3.1-8b\nworkload: random\ninput_tokens: 32\noutput_tokens: [8, 16]\nconcurrency: 4\nrequests: 16\n"
ENGINE += "engine_args: {seed: 1, enforce_eager: true}\nfree: [block_size]\nmax_model_len: 2048\n"
