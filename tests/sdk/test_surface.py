"""The SDK's public surface: one for sync and async, complete, documented."""

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import memoryd
import memoryd.v1
from memoryd.channel import channel_options
from memoryd.methods import METHODS
from memoryd.v1 import (
    agent_service_pb2,
    history_service_pb2,
    memory_context_service_pb2,
    run_service_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)

TWINS = [
    (memoryd.MemoryClient, memoryd.AsyncMemoryClient),
    (memoryd.Session, memoryd.AsyncSession),
    (memoryd.Agent, memoryd.AsyncAgent),
    (memoryd.Watch, memoryd.AsyncWatch),
    (memoryd.SummaryTask, memoryd.AsyncSummaryTask),
    (memoryd.SummaryTasks, memoryd.AsyncSummaryTasks),
    (memoryd.MemoryContext, memoryd.AsyncMemoryContext),
    (memoryd.MemoryTools, memoryd.AsyncMemoryTools),
    (memoryd.MemoryFiles, memoryd.AsyncMemoryFiles),
    (memoryd.Run, memoryd.AsyncRun),
    (memoryd.RunClaims, memoryd.AsyncRunClaims),
]
SERVICES = [
    service
    for file in (
        agent_service_pb2,
        history_service_pb2,
        memory_context_service_pb2,
        run_service_pb2,
        store_service_pb2,
        summary_service_pb2,
        window_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
]


AGAINST_A_SERVER = ("memoryd.client", "memoryd.errors", "memoryd.memory", "memoryd.run")
"""Modules whose docstrings show what only a server answers."""


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    """Name, kind, default and type; a handle of the async client is the same type as its twin, and its functions may be
    async.
    """
    found = inspect.signature(function).parameters.values()
    return [
        (
            parameter.name,
            parameter.kind,
            parameter.default,
            str(parameter.annotation).replace("Async", "").replace(" | collections.abc.Awaitable[str]", ""),
        )
        for parameter in found
    ]


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_sync_and_async_have_the_same_names_and_arguments(sync: type[Any], asynchronous: type[Any]) -> None:
    assert list(public(sync)) == list(public(asynchronous))
    for name, member in public(sync).items():
        if callable(member):
            assert parameters(member) == parameters(public(asynchronous)[name]), name
    if sync is memoryd.MemoryClient:
        assert parameters(sync.__init__) == parameters(asynchronous.__init__)


def annotated(function: Any) -> str:
    """What a function gives, by the name of its class where that stands for itself."""
    given = inspect.signature(function).return_annotation
    return given.__name__ if inspect.isclass(given) and not hasattr(given, "__args__") else str(given)


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_what_sync_gives_async_awaits(sync: type[Any], asynchronous: type[Any]) -> None:
    """Handles are given at once by both; lists are iterators of both kinds; all else is awaited."""
    for name, member in public(sync).items():
        if not callable(member):
            continue
        gives = annotated(member)
        awaits = annotated(public(asynchronous)[name])
        if inspect.iscoroutinefunction(public(asynchronous)[name]):
            assert awaits in (gives, f"Async{gives}"), name
        else:
            assert awaits in (gives.replace("Iterator", "AsyncIterator"), f"Async{gives}"), name


def test_everything_public_is_there_and_documented() -> None:
    for name in memoryd.__all__:
        member = getattr(memoryd, name)
        if inspect.isclass(member) or inspect.isfunction(member):
            assert inspect.getdoc(member), name
        if inspect.isclass(member) and member.__module__.startswith("memoryd"):
            for method_name, method in public(member).items():
                if inspect.isfunction(method) and method.__module__.startswith("memoryd"):
                    assert inspect.getdoc(method), f"{name}.{method_name}"


def test_all_is_all() -> None:
    exported = {
        name for name, member in vars(memoryd).items() if not name.startswith("_") and not inspect.ismodule(member)
    }
    assert set(memoryd.__all__) == exported


def test_the_bare_stubs_are_reachable() -> None:
    assert memoryd.v1.history_service_pb2_grpc.HistoryServiceStub.__name__ == "HistoryServiceStub"


def test_examples_in_docstrings_are_true() -> None:
    ran = 0
    for found in pkgutil.walk_packages(memoryd.__path__, "memoryd."):
        # The clients' examples need a server; the README's tests run such ones.
        if not found.name.startswith("memoryd.v1") and found.name not in AGAINST_A_SERVER:
            result = doctest.testmod(importlib.import_module(found.name), raise_on_error=True)
            ran += result.attempted
    assert ran >= 12


def test_every_method_of_the_api_is_called_by_the_sdk() -> None:
    known = {(method.service, method.name) for method in METHODS}
    assert known == {(service.full_name, method.name) for service in SERVICES for method in service.methods}
    assert len(known) == len(METHODS)


def test_only_what_a_repeat_does_not_change_is_tried_again() -> None:
    """Retries are for safe and idempotent calls only (design section 10). A watch resumes by itself."""
    retried = {method.name for method in METHODS if method.retried}
    assert {name for name in retried if not name.startswith(("Get", "List", "Load", "Stream"))} == {
        "AbandonSummaryTask",
        "AddMemoryEntries",
        "AppendDailyLog",
        "AppendMessages",
        "ClearHistory",
        "CommitRunStep",
        "CommitSummary",
        "CreateRun",
        "EraseUser",
        "ForkSession",
        "PutMemoryFile",
        "RedactMessage",
        "ReleaseRun",
        "RenderMemoryContext",
        "RenewRunLease",
        "RewindSession",
    }
    everything = {method.name for method in METHODS}
    assert everything - retried == {
        "UpdateSession",
        "UpdateAgent",
        "ClearAgentHistory",
        "DeleteMemoryFile",
        "WatchMessages",
        "Summarize",
        "RevertSummary",
        "LeaseSummaryTask",
        "UpdateRun",
        "ClaimRun",
        "DeleteRun",
    }


@pytest.mark.parametrize(
    ("address", "proxied"),
    [
        ("127.0.0.1:7600", False),
        ("localhost:7600", False),
        ("[::1]:7600", False),
        ("unix:/run/memoryd.sock", False),
        ("memory.example.com:7600", True),
        ("localhost.example.com:7600", True),
    ],
)
def test_loopback_needs_no_proxy(address: str, proxied: bool) -> None:
    assert (("grpc.enable_http_proxy", 0) in channel_options(address)) is not proxied
