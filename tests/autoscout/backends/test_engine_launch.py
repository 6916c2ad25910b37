"""Commands in which people start vLLM and SGLang today, read into workload and knobs."""

from __future__ import annotations

import pytest

from autoscout.backends.sglang.backend import SglangBackend
from autoscout.backends.vllm.backend import VllmBackend
from autoscout.core.errors import ConfigError
from autoscout.core.user import UserLaunch


def vllm(text: str, name: str = "--from") -> UserLaunch:
    return VllmBackend().read_launch(text, name)


def sglang(text: str, name: str = "--from") -> UserLaunch:
    return SglangBackend().read_launch(text, name)


def test_a_command_becomes_workload_and_knobs() -> None:
    launch = vllm(
        "VLLM_USE_DEEP_GEMM=0 vllm serve org/model -tp 8 --max_num_seqs 256 --kv-cache-dtype=fp8 --max-model-len 32k "
        "--linear-backend cutlass "
        "--no-enable-prefix-caching -O3 --async-scheduling --cudagraph-capture-sizes 1 2 4 # as in production"
    )
    assert launch.workload == {
        "model": "org/model",
        "max_model_len": 32000,
        "engine_args": {"cudagraph_capture_sizes": [1, 2, 4]},
        "env": {"VLLM_USE_DEEP_GEMM": "0"},
    }
    assert launch.hardware == {"gpus": 8}  # this machine has fewer
    assert launch.knobs == {
        "tensor_parallel_size": 8,
        "max_num_seqs": 256,
        "kv_cache_dtype": "fp8",
        "enable_prefix_caching": False,
        "optimization_level": 3,
        "async_scheduling": True,
        "linear_backend": "cutlass",
    }
    assert not launch.left_out


def test_values_inside_json_are_knobs_of_their_own() -> None:
    launch = vllm(
        """vllm serve m --speculative-config '{"method": "mtp", "num_speculative_tokens": 1, "use_local_argmax_reduction": true}' """
        """--compilation-config.cudagraph_mode FULL_AND_PIECEWISE -cc.pass_config.fuse_allreduce_rms=true """
        """--attention_config.use_fp4_indexer_cache=True"""
    )
    assert launch.knobs == {
        "speculative_method": "mtp",
        "num_speculative_tokens": 1,
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "fuse_allreduce_rms": True,
    }
    assert launch.workload["engine_args"] == {
        "speculative_config": {"use_local_argmax_reduction": True},
        "attention_config": {"use_fp4_indexer_cache": True},
    }


def test_sglang_in_its_spellings() -> None:
    launch = sglang(
        "nohup python3 -m sglang.launch_server --model-path=m --tp 4 --data-parallel-size 2 --ep 4 --mem-fraction-static .85 "
        "--enable-hicache "
        "--disable-radix-cache --host 0.0.0.0 --port 30000 --trust-remote-code > server.log 2>&1 &"
    )
    assert launch.knobs == {
        "tp_size": 4,
        "dp_size": 2,
        "ep_size": 4,
        "mem_fraction_static": 0.85,
        "enable_hierarchical_cache": True,
        "disable_radix_cache": True,
    }
    assert launch.workload == {"model": "m", "engine_args": {"trust_remote_code": True}}
    assert launch.hardware == {"gpus": 8}
    assert launch.left_out == ("--host and --port change no speed: every trial has its own address.",)


@pytest.mark.parametrize(
    "text",
    [
        "python -m vllm.entrypoints.openai.api_server --model m --max-num-seqs 8",
        "python3 -m vllm.entrypoints.cli.main serve m --max-num-seqs 8",
        "/opt/venv/bin/vllm serve m \\\n  --max-num-seqs=8 \\\n",
        "cd /srv && exec numactl -N 0 vllm serve --model m --max-num-seqs 8 2>&1 | tee log",
        "srun --gres=gpu:1 uv run vllm serve m --max-num-seq 8",
        "docker run --gpus all --ipc=host -p 8000:8000 -v ~/.cache:/root/.cache vllm/vllm-openai:v0.33.0 --model m --max-num-seqs 8",
        "podman run --rm -it --device nvidia.com/gpu=all --entrypoint vllm ghcr.io/a/b:c serve m --max-num-seqs 8",
        "docker exec -it llm vllm serve m --max-num-seqs 8",
        "kubectl exec -it pod -- vllm serve m --max-num-seqs 8",
        "sudo -E -u llm vllm serve m --max-num-seqs 8 &",
        "screen -dmS vllm vllm serve m --max-num-seqs 8",
        "tmux new-session -d -s llm 'vllm serve m --max-num-seqs 8'",
        "ssh gpu1 'cd /srv && nohup vllm serve m --max-num-seqs 8 > log 2>&1 &'",
        "sbatch --gpus 4 --wrap='vllm serve m --max-num-seqs 8'",
        "conda run -n vllm --no-capture-output vllm serve m --max-num-seqs 8",
        "apptainer exec --nv vllm.sif vllm serve m --max-num-seqs 8",
        "$ export A=1\n$ vllm serve m \\\n>   --max-num-seqs 8\n",
    ],
)
def test_how_people_write_it(text: str) -> None:
    launch = vllm(text)
    assert launch.workload["model"] == "m"
    assert launch.knobs == {"max_num_seqs": 8}


@pytest.mark.parametrize("text", ["uv run --with 'vllm[audio]==0.24.0' -- vllm serve m", "uvx vllm@0.24.0 serve m"])
def test_a_version_that_is_asked_for(text: str) -> None:
    launch = vllm(text)
    assert launch.workload == {"model": "m", "engine_version": "0.24.0"}, "no variable `vllm` is set"


def test_keys_that_a_version_does_not_have_are_passed_on_and_said() -> None:
    """vLLM 0.33 ends with them; recipes of other versions have them."""
    launch = vllm("""vllm serve m -ac '{"use_fp4_indexer_cache": true, "indexer_kv_dtype": "fp8"}' -cc.pass_config.fuse_act_padding=true""")
    assert launch.workload["engine_args"]["attention_config"]["use_fp4_indexer_cache"] is True
    (sentence,) = launch.left_out
    assert sentence.startswith("--attention-config: vllm 0.33.0 has no use_fp4_indexer_cache.")


def test_a_backslash_that_is_missing_is_said() -> None:
    launch = vllm("vllm serve m \\\n  # limits\n  --max-num-seqs 8")
    assert launch.knobs == {}, "a shell starts vLLM without it"
    assert launch.left_out == (
        "--max-num-seqs begins a command of its own and is not read: the line before it does not end with a backslash.",
    )


@pytest.mark.parametrize(
    ("name", "advice"), [("from", "Give the one that you mean alone"), ("serve.sh", "such as serve.sh#1. It holds 1, 2")]
)
def test_of_two_launches_one_is_asked_for(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match="holds 2 launches") as error:
        vllm("vllm serve m & vllm serve n; wait", name)
    assert str(error.value).endswith(advice)


def test_what_is_not_read_names_its_knob() -> None:
    (sentence,) = vllm("vllm serve m -tp $TP").left_out
    assert sentence.endswith("or give --set tensor_parallel_size=VALUE.")


def test_secrets_inside_values_are_kept_nowhere() -> None:
    config = """'{"kv_connector": "x", "kv_connector_extra_config": {"access_key": "hunter2"}}'"""
    launch = vllm(f"vllm serve s3://me:hunter2@store/m --otlp-traces-endpoint http://me:hunter2@host:1 --kv-transfer-config {config}")
    assert "hunter2" not in repr(launch)
    assert len(launch.left_out) == 3
    assert "engine_args" not in launch.workload


def test_counts_of_tokens_are_no_secrets() -> None:
    launch = sglang(
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256 TOKENIZERS_PARALLELISM=false python -m sglang.launch_server --model m"
    )
    assert launch.workload["env"] == {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "256", "TOKENIZERS_PARALLELISM": "false"}


def test_a_flag_like_no_other() -> None:
    with pytest.raises(ConfigError) as error:
        vllm("vllm serve m --zzzzzzzz 3")
    assert str(error.value).endswith("vllm 0.33.0 has no such flag. Check its spelling, or leave it out")


def test_secrets_are_kept_nowhere() -> None:
    launch = vllm("HF_TOKEN=hf_abc http_proxy=http://me:hf_abc@proxy:80 vllm serve m --api-key sk-123 --hf-token hf_def")
    assert not any(secret in repr(launch) for secret in ("hf_abc", "sk-123", "hf_def"))
    assert any("HF_TOKEN" in sentence for sentence in launch.left_out)
    assert any("--api-key" in sentence for sentence in launch.left_out)


def test_all_that_is_wrong_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        vllm("vllm serve m other --linear-backnd x --max-num-seqs many --speculative-config mtp --block-size", "serve.sh")
    text = str(error.value)
    assert "vllm 0.33.0 has no such flag" in text
    assert "--linear-backend" in text
    for part in ("'other'", "'many'", "takes a JSON object", "--block-size: needs a value", "serve.sh"):
        assert part in text


def test_a_flag_of_another_version_says_which() -> None:
    with pytest.raises(ConfigError, match=r"0\.24\.0 has it.*engine_version=0\.24\.0"):
        vllm("vllm serve m --override-attention-dtype bfloat16")


def test_no_command_and_no_text() -> None:
    for text in ("ls -l", "", "python -m other.server", "vllm bench serve --model m", "\0\0", "x" * 2_000_000):
        with pytest.raises(ConfigError) as error:
            vllm(text, "FILE")
        assert len(str(error.value)) < 500
