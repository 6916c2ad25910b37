"""The line of a log that tells why a program failed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscout.common.outcome import informative_line, plain_text

PYDANTIC = """\
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/opt/vllm/engine/arg_utils.py", line 1094, in create_model_config
(APIServer pid=7)     return ModelConfig(
(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=7)   Value error, max_model_len (999999) is greater than the derived one [type=value_error, input_value={'m': 1}]
(APIServer pid=7)     For further information visit https://errors.pydantic.dev/2.11/v/value_error
"""
PYDANTIC_FIELD = """\
pydantic_core._pydantic_core.ValidationError: 2 validation errors for Settings
batch
  Input should be greater than 0 [type=greater_than, input_value=0, input_type=int]
    For further information visit https://errors.pydantic.dev/2.11/v/greater_than
lr
  Field required [type=missing, input_value={}, input_type=dict]
"""
VLLM = """\
(EngineCore_0 pid=11) ERROR 11-16 09:15:55 [core.py:700] EngineCore failed to start.
(EngineCore_0 pid=11) ERROR 11-16 09:15:55 [core.py:700] Traceback (most recent call last):
(EngineCore_0 pid=11) ERROR 11-16 09:15:55 [core.py:700]   File "/opt/vllm/v1/core.py", line 691, in run
(EngineCore_0 pid=11) ERROR 11-16 09:15:55 [core.py:700]     raise ValueError(
(EngineCore_0 pid=11) ERROR 11-16 09:15:55 [core.py:700] ValueError: Block size 13 is not supported
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/opt/vllm/entry.py", line 12, in main
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
VLLM_WORKER = """\
(Worker pid=13) ERROR 11-16 15:34:01 [multiproc_executor.py:1063] WorkerProc failed to start.
(Worker pid=13) ERROR 11-16 15:34:01 [multiproc_executor.py:1063] Traceback (most recent call last):
(Worker pid=13) ERROR 11-16 15:34:01 [multiproc_executor.py:1063]     raise NotImplementedError(
(Worker pid=13) ERROR 11-16 15:34:01 [multiproc_executor.py:1063] NotImplementedError: FP8 KV cache on CPU requires x86 with AVX-512 or AMX.
(EngineCore pid=12) ERROR 11-16 15:34:01 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-16 15:34:01 [core.py:1510]     raise RuntimeError(
(EngineCore pid=12) ERROR 11-16 15:34:01 [core.py:1510] RuntimeError: Worker failed with error 'FP8', please check the stack trace above for
Traceback (most recent call last):
  File "/opt/vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""
VLLM_WORKER_ON_CPU = """\
(Worker pid=13) ERROR 11-17 03:56:52 [multiproc_executor.py:953] WorkerProc failed to start.
(Worker pid=13) ERROR 11-17 03:56:52 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=13) ERROR 11-17 03:56:52 [multiproc_executor.py:953]     raise ValueError(
(Worker pid=13) ERROR 11-17 03:56:52 [multiproc_executor.py:953] ValueError: Available memory on node 0 (9.19/11.21 GiB) is too little.
(EngineCore pid=12) ERROR 11-17 03:56:54 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-17 03:56:54 [core.py:1510]     raise e from None
(EngineCore pid=12) ERROR 11-17 03:56:54 [core.py:1510] Exception: WorkerProc initialization failed: See stack trace for root cause.
Traceback (most recent call last):
  File "/opt/vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
CUDA = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/train.py", line 3, in <module>
[rank0]:     loss.backward()
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
[rank0]:[W1116 09:15:55 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called
E1116 09:15:57.1 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0 (pid: 4) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
============================================================
"""
NCCL = """\
Traceback (most recent call last):
  File "/train.py", line 9, in <module>
    dist.all_reduce(x)
torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2251, unhandled system error, NCCL version 2.21.5
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:
socketStartConnect: Connect to 10.0.0.7<4000> failed : Connection refused
"""
ARGPARSE = """\
usage: server.py [-h] [--port PORT]
                 [--mode {a,b}]
server.py: error: argument --mode: invalid choice: 'c' (choose from 'a', 'b')
"""
RUST = """\
thread 'main' panicked at src/main.rs:4:10:
index out of bounds: the len is 3 but the index is 9
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
GO = """\
panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.main()
	/tmp/x.go:8 +0x1d
exit status 2
"""
ASSERTION = """\
Traceback (most recent call last):
  File "a.py", line 3, in <module>
    assert width % 8 == 0
           ^^^^^^^^^^^^^^
AssertionError
"""
HANDLED = """\
Traceback (most recent call last):
  File "a.py", line 2, in <module>
ModuleNotFoundError: No module named 'optional'
going on without it
usage: a.py [-h]
a.py: error: unrecognized arguments: --fast
"""
BAR = (
    "\x1b[32mloading\x1b[0m\r 10%|█    | 1/10 [00:01]\r100%|█████| 10/10 [00:09]\n"
    "\x1b]0;title\x07\x1b[31mweights.bin: No such file or directory\x1b[0m\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYDANTIC, "1 validation error for ModelConfig: Value error, max_model_len (999999) is greater than the derived one"),
        (PYDANTIC_FIELD, "2 validation errors for Settings: batch: Input should be greater than 0"),
        (VLLM, "ValueError: Block size 13 is not supported"),
        (VLLM_WORKER, "NotImplementedError: FP8 KV cache on CPU requires x86 with AVX-512 or AMX."),
        (VLLM_WORKER_ON_CPU, "ValueError: Available memory on node 0 (9.19/11.21 GiB) is too little."),
        (CUDA, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"),
        (
            NCCL,
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
            " socketStartConnect: Connect to 10.0.0.7<4000> failed : Connection refused",
        ),
        (ARGPARSE, "server.py: error: argument --mode: invalid choice: 'c' (choose from 'a', 'b')"),
        (RUST, "panicked at src/main.rs:4:10: index out of bounds: the len is 3 but the index is 9"),
        ("thread 'w' panicked at 'no luck', src/a.rs:2:5\n", "panicked at 'no luck', src/a.rs:2:5"),
        (GO, "panic: runtime error: index out of range [5] with length 3"),
        (ASSERTION, "AssertionError at `assert width % 8 == 0`"),
        (HANDLED, "a.py: error: unrecognized arguments: --fast"),
        (BAR, "weights.bin: No such file or directory"),
        ("sh: 1: nvcc: not found\n", "sh: 1: nvcc: not found"),
        ("2026-11-16 09:15:55 UTC FATAL:  data directory has wrong ownership\nHINT:  The server must be started by the owner\n",
         "2026-11-16 09:15:55 UTC FATAL: data directory has wrong ownership"),
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  no model\n",
         "terminate called after throwing an instance of 'std::runtime_error' what(): no model"),
        ("RuntimeError:\n\n  the second line says it\n", "RuntimeError: the second line says it"),
        ("one\ntwo\n\n", "two"),
        ("x.py:1: UserWarning: old\n  warnings.warn('old')\n", "x.py:1: UserWarning: old"),
        ("ready\n 40%|████      | 4/10\n", "ready"),
        ("", ""),
        ("\x1b[0m\n \r\n", ""),
    ],
)  # fmt: skip
def test_the_line_that_tells_why(text: str, expected: str) -> None:
    assert informative_line(text) == expected


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import argparse; p = argparse.ArgumentParser(prog='p'); p.add_argument('--n', type=int); p.parse_args(['--n', 'x'])",
         "p: error: argument --n: invalid int value: 'x'"),
        ("class Odd(Exception): pass\nraise Odd('what now')", "Odd: what now"),
        ("open('/no/such/place')", "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/place'"),
        ("try:\n  1/0\nexcept ZeroDivisionError as e:\n  raise ValueError('bad ratio') from e", "ValueError: bad ratio"),
        ("import pydantic\nclass M(pydantic.BaseModel):\n  n: int\nM(n='x')",
         "1 validation error for M: n: Input should be a valid integer, unable to parse string as an integer"),
    ],
)  # fmt: skip
def test_what_real_programs_say(program: str, expected: str) -> None:
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr
    assert informative_line(said.replace("__main__.", "")) == expected


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:\x1b[]0m\x07\r\n\t \\^{}Error\0é\u2028")))
def test_any_text_gives_one_clean_bounded_line(text: str) -> None:
    line = informative_line(text * 40)
    assert len(line) <= 300
    assert line.isprintable()
    assert "\x1b" not in plain_text(text)
