"""What is in the SDK's distribution besides its modules."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"


def test_the_wheel_carries_the_repositorys_license(tmp_path: Path) -> None:
    build = ("hatchling", "build", "--target", "wheel", "--directory", str(tmp_path))
    subprocess.run([sys.executable, "-m", *build], cwd=CLIENT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
