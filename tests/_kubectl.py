"""A stand-in for kubectl and its cluster, for tests: pods are processes of this machine with mounts of their own.

It knows the few commands that the executor uses. Its state is a folder; it checks every manifest against the published schema of
Kubernetes where that is installed, so that a manifest which a real cluster would refuse fails here too.

Run as a program: `python _kubectl.py STATE COMMAND ...`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

NODES = [{"name": "k1", "cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4"}, {"name": "k2", "cpu": "8", "memory": "16Gi"}]

# Gives the pod its volumes below /mnt, which nobody else sees.
POD = 'mount -t tmpfs none /mnt && while [ "$1" != -- ]; do mkdir -p "$2" && mount --bind "$1" "$2"; shift 2; done; shift; exec "$@"'


def missing() -> str:
    """Why there can be no stand-in here; empty when there can."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return "KUBERNETES NOT TESTED: pods of the stand-in need unshare and root"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "KUBERNETES NOT TESTED: no namespaces for mounts"


def apply(state: Path, manifest: dict[str, Any]) -> None:
    check(manifest)
    name = manifest["metadata"]["name"]
    place = state / f"{manifest['kind'].lower()}-{name}"
    place.mkdir(exist_ok=True)
    (place / "manifest.json").write_text(json.dumps(manifest))
    if manifest["kind"] == "Job":
        for index in range(manifest["spec"]["completions"]):
            start_pod(state, f"{name}-{index}", manifest)


def check(manifest: dict[str, Any]) -> None:
    try:
        import kubernetes_validate
    except ImportError:
        return
    kubernetes_validate.validate(manifest, "1.32", strict=True)


def start_pod(state: Path, name: str, job: dict[str, Any]) -> None:
    import base64

    place = state / f"pod-{name}"
    place.mkdir()
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    sources: dict[str, Path] = {}
    for volume in spec["volumes"]:
        sources[volume["name"]] = place / volume["name"]
        sources[volume["name"]].mkdir()
        if "configMap" in volume:
            data = json.loads((state / f"configmap-{volume['configMap']['name']}" / "manifest.json").read_text())["binaryData"]
            for key, value in data.items():
                (sources[volume["name"]] / key).write_bytes(base64.b64decode(value))
    mounts = [part for mount in container["volumeMounts"] for part in (str(sources[mount["name"]]), mount["mountPath"])]
    for pipe in ("in", "out"):
        os.mkfifo(place / pipe)
    read, write = os.open(place / "in", os.O_RDWR), os.open(place / "out", os.O_RDWR)
    process = subprocess.Popen(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            POD,
            "pod",
            *mounts,
            "--",
            *container["command"],
        ],
        stdin=read,
        stdout=write,
        stderr=(place / "log").open("wb"),
        start_new_session=True,
    )
    job_name = job["metadata"]["name"]
    labels = {**job["spec"]["template"]["metadata"]["labels"], "job-name": job_name}
    (place / "pod.json").write_text(json.dumps({"name": name, "pid": process.pid, "labels": labels}))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def pods(state: Path, label: str, value: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(state.glob("pod-*/pod.json")):
        pod = json.loads(path.read_text())
        if pod["labels"].get(label) == value:
            status = {"phase": "Running"} if alive(pod["pid"]) else {"phase": "Failed", "reason": "Evicted"}
            found.append({"metadata": {"name": pod["name"]}, "spec": {"nodeName": "k1"}, "status": status, "pid": pod["pid"]})
    return found


def attach(state: Path, name: str) -> None:
    """Both ways until the pod ends, or we do; then its standard input ends, as `stdinOnce` says."""
    place = state / f"pod-{name}"
    pid = json.loads((place / "pod.json").read_text())["pid"]
    inward, outward = os.open(place / "in", os.O_RDWR), os.open(place / "out", os.O_RDWR | os.O_NONBLOCK)

    def forward() -> None:
        while data := os.read(0, 1 << 16):
            os.write(inward, data)
        os.killpg(pid, signal.SIGTERM) if alive(pid) else None  # a named pipe has no end of file of its own

    threading.Thread(target=forward, daemon=True).start()
    while True:
        ended = not alive(pid)
        try:
            while data := os.read(outward, 1 << 16):
                os.write(1, data)
        except BlockingIOError:
            pass
        if ended:
            return
        time.sleep(0.02)


def delete(state: Path, label: str, value: str) -> None:
    for pod in pods(state, label, value):
        if alive(pod["pid"]):
            os.killpg(pod["pid"], signal.SIGKILL)
        shutil.rmtree(state / f"pod-{pod['metadata']['name']}", ignore_errors=True)


def main(state: Path, arguments: list[str]) -> None:
    command, *rest = [part for part in arguments if not part.startswith("--namespace")]
    options = dict(part.removeprefix("--").partition("=")[::2] for part in rest if part.startswith("--"))
    names = [part for part in rest if not part.startswith("--")]
    label, _, value = options.get("selector", "").partition("=")
    if command == "apply":
        apply(state, json.loads(sys.stdin.read()))
    elif command == "get" and names == ["pods"]:
        print(json.dumps({"items": pods(state, label, value)}))
    elif command == "get" and names == ["nodes"]:
        items = [{"metadata": {"name": node["name"]}, "spec": {}, "status": {"allocatable": node}} for node in NODES]
        print(json.dumps({"items": items}))
    elif command == "attach":
        attach(state, names[0])
    elif command == "delete":
        if names[0].startswith("job/"):
            delete(state, "job-name", names[0].removeprefix("job/"))
        else:
            delete(state, label, value)
    else:
        sys.exit(f"the stand-in does not know {command} {rest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
