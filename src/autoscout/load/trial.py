"""The trial program: starts a server, waits until it is up, checks its answers, loads it, stops it, and writes what it saw.

    python -m autoscout.load.trial plan.json

Runs in the folder of a trial and stays in the process group it was started in, so that whoever kills that group gets the server too.
Writes `stage.txt` as it goes (so that a kill can be dated), `server.log`, and `result.json` at the end, whatever happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoscout.common.cache import cache_folder, made_once
from autoscout.common.files import write_whole
from autoscout.common.outcome import informative_line
from autoscout.common.processes import begin_program
from autoscout.core.clock import RealClock, timed
from autoscout.core.errors import ConfigError
from autoscout.load.check import WrongAnswer, ask_fixed_prompts, distance, judge, refuse_constant
from autoscout.load.client import RequestFailed
from autoscout.load.measure import LoadMeasurement, TrialFailed, client_of
from autoscout.load.plan import LOG, PLAN, RESULT, STAGE, TrialPlan
from autoscout.load.server import NotUp, Server, ServerEnded, log_text

FAILED = 3  # exit code that goes with a result that says why
NOT_FOUND = 127  # what a shell answers for a command that is not there: no configuration is to blame
ENDING_S = 5.0  # what a server gets for ending after its connections broke
PORT_RETRIES = 2  # starts on another port, where somebody took the free one first
CLOCK = RealClock()
_PORT_TAKEN = re.compile(r"address already in use|couldn't bind HTTP server socket", re.IGNORECASE)


class ServerTrial:
    """Carries out one plan in a folder; `result` is complete whatever happens."""

    def __init__(self, plan: TrialPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self.result: dict[str, Any] = {}
        self._spent: dict[str, float] = {}

    def run(self) -> int:
        """0 when there are metrics."""
        try:
            self.result = self._run()
        except TrialFailed as error:
            self.result = {"failure": error.kind, "reason": str(error), "returncode": error.returncode}
        except BaseException as error:
            self.result = {"failure": "crashed", "reason": f"the trial program failed: {error!r}", "returncode": 0}
            raise
        finally:
            self.result["spent"] = self._spent
            write_whole(self._folder / RESULT, json.dumps(self.result, indent=1) + "\n")
        if "failure" in self.result:
            print(log_text(self._folder / LOG)[-4000:], f"{self.result['failure']}: {self.result['reason']}", sep="\n", file=sys.stderr)
            return NOT_FOUND if (self.result["failure"], self.result["returncode"]) == ("start", NOT_FOUND) else FAILED
        self._stage("done")
        for name, value in self.result["metrics"].items():
            print(f"{name}: {value:.6g}")
        return 0

    def _run(self) -> dict[str, Any]:
        plan = self._plan
        self._prepare(plan.prepare)
        reference = self._reference()
        self._stage("starting")
        with contextlib.ExitStack() as stack:
            with timed(self._spent, "start_s"):
                server = stack.enter_context(self._served(plan.serve, plan.env, LOG))
            return asyncio.run(self._measure(server, reference))

    def _prepare(self, command: tuple[str, ...]) -> None:
        """Make what a server needs."""
        if not command:
            return
        self._stage("preparing")
        done = subprocess.run(command, cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise TrialFailed("crashed", informative_line(done.stderr) or f"{command[0]} ended with exit code {done.returncode}")

    def _served(self, serve: tuple[str, ...], env: Mapping[str, str], log: str) -> _RunningServer:
        return _RunningServer(self._plan, serve, env, self._folder, log)

    async def _measure(self, server: Server, reference: list[dict[str, Any]] | None) -> dict[str, Any]:
        plan = self._plan
        measuring = LoadMeasurement(plan, server)
        try:
            with timed(self._spent, "warm_up_s"):
                self._stage("checking")
                metrics = await self._check(server, reference)
                self._stage("warming")
                await measuring.prepare()
                await measuring.warm_up()
            self._stage("measuring")
            with timed(self._spent, "measure_s"):
                result = await measuring.measure()
            server.check()  # or others have answered in its place
            result["metrics"] |= metrics | {"start_s": self._spent["start_s"]}
            if peak_gib := server.peak_gib():
                result["metrics"]["peak_mem_gib"] = peak_gib
            self._stage("stopping")
        except WrongAnswer as error:
            raise TrialFailed("wrong_output", str(error)) from error
        except ServerEnded as error:
            raise TrialFailed("ended", str(error), error.returncode) from error
        except RequestFailed as error:
            raise await _explained(server, str(error)) from error
        except TrialFailed as error:
            raise (await _explained(server, str(error)) if error.kind == "crashed" else error) from error
        finally:
            measuring.close()
        wrong = [name for name, value in result["metrics"].items() if not math.isfinite(value)]
        if wrong:
            raise TrialFailed("wrong_output", f"{wrong[0]} is not a number")
        return result

    async def _check(self, server: Server, reference: list[dict[str, Any]] | None) -> dict[str, float]:
        """How far the answers are from the reference's."""
        answers = await self._answers_of(server)
        if not answers:
            return {}
        refuse_constant(answers, reference)
        self._keep(answers)
        metrics = distance(reference or answers, answers) if reference or self._is_default() else {}
        judge(self._plan.check, metrics)
        return metrics

    async def _answers_of(self, server: Server) -> list[dict[str, Any]]:
        check = self._plan.check
        client = client_of(self._plan, server, "completions", self._plan.stall_s)
        try:
            return await _while_it_runs(server, ask_fixed_prompts(client, check, self._plan.vocab_size)) if check.prompts else []
        finally:
            client.close()

    def _reference(self) -> list[dict[str, Any]] | None:
        """The default's answers, from the cache; found out now where they are not, unless this is the default's own trial."""
        own = self._plan.check.reference
        if own is None or not self._plan.check.prompts:
            return None
        path = self._reference_path()
        if not path.exists() and not self._is_default():
            self._prepare(own.prepare)
            self._stage("reference")

            def make(partial: Path) -> None:
                try:
                    with self._served(own.serve, own.env, f"reference-{LOG}") as server:
                        partial.write_text(json.dumps(asyncio.run(self._answers_of(server))))
                except (TrialFailed, WrongAnswer, RequestFailed, ServerEnded) as error:
                    raise TrialFailed("crashed", f"the default settings gave no answers to compare with: {error}") from error

            made_once(path, make)
        if not path.exists():
            return None
        answers: list[dict[str, Any]] = json.loads(path.read_text())
        return answers

    def _reference_path(self) -> Path:
        own = self._plan.check.reference
        assert own is not None
        return cache_folder("answers", own.folder) / f"answers-{own.key}.json"

    def _is_default(self) -> bool:
        own = self._plan.check.reference
        return own is not None and (own.serve, own.env) == (self._plan.serve, self._plan.env)

    def _keep(self, answers: list[dict[str, Any]]) -> None:
        """The default's own trial makes the reference."""
        if self._is_default() and not (path := self._reference_path()).exists():
            made_once(path, lambda partial: write_whole(partial, json.dumps(answers)))

    def _stage(self, name: str) -> None:
        (self._folder / STAGE).write_text(name + "\n")


class _RunningServer:
    """A server that is up inside a `with`, and gone after it."""

    def __init__(self, plan: TrialPlan, serve: tuple[str, ...], env: Mapping[str, str], folder: Path, log: str) -> None:
        self._plan = plan
        self._serve = serve
        self._log = folder / log
        self._make: Callable[[], Server] = lambda: Server(serve, env, folder, log)

    def __enter__(self) -> Server:
        for _ in range(PORT_RETRIES):
            try:
                return self._enter()
            except TrialFailed as error:
                if error.kind != "start" or not _PORT_TAKEN.search(log_text(self._log)):
                    raise
        return self._enter()

    def _enter(self) -> Server:
        try:
            self._server = self._make()
        except ServerEnded as error:
            raise TrialFailed("start", "the server could not be started", error.returncode) from error
        try:
            self._server.wait_until_up(self._plan.ready, self._plan.start_limit_s)
        except BaseException as error:
            self._server.stop(self._plan.grace_s)
            if isinstance(error, ServerEnded) and self._is_not_installed():
                raise TrialFailed("start", "the server is not installed", NOT_FOUND) from error
            if isinstance(error, ServerEnded):
                raise TrialFailed(
                    "start", f"the server ended with exit code {error.returncode} while starting", error.returncode
                ) from error
            if isinstance(error, NotUp):
                raise TrialFailed("timeout", str(error)) from error
            raise
        return self._server

    def _is_not_installed(self) -> bool:
        """Whether Python did not find the module that is the server."""
        module = next((word.partition(".")[0] for before, word in pairwise(self._serve) if before == "-m"), "")
        return bool(module) and re.search(rf"No module named '?{re.escape(module)}'?\)?$", log_text(self._log), re.MULTILINE) is not None

    def __exit__(self, *_: object) -> None:
        self._server.stop(self._plan.grace_s)


async def _while_it_runs(server: Server, work: Any) -> Any:
    """The result of `work`; `ServerEnded` as soon as the server ends."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if not task.done():
                server.check()
        return task.result()
    finally:
        task.cancel()


async def _explained(server: Server, why: str) -> TrialFailed:
    """A broken connection: the server's end, if it ends now, else the server's answer."""
    deadline_s = CLOCK.span_s() + ENDING_S
    while server.poll() is None and CLOCK.span_s() < deadline_s:
        await asyncio.sleep(0.1)
    code = server.poll()
    if code is not None:
        return TrialFailed("ended", f"the server ended with exit code {code}: {why}", code)
    kind = "invalid" if "status 4" in why else "timeout" if "not answered within" in why else "crashed"
    return TrialFailed(kind, why)


def main(arguments: list[str]) -> int:
    """Carry out the plan in the file named by the only argument."""
    begin_program()
    try:
        return ServerTrial(TrialPlan.read(Path(arguments[0] if arguments else PLAN)), Path.cwd()).run()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
