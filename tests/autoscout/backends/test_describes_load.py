from __future__ import annotations

import sys

import pytest

from autoscout.backends.command import CommandBackend


def test_a_program_and_a_server_are_told_apart() -> None:
    space = {"knobs": {"x": {"range": [1, 4]}}}
    program = CommandBackend().task({"workload": {"command": f"{sys.executable} job.py {{x}}"}, "space": space})
    assert "The program itself" in CommandBackend().load(program)
    assert "job.py" in CommandBackend().load(program)
    pair = {"serve": f"{sys.executable} server.py {{x}} {{port}}", "bench": f"{sys.executable} client.py {{port}}"}
    server = CommandBackend().task({"workload": pair, "space": space})
    assert "on the same machine" in CommandBackend().load(server)
    assert "client.py" in CommandBackend().load(server)


def test_clients_of_llama_cpp_are_described() -> None:
    pytest.importorskip("xllamacpp", reason="needs the engine")
    from autoscout.backends.llamacpp import LlamaCppBackend

    backend = LlamaCppBackend()
    description = backend.load(backend.task({"workload": {"model": "random-tiny", "concurrency": 3}}))
    assert "client on the same machine over HTTP" in description
    assert "3 requests in flight" in description
