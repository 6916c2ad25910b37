"""Generates the messages of the controller's service from its .proto file; its calls are made from their description.

`python scripts/protos.py` writes them next to it. It needs grpcio-tools, which nothing else here does, so the result is in the repository.
Generated code refuses to work with packages older than the generator; what it uses is older, so these checks are taken out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
PROTO = "autosched/service/v1/control.proto"
CHECKS = (
    r"from google\.protobuf import runtime_version as _runtime_version\n",
    r"_runtime_version\.ValidateProtobufRuntimeVersion\([^)]*\)\n",
)


def main() -> int:
    """Write `control_pb2.py` and its types; the exit code of protoc."""
    from grpc_tools import protoc

    kinds = (f"--{kind}_out={SOURCE}" for kind in ("python", "pyi"))
    code = int(protoc.main(["protoc", f"-I{SOURCE}", *kinds, PROTO]))
    path = (SOURCE / PROTO).with_name("control_pb2.py")
    text = path.read_text()
    for check in CHECKS:
        text = re.sub(check, "", text)
    path.write_text(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
