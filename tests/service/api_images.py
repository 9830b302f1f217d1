"""Other versions of the API: as it was released, and without what it has had for a short time only, with the code that
their clients have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.protos.test_generated_code import OLDEST, ROOT, UV

BUF: Final = str(Path(sys.executable).with_name("buf"))
GENERATOR: Final = next(
    line for line in (ROOT / "protos/generate-requirements.txt").read_text().splitlines() if "grpcio-tools==" in line
)
"""What the published Python SDK is generated with, too."""

BEFORE_RUNS: Final[Mapping[str, Collection[str]]] = {
    "Session": ("ttl", "expire_time", "unfinished_run_count"),
    "SessionSettings": ("ttl",),
    "Message": ("redaction",),
    "AppendedMessage": ("memory_context_removed",),
    "EraseUserResponse": ("erased_run_count", "erased_run_step_count"),
    "Agent": ("run_retention",),
    "SummaryPolicy": ("retention",),
    "WindowStats": ("summary_failure",),
    "RenderMemoryContextResponse": ("warnings", "tools"),
    "PutMemoryFileRequest": ("allow_secrets", "request_id"),
    "ErrorReason": tuple(
        f"ERROR_REASON_{name}"
        for name in (
            "RUN_NOT_FOUND",
            "RUN_EXISTS",
            "LEASE_LOST",
            "RUN_ENDED",
            "RUN_NOT_CLAIMABLE",
            "STEP_MISMATCH",
            "TOO_MANY_RUNS",
            "RUN_UNFINISHED",
        )
    ),
    "WatchEventKind": ("WATCH_EVENT_KIND_REWOUND", "WATCH_EVENT_KIND_RESYNC"),
    "MemoryTierState": ("MEMORY_TIER_STATE_UNREADABLE",),
}
"""By message or enum, fields and values that an older API lacks. It has no RunService either."""

RUN_SERVICE: Final = "memoryd/v1/run_service.proto"


def released() -> FileDescriptorSet:
    """The API of the newest release that the repository has a tag of, or else as it was last recorded."""
    is_repository = (ROOT / ".git").exists()
    tags = _output(["git", "tag", "--list", "v*", "--sort=-version:refname"]).split() if is_repository else []
    if not tags:
        return recorded()
    sources = _output(["git", "archive", "--format=tar", tags[0].decode(), "protos"])
    return _image("-#format=tar,subdir=protos", sources)


def recorded() -> FileDescriptorSet:
    """The API as it was last recorded."""
    return _image("protos/baseline.txtpb")


def before_runs() -> FileDescriptorSet:
    """The recorded API without the newest of what it has, as if it were of a time before runs."""
    image = recorded()
    kept = [file for file in image.file if file.name != RUN_SERVICE]
    assert len(kept) < len(image.file)
    missing = {(name, part) for name, parts in BEFORE_RUNS.items() for part in parts}
    for file in kept:
        for message in file.message_type:
            missing -= _strip(message.name, message.field)
        for enum in file.enum_type:
            missing -= _strip(enum.name, enum.value)
    assert not missing
    return FileDescriptorSet(file=kept)


def _strip(name: str, parts: Any) -> set[tuple[str, str]]:
    """Takes fields out of a message, or values out of an enum. Returns: those that it had."""
    gone = [part for part in parts if part.name in BEFORE_RUNS.get(name, ())]
    for part in gone:
        parts.remove(part)
    return {(name, part.name) for part in gone}


def methods(image: FileDescriptorSet) -> set[str]:
    """The methods of an API, as gRPC writes them."""
    return {
        f"/{file.package}.{service.name}/{method.name}"
        for file in image.file
        for service in file.service
        for method in service.method
    }


def _image(source: str, given: bytes = b"") -> FileDescriptorSet:
    """What buf makes of a source; `given` is for one from standard input."""
    build = ["build", source, "--as-file-descriptor-set", "--exclude-source-info", "--output", "-#format=binpb"]
    return FileDescriptorSet.FromString(_output([BUF, *build], given))


def _output(command: Sequence[str], given: bytes = b"") -> bytes:
    ended = subprocess.run(command, input=given, cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def generate(image: FileDescriptorSet, folder: Path) -> None:
    """Generates the Python code of an API into a folder, as the import package `memoryd.v1`."""
    file = folder / "api.binpb"
    file.write_bytes(image.SerializeToString())
    own = [each for each in image.file if each.package == "memoryd.v1"]
    run_older(
        folder,
        *("-m", "grpc_tools.protoc", f"--descriptor_set_in={file}", f"--python_out={folder}"),
        *(f"--grpc_python_out={folder}", *(each.name for each in own)),
    )


def run_older(folder: Path, *arguments: str) -> str:
    """Runs Python with the code in a folder, on the oldest gRPC and protobuf that the SDK supports, and nothing else of
    memoryd. Returns: what it printed."""
    # The oldest grpcio has no build for a Python newer than 3.13.
    environment = ["--isolated", "--no-project", "--python", ">=3.11,<3.14"]
    ended = subprocess.run(
        [
            *(UV, "run", "--quiet", *environment, *(f"--with={version}" for version in (*OLDEST, GENERATOR))),
            *("python", *arguments),
        ],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
