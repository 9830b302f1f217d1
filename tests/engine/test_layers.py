"""Imports point one way: services → engine → stores.base (design section 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import memoryd_server

PACKAGE: Final = Path(memoryd_server.__file__).parent

TRANSPORT: Final = ("grpc", "memoryd.", "google.protobuf", "google.rpc", "uvloop", "prometheus_client")
DRIVERS: Final = ("sqlalchemy", "sqlite3", "alembic", "aiosqlite", "asyncpg", "redis", "motor", "pymongo", "asyncmy")
OURS: Final = "memoryd_server."

FORBIDDEN: Final = {
    "engine": (
        *TRANSPORT,
        *DRIVERS,
        *(OURS + part for part in ("services", "interceptors", "cli", "app", "config", "logs", "metrics", "stores.")),
    ),
    "stores": (
        *TRANSPORT,
        *(OURS + part for part in ("engine", "services", "interceptors", "cli", "app", "config", "metrics")),
    ),
    "summarizers": (
        *TRANSPORT,
        *DRIVERS,
        *(OURS + part for part in ("engine", "services", "interceptors", "cli", "app", "config", "metrics", "stores.")),
    ),
    "services": (*DRIVERS, *(OURS + part for part in ("cli", "app", "stores."))),
    "interceptors": (*DRIVERS, *(OURS + part for part in ("cli", "app", "services", "stores."))),
}
"""What the modules of a folder must not import."""

CONTRACT: Final = (OURS + "stores.base", OURS + "stores.records")
"""What everybody may import of the stores."""


def _imports(module: Path) -> Iterator[str]:
    """Every module that a file imports, late imports and those for types included."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _matches(name: str, forbidden: str) -> bool:
    if forbidden.endswith("."):
        return name.startswith(forbidden)
    return name == forbidden or name.startswith(forbidden + ".")


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_folder_imports_only_what_lies_below_it(folder: str) -> None:
    """(design section 2)"""
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert modules
    wrong = [
        f"{module.relative_to(PACKAGE)} imports {name}"
        for module in modules
        for name in _imports(module)
        if any(_matches(name, forbidden) for forbidden in FORBIDDEN[folder])
        and not (folder != "stores" and any(_matches(name, allowed) for allowed in CONTRACT))
    ]
    assert not wrong


def test_limits_and_errors_stand_below_everything() -> None:
    for module in (PACKAGE / "limits.py", PACKAGE / "engine" / "errors.py", PACKAGE / "stores" / "records.py"):
        assert not [name for name in _imports(module) if name.startswith(OURS)], module


def test_the_contract_knows_no_adapter() -> None:
    base = set(_imports(PACKAGE / "stores" / "base.py"))
    ours = {name for name in base if name.startswith(OURS)}
    assert ours
    assert all(_matches(name, OURS + "stores.records") for name in ours)


def test_no_module_is_called_utils() -> None:
    """Small modules are named for what they hold."""
    names = {module.stem for module in PACKAGE.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
