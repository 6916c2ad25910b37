"""Runs the fake server until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from autoscout.core.clock import RealClock
from autoscout.testing.openai_server.engine import NO_CACHE, OUT_OF_MEMORY, StandInEngine, die
from autoscout.testing.openai_server.http import Connection
from autoscout.testing.openai_server.settings import Settings, read

CLOCK = RealClock()


async def serve(settings: Settings) -> None:
    """Listen, step, and end on SIGTERM."""
    if settings.fault == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    engine = StandInEngine(settings)
    begun_s = CLOCK.span_s()

    def is_healthy() -> bool:
        return CLOCK.span_s() - begun_s >= settings.start_s and settings.fault != "hang_start"

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (lambda: None) if settings.fault == "ignore_term" else stop.set)
    server = await loop.create_server(lambda: Connection(engine, is_healthy), settings.host, settings.port, backlog=4096)
    print(f"Uvicorn running on http://{settings.host}:{server.sockets[0].getsockname()[1]}", flush=True)
    if settings.fault in ("oom_start", "no_cache", "crash_start"):
        await asyncio.sleep(settings.start_s)
        words = {"oom_start": OUT_OF_MEMORY, "no_cache": NO_CACHE, "crash_start": "RuntimeError: the weights do not fit the model"}
        die(f"Traceback (most recent call last):\n{words[settings.fault]}")
    steps = asyncio.create_task(engine.run())
    await asyncio.wait({steps, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if steps.done():
        steps.result()


def main() -> None:
    """Read the command line and serve."""
    asyncio.run(serve(read(sys.argv[1:])))


if __name__ == "__main__":
    main()
