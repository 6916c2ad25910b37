"""The hand-over folder: started for real, asked something, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from llamacpp_running import PASSIVE, config_of, fixed_task, small_task

from autoscout.backends.llamacpp import LlamaCppBackend, backend, serve
from autoscout.backends.llamacpp.flags import server_arguments
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.core.config import Value
from autoscout.core.task import Task
from autoscout.load.plan import COMMAND

xllamacpp = pytest.importorskip("xllamacpp", reason="needs the extra llamacpp")

BACKEND = LlamaCppBackend()
GOLDEN = Path(__file__).parents[2] / "golden" / "llamacpp"


def hand_over(task: Task, folder: Path, **wanted: Value) -> Path:
    folder.mkdir()
    for name, text in BACKEND.export(config_of(task, **wanted), task).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


@contextmanager
def running(folder: Path, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`run.sh` with a free port, until it says where it listens."""
    everything = {**os.environ, **PASSIVE, "PORT": "0", **env}
    process = subprocess.Popen(
        [folder / "run.sh"],
        env=everything,
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background of a script has Ctrl-C switched off, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            match = re.search(r"on (http://\S+)", line)
            if match:
                yield process, match[1]
                break
        else:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
    finally:
        process.kill()
        process.communicate()


def post(url: str, data: dict[str, Any], key: str = "") -> Any:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(url, json.dumps(data).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def test_it_serves_and_stops(tmp_path: Path) -> None:
    task = small_task(tmp_path / "cache", allow_lossy=True)
    folder = hand_over(task, tmp_path / "best it's", parallel=2, cache_type_k="q8_0", pin_threads=True, weights="q5_0")
    with running(folder) as (process, url):
        answer = post(f"{url}/v1/completions", {"prompt": "bada kuno", "max_tokens": 5, "ignore_eos": True})
        assert answer["usage"]["completion_tokens"] == 5
        assert answer["choices"][0]["text"].strip()
        chat = post(f"{url}/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3})
        assert chat["choices"][0]["message"]["content"]
        with urllib.request.urlopen(f"{url}/slots", timeout=60) as slots:
            assert len(json.load(slots)) == 2, "the tuned number of slots"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_ctrl_c_stops_it(tmp_path: Path) -> None:
    with running(hand_over(small_task(tmp_path / "cache"), tmp_path / "best")) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_key_is_asked_for_when_set(tmp_path: Path) -> None:
    with running(hand_over(small_task(tmp_path / "cache"), tmp_path / "best"), LLAMA_API_KEY="sesame") as (_, url):
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(f"{url}/v1/completions", {"prompt": "bada", "max_tokens": 1})
        assert caught.value.code == 401
        caught.value.close()
        assert post(f"{url}/v1/completions", {"prompt": "bada", "max_tokens": 1}, key="sesame")["choices"]


def ended(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [folder / "run.sh"]
    return subprocess.run(
        command, env={**os.environ, **PASSIVE, "PORT": "0", **env}, capture_output=True, text=True, timeout=120, check=False
    )


def test_no_open_server_on_the_network(tmp_path: Path) -> None:
    done = ended(hand_over(small_task(tmp_path / "cache"), tmp_path / "best"), HOST="0.0.0.0")
    assert done.returncode == 2
    assert "LLAMA_API_KEY" in done.stderr


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    folder = hand_over(small_task(tmp_path / "cache"), tmp_path / "best")
    settings = json.loads((folder / "server.json").read_text())
    done = ended(folder, MODEL=str(tmp_path / "gone.gguf"), PYTHON=sys.executable)
    assert (done.returncode, "no such model file" in done.stderr) == (2, True)
    (folder / "server.json").write_text("{")
    assert (ended(folder).returncode, "did not start" in ended(folder).stderr) == (1, True)
    (folder / "server.json").write_text(json.dumps({**settings, "cache_type_v": "q4_0", "flash_attention": "off"}))
    assert "quantized V cache" in ended(folder).stderr


def test_the_model_is_made_again_when_the_cache_was_emptied(tmp_path: Path) -> None:
    folder = hand_over(small_task(tmp_path / "cache"), tmp_path / "best")
    assert not (tmp_path / "cache").exists()
    with running(folder) as (_, url):
        assert post(f"{url}/v1/completions", {"prompt": "bada", "max_tokens": 1})["choices"]


def test_the_folder_and_the_model_may_be_moved(tmp_path: Path) -> None:
    folder = hand_over(small_task(tmp_path / "cache"), tmp_path / "best")
    ensure_model("random-tiny", "q8_0", tmp_path / "cache").rename(tmp_path / "my model.gguf")
    (tmp_path / "cache").rename(tmp_path / "old cache")
    moved = folder.rename(tmp_path / "it's here")
    with running(moved, MODEL=str(tmp_path / "my model.gguf")) as (_, url):
        assert post(f"{url}/v1/completions", {"prompt": "bada", "max_tokens": 1})["choices"]
    assert not (tmp_path / "cache").exists()


def test_the_measurement_can_be_repeated(tmp_path: Path) -> None:
    folder = hand_over(small_task(tmp_path / "cache"), tmp_path / "best", parallel=2)
    done = subprocess.run(
        [folder / "bench_run.sh"], cwd=tmp_path, env={**os.environ, **PASSIVE}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "output_throughput" in done.stdout
    assert json.loads((tmp_path / "result.json").read_text())["metrics"]["output_throughput"] > 0


def test_variables_belong_to_the_configuration(tmp_path: Path) -> None:
    files = BACKEND.export(config_of(fixed_task(), omp_wait_policy="passive"), fixed_task())
    assert files["env"] == "OMP_WAIT_POLICY=passive\n"
    assert "export OMP_WAIT_POLICY=passive\n" in files["run.sh"]
    assert "env" not in BACKEND.export(config_of(fixed_task()), fixed_task())


def all_settings() -> dict[str, Any]:
    hardware = {"cores": 8, "numa_nodes": 2, "gpus": 2, "lockable_gb": 4.0}
    task = fixed_task(hardware, {"gpu_build": True, "openmp": False}, allow_lossy=True)
    wanted: dict[str, Value] = {"parallel": 4, "pin_threads": True, "numa": "isolate", "gpu_layers": "all"}
    settings = json.loads(BACKEND.export(config_of(task, **wanted), task)["server.json"])
    return {**settings, "swa_full": True}


def test_flags_are_those_of_the_engine() -> None:
    """The wheel carries llama.cpp's own table of flags, so a flag that was renamed is noticed here."""
    settings = all_settings()
    flags = {word for word in server_arguments(settings) if word.startswith("--")}
    switches = [name for name, value in settings.items() if isinstance(value, bool)]
    flags |= {word for word in server_arguments({**settings, **dict.fromkeys(switches, False)}) if word.startswith("--")}
    library = Path(sys.modules["xllamacpp.xllamacpp"].__file__ or "").read_bytes()
    assert len(flags) > 25
    assert [flag for flag in sorted(flags) if flag.encode() + b"\x00" not in library] == []
    assert xllamacpp.__version__


def test_rendered_files_are_as_recorded(monkeypatch: pytest.MonkeyPatch, check_recorded: Callable[[Path, str], None]) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(backend, "COMMAND", ("/usr/bin/python3", *COMMAND[1:]))
    monkeypatch.setattr(serve, "__file__", "/usr/lib/autoscout/serve.py")
    task = fixed_task(cache_dir="/var/cache/autoscout")
    config = config_of(task, parallel=8, omp_wait_policy="passive", kv_unified=True)
    launch = BACKEND.render(config, task, seed=1)
    rendered = {f"launch.{name}": text for name, text in launch.files.items()}
    rendered["launch.txt"] = "\n".join([launch.name, " ".join(launch.argv), str(launch.limit_s)]) + "\n"
    rendered |= {f"best.{name}": text for name, text in BACKEND.export(config, task).items() if name in ("run.sh", "llama-server.sh")}
    for name, text in rendered.items():
        check_recorded(GOLDEN / name, text)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    folder = hand_over(small_task(tmp_path / "cache"), tmp_path / "best")
    with running(folder) as (_, url):
        done = ended(folder, PORT=url.rsplit(":", 1)[1])
        assert done.returncode == 1
        assert "did not start" in done.stderr
