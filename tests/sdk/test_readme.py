"""The README's examples, run as they stand against a real server."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

from tests.servers import ServerProcess

README = Path(__file__).parents[2] / "clients" / "python" / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example {number}" for number in range(1, len(EXAMPLES) + 1)])
def test_the_readmes_examples_run(example: str, server: ServerProcess, caplog: pytest.LogCaptureFixture) -> None:
    """And none of them logs an error that it lives with."""
    names: dict[str, object] = {}
    exec(compile(example.replace("127.0.0.1:7600", server.address), README.name, "exec"), names)
    if main := names.get("main"):
        asyncio.run(main())  # type: ignore[operator]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_readme_has_its_examples() -> None:
    assert len(EXAMPLES) == 17
