"""Parts of `benchmarks.endurance`: a controller that changes settings all the time, and a wire that can be cut."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

CONTROLLER = """
import json, random, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
from _file_scheduler import FileScheduler
from autosched.control import actions
from autosched.control.controller import Controller
from autosched.control.settings import build_settings
from autoscout.common.files import write_file

folder, rng = Path(sys.argv[3]), random.Random(int(sys.argv[4]))

class Slow(FileScheduler):
    def apply(self, plan):
        time.sleep(0.15 * rng.random())
        write_file(self.path, plan.data["new"])  # in one piece, as the real ones do: half of a file is no setting
        time.sleep(0.15 * rng.random())
        self._reload()

live = Slow(folder / "settings.json", start_s=1e6 * (1 + int(sys.argv[4])))
settings = build_settings({"cluster": "lab", "live": {"kind": "file"}, "folder": str(folder), "mode": "apply", "watch": 0}, "endurance")
controller = Controller(settings, live)
for step in range(int(sys.argv[5])):
    live.clock.sleep(60.0)
    controller.tick()
    waiting = controller.ledger.in_state("proposed", "approved", "applying", "unsure")
    if not waiting:
        wanted = 1000 + rng.randrange(9) * 1000
        if controller.state.settings.get("priority_weight_age") != wanted:
            actions.propose(controller.ledger, {"priority_weight_age": wanted}, "somebody", live.clock.now_s(), approved=True)
    print("step", flush=True)
states = {entry.id: (entry.state, entry.after.to_json()) for entry in controller.ledger.history()}
print(json.dumps({"running": live.running.to_json(), "file": json.loads(live.path.read_text()), "states": list(states.values())}))
controller.close()
"""
"""A program: changes a setting at every look, and is slow in the middle of it."""


@contextlib.contextmanager
def apart(port: int) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """A way to a port of this machine through a wire of its own: its address, and what cuts and heals the wire."""
    network, link, block = f"end{os.getpid()}", f"end{os.getpid() % 10_000}", 10 + os.getpid() % 200
    inside, outside = f"10.{block}.99.2", f"10.{block}.99.1"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    relay = (
        "import asyncio, socket, sys\n"
        "def watched(w):\n"  # a router has no connections of its own: what it forgets at one end must end at the other
        "    w.get_extra_info('socket').setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)\n"
        "    values = {'TCP_KEEPIDLE': 5, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 3, 'TCP_USER_TIMEOUT': 20_000}\n"
        "    for name, value in values.items():\n"
        "        w.get_extra_info('socket').setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)\n"
        "async def pump(a, b):\n"
        "    try:\n"
        "        while data := await a.read(65536):\n            b.write(data); await b.drain()\n"
        "    finally:\n        b.close()\n"
        "async def meet(r, w):\n"
        f"    there = await asyncio.open_connection('{outside}', {port + 1})\n"
        "    watched(w); watched(there[1])\n"
        "    await asyncio.gather(pump(r, there[1]), pump(there[0], w), return_exceptions=True)\n"
        "async def main():\n"
        f"    server = await asyncio.start_server(meet, '{inside}', {port})\n"
        "    print('up', flush=True)\n"
        "    await server.serve_forever()\n"
        "asyncio.run(main())\n"
    )
    back = relay.replace(f"'{outside}', {port + 1}", f"'127.0.0.1', {port}").replace(f"'{inside}', {port}", f"'{outside}', {port + 1}")
    ip("netns", "add", network)
    relays: list[subprocess.Popen[str]] = []
    try:
        ip("link", "add", link, "type", "veth", "peer", "name", "wire", "netns", network)
        ip("addr", "add", f"{outside}/24", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", network, "addr", "add", f"{inside}/24", "dev", "wire")
        ip("-n", network, "link", "set", "wire", "up")
        for words in ([sys.executable, "-c", back], ["ip", "netns", "exec", network, sys.executable, "-c", relay]):
            relays.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            assert relays[-1].stdout is not None
            relays[-1].stdout.readline()
        yield f"{inside}:{port}", lambda: ip("link", "set", link, "down"), lambda: ip("link", "set", link, "up")
    finally:
        for each in relays:
            each.kill()
            each.communicate()
        ip("netns", "del", network)
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


__all__ = ["CONTROLLER", "apart"]
