"""The agent's door: a scripted client of the Model Context Protocol does what a coding agent would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

from autoscout.cli.documents import documents_schema  # noqa: E402

READING = {"doctor", "space", "render", "estimate", "studies", "status", "report", "explain", "compare", "drift"}
RUNNING = {"profile", "check", "curve", "tune", "resume", "stop"}
PROGRAM = "import time; time.sleep({nap} / 100); print('score', 10 - {nap})"
CAMPAIGN = {
    "system": "command",
    "workload": {"command": f'{sys.executable} -c "{PROGRAM}"', "metrics": {"score": {"regex": "score ([0-9.]+)"}}},
    "goal": {"metric": "score", "direction": "maximize"},
    "space": {"knobs": {"nap": {"values": [3, 1, 2, 5], "default": 5}}},
}


def session(folder: Path, *words: str, use: Callable[[Any], Awaitable[None]]) -> None:
    """Start the server as a client's configuration would, and use it."""

    async def main() -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "autoscout", "mcp", "--folder", str(folder), *words], env=environment, cwd=str(folder)
        )
        async with Client(stdio_client(parameters)) as client:
            await use(client)

    anyio.run(main)


async def document(client: Any, tool: str, /, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def refusal(client: Any, tool: str, /, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return answer.content[0].text


def test_nothing_of_the_users_is_run_without_the_flag(tmp_path):
    async def use(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READING
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        assert "there is no such study" in await refusal(client, "report", name="nobody")
        rendered = await document(client, "render", subject={"campaign": CAMPAIGN, "settings": {"nap": 2}})
        assert rendered["config"] == {"nap": 2}
        shown = await document(client, "space", subject={"campaign": CAMPAIGN})
        assert "nap" in json.dumps(shown)

    session(tmp_path, use=use)
    assert {path.name for path in tmp_path.iterdir()} == set()


def test_bad_arguments_are_refused_with_every_fault(tmp_path):
    async def use(client: Any) -> None:
        wrong = {**CAMPAIGN, "goal": {"metric": "score", "direction": "up"}, "measure": {"limit": "soon"}}
        text = await refusal(client, "space", subject={"campaign": wrong})
        assert "direction" in text
        assert "limit" in text
        assert "a campaign stands alone" in await refusal(client, "render", subject={"campaign": CAMPAIGN, "target": "vllm"})
        assert "must hold a target" in await refusal(client, "render", subject={})
        subject = {"campaign": CAMPAIGN}
        assert "longer than the 60 s" in await refusal(client, "tune", subject=subject, name="s", budget="2h")
        assert "longer than the 60 s" in await refusal(client, "profile", subject=subject, limit="2h")
        assert "budget" in await refusal(client, "tune", subject=subject, name="s")
        for name in ("../s", "a/b", ".", ""):
            assert await refusal(client, "tune", subject=subject, name=name, budget="30s")

    session(tmp_path, "--allow-run", "--most", "1m", use=use)
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_an_agent_tunes_a_program_from_start_to_end(tmp_path):
    async def use(client: Any) -> None:
        names = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(names) == READING | RUNNING
        assert names["report"].output_schema["properties"].keys() == documents_schema()["$defs"]["ResultDocument"]["properties"].keys()
        measured = await document(client, "profile", subject={"campaign": CAMPAIGN, "settings": {"nap": 3}}, limit="30s")
        assert measured["measurements"][0]["metrics"]["score"] == 7
        checked = await document(
            client, "check", subject={"campaign": CAMPAIGN, "settings": {"nap": 1}}, against="nap=3", limit="30s", rounds=3
        )
        assert checked["verdict"] == "better"
        begun = await document(client, "tune", subject={"campaign": CAMPAIGN}, name="demo", budget="60s", max_trials=4)
        assert begun["folder"] == str(tmp_path / "demo")
        status = await document(client, "status", name="demo", wait_s=120)
        assert status["state"] == "finished", status["log"]
        result = await document(client, "report", name="demo")
        assert result["verdict"] == "gain"
        assert result["answer"] == {"nap": 1}
        assert Path(result["files"]["best"], "run.sh").exists()
        assert [row["name"] for row in (await document(client, "studies"))["studies"]] == ["demo"]
        assert await document(client, "explain", name="demo")
        assert "curve" in await refusal(client, "curve", name="demo", limit="30s")
        assert "drift" in await refusal(client, "drift", name="demo", traffic="nowhere.json")

    session(tmp_path, "--allow-run", use=use)


@pytest.mark.slow
def test_a_study_outlives_the_session_and_is_stopped_by_the_next(tmp_path):
    slow = {**CAMPAIGN, "space": {"knobs": {"nap": {"range": [30, 90], "default": 60}}}}

    async def begin(client: Any) -> None:
        begun = await document(client, "tune", subject={"campaign": slow}, name="long", budget="50s")
        assert begun["state"] == "running"

    async def end(client: Any) -> None:
        assert "is under way" in await refusal(client, "resume", name="long", budget="60s")
        assert "is under way" in await refusal(client, "tune", subject={"campaign": slow}, name="long", budget="60s")
        await document(client, "status", name="long", wait_s=60, trials=2)
        assert (await document(client, "stop", name="long", reason="enough for the test"))["asked"]
        status = await document(client, "status", name="long", wait_s=60)
        assert status["state"] == "interrupted"
        assert status["trials"] >= 2
        before = status["trials"]
        again = await document(client, "resume", name="long", budget="45s", max_trials=before + 1)
        assert again["name"] == "long"
        assert (await document(client, "status", name="long", wait_s=60))["trials"] > before

    session(tmp_path, "--allow-run", use=begin)
    session(tmp_path, "--allow-run", use=end)
