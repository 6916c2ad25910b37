"""The driver inside a trial: starts a server if there is one, waits until it is up, runs the benchmark, stops everything.

Run as `python -m autoscout.backends.command.driver plan.json` in the trial folder. It stays in the process group it was started
in, so that whoever kills that group gets the server too, and adopts orphans, so that a server cannot leave children behind.
It stops as soon as the trial cannot win any more: between two runs, or within one where its wall time counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from autoscout.backends.command.ports import line_of, meeting_ports, served_ports
from autoscout.common.files import write_whole
from autoscout.common.leases import Lease, lease_port, port_holder
from autoscout.common.processes import begin_program, descendants
from autoscout.core.clock import RealClock, timed
from autoscout.core.to_beat import Race, ToBeat
from autoscout.load.server import POLL_S, end, free_port, is_listening, is_up, log_text

RESULT = "autoscout-result.json"
FREE_S = 5.0  # for a server that ends just now to let go of its port

CLOCK = RealClock()


class Driver:
    """Runs one plan; `result` is complete whatever happens."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.folder = Path.cwd()
        self.port = free_port()
        self.server: subprocess.Popen[bytes] | None = None
        self.result: dict[str, Any] = {"runs": [], "server": {}, "failure": "", "spent": {}, "bounds": {}, "reason": ""}
        to_beat = ToBeat.here()
        self.race = Race(to_beat)
        self.metrics = _Metrics(plan["metrics"]) if to_beat is not None else None
        self.samples: list[dict[str, float]] = []
        self.leases: list[Lease] = []  # until this process ends
        os.environ["AUTOSCOUT_PORT"] = str(self.port)
        for name in plan["port_variables"]:
            os.environ[name] = os.environ[name].replace("{port}", str(self.port))

    def run(self) -> int:
        """Serve, benchmark, stop; 0 when all of it went well."""
        try:
            spent = self.result["spent"]
            self._lease_ports()
            if self.plan["serve"] is not None:
                with timed(spent, "start_s"):
                    self.result["failure"] = self._serve()
            for number in range(-self.plan["warmups"], self.plan["repeats"]):
                if self.result["failure"] or any(run["returncode"] != 0 for run in self.result["runs"]) or self._is_lost():
                    break
                with timed(spent, "warm_up_s" if number < 0 else "measure_s"):
                    self._bench(number)
        finally:
            self._stop()
            self.result |= {"bounds": self.race.bounds, "reason": self.race.why}
            self._write()
        failed = self.result["failure"] or any(run["returncode"] != 0 for run in self.result["runs"])
        if failed and self.server is not None:
            print(self.result["server"]["log"][-4000:], f"driver: {self.result['failure'] or 'bench_failed'}", sep="\n", file=sys.stderr)
        return 1 if failed else 0

    def _serve(self) -> str:
        """Start the server; empty when it is up, else what kept it from that."""
        up = self._health()
        if not self._is_free(up):
            return "address_taken"
        with (self.folder / "server.log").open("wb") as log:
            self.server = self._start(self.plan["serve"], log, subprocess.STDOUT)
        deadline_s = CLOCK.span_s() + self.plan["start_limit_s"]
        while not up():
            if self.server.poll() is not None:
                return "server_died"
            if CLOCK.span_s() > deadline_s:
                return "start_timeout"
            CLOCK.sleep(POLL_S)
        return "" if self.server.poll() is None else "server_died"  # what answers is another's then

    def _lease_ports(self) -> None:
        """Take the ports that the campaign fixes, so that studies of one machine take turns; in order, or two would wait for each other."""
        plan, serve = self.plan, self.plan["serve"]
        variables = {name: os.environ[name] for name in plan["variables"]}
        ports = meeting_ports(line_of(plan["run"]), variables)
        if serve is not None:
            ports |= served_ports(line_of(serve), variables, "" if plan["health_log"] else plan["health_url"])
        for port in sorted(ports):
            is_told = False
            while (lease := lease_port(port, self.folder.name)) is None:
                if not is_told:
                    print(f"driver: port {port} is leased by {port_holder(port)}; waiting for it", file=sys.stderr, flush=True)
                is_told = True
                CLOCK.sleep(POLL_S)
            self.leases.append(lease)

    def _is_free(self, up: Callable[[], bool]) -> bool:
        """Whether nobody answers where our server is going to: what answered there before would be measured in its place."""
        deadline_s = CLOCK.span_s() + FREE_S
        while up():
            if CLOCK.span_s() > deadline_s:
                return False
            CLOCK.sleep(POLL_S)
        return True

    def _health(self) -> Callable[[], bool]:
        if self.plan["health_log"]:
            pattern = re.compile(self.plan["health_log"], re.MULTILINE)
            return lambda: pattern.search(self._server_log()) is not None
        if self.plan["health_url"]:
            url = self.plan["health_url"].replace("{port}", str(self.port))
            return lambda: is_up(url)
        return lambda: is_listening(self.port)

    def _bench(self, number: int) -> None:
        """One run; warm-ups have negative numbers and are remembered only when they fail."""
        for name in self.plan["outputs"]:
            (self.folder / name).unlink(missing_ok=True)  # a file of the run before must not be taken for this one's
        out, err = (self.folder / f"run{number}.{stream}" for stream in ("stdout", "stderr"))
        began_s = CLOCK.span_s()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = self._start(self.plan["run"], stdout, stderr)
            while process.poll() is None:
                if self.server is not None and self.server.poll() is not None:
                    self.result["failure"] = "server_ended"
                    self._end([process.pid, *descendants(process.pid)])
                elif number >= 0 and self._is_lost(CLOCK.span_s() - began_s):
                    self._end([process.pid, *descendants(process.pid)])
                    process.wait()
                    return
                CLOCK.sleep(POLL_S / 10)
        if self.server is not None and self.server.poll() is not None:
            self.result["failure"] = "server_ended"  # before its benchmark did, whoever answered the rest of it
        wall_s = CLOCK.span_s() - began_s
        run = {
            "returncode": process.returncode,
            "wall_s": wall_s,
            "stdout": log_text(out),
            "stderr": log_text(err),
            "outputs": self._outputs(),
        }
        print(run["stdout"], end="", flush=True)
        print(run["stderr"], end="", flush=True, file=sys.stderr)
        if number >= 0 or process.returncode != 0:
            self.result["runs"].append(run)
        if number >= 0 and process.returncode == 0 and self.metrics is not None:
            self.samples.append(self.metrics.of(run))

    def _is_lost(self, elapsed_s: float | None = None) -> bool:
        """Whether the trial cannot win any more: by its runs so far, and by one that has taken this long already."""
        if self.metrics is None:
            return False
        if elapsed_s is None:
            return self.race.lost(self.samples, self.plan["repeats"])
        return bool(best := self.metrics.after(elapsed_s)) and self.race.over(self.samples)(best)

    def _outputs(self) -> dict[str, str]:
        paths = {name: self.folder / name for name in self.plan["outputs"]}
        return {name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items() if path.is_file()}

    def _start(self, command: dict[str, Any], stdout: IO[bytes], stderr: IO[bytes] | int) -> subprocess.Popen[bytes]:
        if "shell" in command:
            argv = ["/bin/sh", "-c", command["shell"]]
        else:
            argv = [word.replace("{folder}", str(self.folder)).replace("{port}", str(self.port)) for word in command["argv"]]
        try:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=self.plan["cwd"] or None)
        except OSError as error:
            # As a shell would say it, so that both forms of a command fail alike.
            return subprocess.Popen(["/bin/sh", "-c", 'echo "$0" >&2; exit 127', str(error)], stdout=stdout, stderr=stderr)

    def _stop(self) -> None:
        """End the server and everything either command left behind."""
        if self.server is None:
            self._end(descendants(os.getpid()))
            return
        code = self.server.poll()
        self._end(descendants(os.getpid()))
        self.server.wait()
        self.result["server"] = {"returncode": code, "log": self._server_log()}

    def _end(self, pids: list[int]) -> None:
        end(pids, self.plan["grace_s"])

    def _server_log(self) -> str:
        return log_text(self.folder / "server.log")

    def _write(self) -> None:
        write_whole(self.folder / RESULT, json.dumps(self.result))


class _Metrics:
    """Reads the metrics of a run; what cannot be read says nothing."""

    def __init__(self, sources: dict[str, Any]) -> None:
        from autoscout.backends.command.sources import MetricSource  # takes a moment to import, and most trials need it not

        self._sources = {name: MetricSource.model_validate(source) for name, source in sources.items()}

    def of(self, run: dict[str, Any]) -> dict[str, float]:
        from autoscout.backends.command.sources import CommandRun, UnreadableError

        metrics, output = {"wall_s": float(run["wall_s"])}, CommandRun(**run)
        for name, source in self._sources.items():
            with contextlib.suppress(UnreadableError):
                metrics |= source.read_all(output) if name == "*" else {name: source.read(name, output)[0]}
        return metrics

    def after(self, elapsed_s: float) -> dict[str, float]:
        """The least that metrics of time can be of a run that has taken this long."""
        return {"wall_s": elapsed_s} | {name: elapsed_s * source.scale for name, source in self._sources.items() if source.wall}


def main(arguments: list[str]) -> int:
    """Run the plan in the file named by the only argument."""
    begin_program()
    return Driver(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
