"""`memoryd stores`: what a server keeps its data in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.adapters import ADAPTERS, Adapter, parameters
from tests.cli.commands import Here
from tests.conftest import StartServer
from tests.servers import ServerProcess


def test_stores_are_listed_with_what_they_lack(here: Here, start_server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "gone.db"
    server = start_server(
        "--store", "scratch=memory://", "--store", f"main=sqlite:///{file}", "--default-store", "main"
    )
    file.unlink()
    shown = here.ok("stores", "--store", "scratch", address=server.address)

    header, main, scratch, *reasons = [line.split() for line in shown.splitlines() if line]
    assert header == ["Store", "Type", "Answers", "Shared", "Durable", "Used"]
    assert main == ["main", "sqlite", "no", "yes", "yes", "by", "default"]
    assert scratch == ["scratch", "in_memory", "yes", "no", "no", "by", "you"]
    assert [reason[:4] for reason in reasons] == [
        ["scratch", "is", "not", "shared:"],
        ["scratch", "is", "not", "durable:"],
    ]


@pytest.mark.parametrize("adapter", parameters(adapter for adapter in ADAPTERS if adapter.name == "redis_cluster"))
def test_powers_are_words(here: Here, start_server: StartServer, adapter: Adapter, tmp_path: Path) -> None:
    with adapter.data(tmp_path) as url:
        server = start_server("--store", f"main={url}")
        shown = here.ok("stores", address=server.address)
    assert "Lossless failover" in shown.splitlines()[0]
    assert "main has no lossless failover: " in " ".join(shown.split())
    assert "_" not in shown.replace("redis_cluster", "")


def test_a_store_that_is_used_and_not_there_is_told(here: Here, server: ServerProcess) -> None:
    shown = here.memoryd("stores", address=server.address, MEMORYD_STORE="mian")

    assert shown.returncode == 0
    assert shown.stdout.splitlines()[1].split() == ["default", "sqlite", "yes", "yes", "yes", "by", "default"]
    assert "there is no store mian, which --store or MEMORYD_STORE names" in shown.stderr


def test_stores_are_listed_for_programs(here: Here, in_memory_server: ServerProcess) -> None:
    (line,) = here.ok("stores", "--json", address=in_memory_server.address).splitlines()
    store = json.loads(line)

    assert (store["name"], store["type"], store["reachable"], store["durable"]) == ("default", "in_memory", True, False)
    assert [(power["name"], power["supported"]) for power in store["capabilities"]] == [
        ("shared", False),
        ("durable", False),
    ]
