"""For the tests of `llama-server` programs: Debian's real one where it is unpacked, and what a build with GPUs would say of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SERVER = Path(os.environ.get("AUTOSCOUT_LLAMA_SERVER", str(ROOT / ".venv-llama-server" / "llama-server")))
needs_server = pytest.mark.skipif(not SERVER.exists(), reason=f"no {SERVER}: `make test-llama-server` unpacks it")

GPU_HELP = """\
----- common params -----

-t,    --threads N                      number of CPU threads (default: -1)
-tb,   --threads-batch N                threads for prompts (default: same as --threads)
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
-b,    --batch-size N                   logical maximum batch size (default: 2048)
-ub,   --ubatch-size N                  physical maximum batch size (default: 512)
-fa,   --flash-attn [on|off|auto]       use Flash Attention ('on', 'off', or 'auto', default: 'auto')
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, q8_0
                                        (default: f16)
-ctv,  --cache-type-v TYPE              KV cache data type for V
                                        allowed values: f32, f16, q8_0
                                        (default: f16)
-ot,   --override-tensor <tensor name pattern>=<buffer type>,...
                                        override tensor buffer type
-cmoe, --cpu-moe                        keep all expert weights in the CPU
-ncmoe, --n-cpu-moe N                   keep the expert weights of the first N layers in the CPU
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
-sm,   --split-mode {none,layer,row}    how to split the model across multiple GPUs
-ts,   --tensor-split N0,N1,N2,...      fraction of the model to offload to each GPU
-mg,   --main-gpu INDEX                 the GPU to use (default: 0)
-fit,  --fit [on|off]                   whether to adjust unset arguments to fit in device memory (default: 'on')
--op-offload, --no-op-offload           whether to offload host tensor operations to device (default: true)
--list-devices                          print list of available devices and exit
-m,    --model FNAME                    model path to load
                                        (env: LLAMA_ARG_MODEL)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        single unified KV buffer (default: enabled if number of slots is auto)
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
                                        (env: LLAMA_ARG_N_PARALLEL)
-cb,   --cont-batching, -nocb, --no-cont-batching
                                        continuous batching (default: enabled)
--host HOST                             ip address to listen (default: 127.0.0.1)
--port PORT                             port to listen (default: 8080)
"""


def gpu_program(folder: Path, fit: str = "", gpus: int = 2) -> Path:
    """A program that says of itself what a build for CUDA says on a machine with GPUs; it serves nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "help.txt").write_text(GPU_HELP)
    devices = "".join(f"  CUDA{number}: NVIDIA RTX 4090 (24564 MiB, 24100 MiB free)\\n" for number in range(gpus))
    (folder / "llama-server").write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"  *--help*) cat '{folder}/help.txt' ;;\n"
        "  *--version*) echo 'version: 6543 (abc1234)' >&2 ;;\n"
        f"  *--list-devices*) printf 'Available devices:\\n{devices}' ;;\n"
        "  *) echo 'system_info: n_threads = 8 | CUDA : ARCHS = 890 | CPU : AVX2 = 1 | OPENMP = 1 |' >&2; exit 1 ;;\n"
        "esac\n"
    )
    programs = [folder / "llama-server"]
    if fit:
        (folder / "llama-fit-params").write_text(f"#!/bin/sh\necho 'printing fitted CLI arguments to stdout...' >&2\necho '{fit}'\n")
        programs.append(folder / "llama-fit-params")
    for program in programs:
        program.chmod(0o755)
    return folder / "llama-server"
