"""The generated code in clients/python/memoryd/v1, as users install it."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memoryd.v1 import message_pb2, window_service_pb2

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))

# The oldest that clients/python/pyproject.toml allows, a set with protobuf 6, and what constraints.txt pins.
OLDEST = ["grpcio==1.71.2", "grpcio-status==1.71.2", "protobuf==5.29.0", "googleapis-common-protos==1.70.0"]
MIDDLE = ["grpcio==1.76.0", "grpcio-status==1.76.0", "protobuf==6.33.6", "googleapis-common-protos==1.72.0"]
NEWEST = [
    line.split()[0]
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if re.match(r"(grpcio|grpcio-status|protobuf|googleapis-common-protos)==", line)
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [UV, "build", "--quiet", "--wheel", "--build-constraints", "constraints.txt", "--out-dir", str(out)]
    subprocess.run([*build, "clients/python"], cwd=ROOT, check=True)
    return next(out.glob("memoryd-*.whl"))


def test_the_wheel_is_typed_and_holds_no_package_of_others(wheel: Path) -> None:
    """A `google` package of our own would hide everybody else's."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"memoryd/py.typed", "memoryd/v1/message_pb2.py", "memoryd/v1/message_pb2.pyi"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"memoryd", "memoryd-0.1.0.dist-info"}


@pytest.mark.parametrize(("major", "versions"), [("5", OLDEST), ("6", MIDDLE), ("7", NEWEST)])
def test_generated_code_loads_under_protobuf(major: str, versions: list[str], wheel: Path, tmp_path: Path) -> None:
    """Warnings being errors, every module loads, every service has a stub, and a window comes back byte for byte."""
    call = message_pb2.ToolCall(name="look_up", arguments='{"n": 9007199254740993, "n": ')
    sent = window_service_pb2.LoadWindowResponse(
        messages=[
            message_pb2.Message(id="empty", role=message_pb2.ROLE_USER, content=message_pb2.Content()),
            message_pb2.Message(id="absent", role=message_pb2.ROLE_ASSISTANT),
            message_pb2.Message(id="call", content=message_pb2.Content(parts=[message_pb2.Part(tool_call=call)])),
        ],
        stats=window_service_pb2.WindowStats(prefix_digest=bytes(range(32)), shortened_seqs=[1, 2**62]),
    ).SerializeToString(deterministic=True)

    # The oldest grpcio has no build for a Python newer than 3.13.
    environment = ["--isolated", "--no-project", "--python", ">=3.11,<3.14", f"--with={wheel}"]
    loaded = subprocess.run(
        [
            *(UV, "run", "--quiet", *environment, *(f"--with={version}" for version in versions)),
            *("python", "-W", "error", str(ROOT / "tests/protos/load_generated.py")),
        ],
        input=sent,
        capture_output=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}},
        check=False,
    )

    assert loaded.returncode == 0, loaded.stderr.decode()
    assert loaded.stderr.decode().startswith(f"{major}.")
    assert loaded.stdout == sent
