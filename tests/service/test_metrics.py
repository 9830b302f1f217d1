"""Metrics for Prometheus (design section 9): what they count, what they cost to read, and what they never tell."""

from __future__ import annotations

import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd_server.app import METHODS
from memoryd_server.engine.instruments import FOLD_OUTCOMES
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.stores import is_reachable
from memoryd_server.interceptors import Authentication, Draining, InFlight, chain
from memoryd_server.metrics import Metrics
from memoryd_server.metrics.exposition import Exposition
from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Deleted,
    Known,
    Outcome,
    PoolStatus,
    Record,
    SessionKey,
    StoreUnavailable,
)
from memoryd_server.stores.measured import OPERATIONS, measure
from memoryd_server.stores.memory import InMemoryStore
from tests.conftest import StartServer
from tests.servers import MEMORYD, START_SECONDS, ServerProcess, memoryd_environment
from tests.service import run_calls
from tests.service.in_process import HookedStore
from tests.service.summarized import set_policy
from tests.service.wire import Stubs, calls, new_key, refused, results, text

IN_MEMORY: Final = ("--store", "default=memory://", "--tokenizer", "estimate")

APPEND: Final = "memoryd.v1.HistoryService/AppendMessages"
LOAD: Final = "memoryd.v1.WindowService/LoadWindow"


class Scrape:
    """What one reading of the metrics tells."""

    def __init__(self, exposed: str) -> None:
        self.text = exposed
        self.families: Mapping[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(exposed)
        }
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """A sample's value. Raises: KeyError when there is no such series."""
        return self.samples[name, frozenset(labels.items())]

    def labels(self, name: str) -> set[str]:
        """All values of the label of this name."""
        return {value for _, labels in self.samples for label, value in labels if label == name}


def read(url: str) -> Scrape:
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return Scrape(answer.read().decode())


def exposed(metrics: Metrics) -> Scrape:
    return Scrape(generate_latest(metrics.registry).decode())


@dataclass(frozen=True)
class Measured:
    """A server that serves metrics."""

    process: ServerProcess
    url: str

    def scrape(self) -> Scrape:
        """The metrics once all calls have ended on the server, which may be after their callers heard so."""
        wait_until(lambda: read(self.url).value("memoryd_calls_in_flight") == 0)
        return read(self.url)


def url_of(server: ServerProcess) -> str:
    """Where the server serves its metrics, as its second line says."""
    assert server.process.stdout is not None
    line = server.process.stdout.readline()
    assert line.startswith("memoryd serves metrics on http://"), line
    return line.removeprefix("memoryd serves metrics on ").strip()


@pytest.fixture
def server(start_server: StartServer) -> Measured:
    process = start_server(*IN_MEMORY, "--metrics-listen", "127.0.0.1:0")
    return Measured(process, url_of(process))


@pytest.fixture
def stubs(server: Measured) -> Iterator[Stubs]:
    with Stubs(server.process.address) as stubs:
        yield stubs


class TestAServer:
    def test_counts_calls_exactly(self, server: Measured, stubs: Stubs, agent: str) -> None:
        """By method and status, with a time for each."""
        key = new_key(agent)
        for number in range(5):
            stubs.append(key, text("hello", id=f"m{number}"))
        refused(lambda: stubs.append(key, text("other"), expected_last_seq=1))
        refused(lambda: stubs.append(key))
        stubs.load(key)

        scrape = server.scrape()
        assert scrape.value("memoryd_calls_started_total", method=APPEND) == 7
        for status, count in {"OK": 5, "ABORTED": 1, "INVALID_ARGUMENT": 1}.items():
            assert scrape.value("memoryd_calls_finished_total", method=APPEND, status=status) == count
        assert scrape.value("memoryd_call_duration_seconds_count", method=APPEND) == 7
        assert 0 < scrape.value("memoryd_call_duration_seconds_sum", method=APPEND) < 60
        assert scrape.value("memoryd_calls_finished_total", method=LOAD, status="OK") == 1
        assert scrape.value("memoryd_calls_in_flight") == 0

    def test_counts_streams_and_those_that_are_given_up(self, server: Measured, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("hello"))
        stubs.stream(key)
        watch: Any = stubs.histories.WatchMessages(history.WatchMessagesRequest(session=key, after_seq=0), timeout=30)
        next(watch)

        under_way = read(server.url)
        assert under_way.value("memoryd_watchers", store="default") == 1
        assert under_way.value("memoryd_calls_in_flight") == 1
        watch.cancel()
        ended = server.scrape()
        assert ended.value("memoryd_watchers", store="default") == 0
        for method, status in {"WindowService/StreamWindow": "OK", "HistoryService/WatchMessages": "CANCELLED"}.items():
            labels = {"method": f"memoryd.v1.{method}", "status": status}
            assert ended.value("memoryd_calls_finished_total", **labels) == 1, method

    def test_counts_commits_and_what_became_of_changes(self, server: Measured, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        for number in range(4):
            stubs.append(key, text("hello", id=f"m{number}"))
        stubs.append(key, text("hello", id="m0"))

        scrape = server.scrape()
        assert scrape.value("memoryd_changes_total", store="default", outcome="committed") == 4
        assert scrape.value("memoryd_changes_total", store="default", outcome="known") == 1
        assert scrape.value("memoryd_changes_total", store="default", outcome="conflict") == 0
        for part in ("changes", "sessions"):
            assert scrape.value(f"memoryd_commit_{part}_count", store="default") == 5
            assert scrape.value(f"memoryd_commit_{part}_sum", store="default") == 5
        assert scrape.value("memoryd_commit_backlog", store="default") == 0
        assert scrape.value("memoryd_store_operation_duration_seconds_count", store="default", operation="commit") == 5

    def test_tells_the_sizes_of_windows_and_what_they_left_out(
        self, server: Measured, stubs: Stubs, agent: str
    ) -> None:
        key = new_key(agent)
        stubs.append(key, *(text(f"{number}") for number in range(6)), results("nobody"), calls("waiting"))
        stubs.append(key, text("the last " + "word " * 1_000))
        tokens = [
            stubs.load(key, limit=4).stats.window_token_count,
            stubs.load(key, mode=policies.WINDOW_MODE_TOKENS, limit=300).stats.window_token_count,
            stubs.load(
                key, mode=policies.WINDOW_MODE_TOKENS, limit=300, oversize=policies.OVERSIZE_RETURN
            ).stats.window_token_count,
        ]

        scrape = server.scrape()
        assert scrape.value("memoryd_window_messages_count", store="default") == 3
        assert scrape.value("memoryd_window_messages_sum", store="default") == 4 + 1 + 1
        assert scrape.value("memoryd_window_tokens_sum", store="default") == sum(tokens)
        left_out = {"limit": 3 + 6 + 6, "orphan_result": 3, "open_tool_call": 3}
        for reason, count in left_out.items():
            assert scrape.value("memoryd_window_left_out_messages_total", store="default", reason=reason) == count, (
                reason
            )
        assert scrape.value("memoryd_window_shortened_messages_total", store="default") == 1
        assert scrape.value("memoryd_windows_over_limit_total", store="default") == 1

    def test_counts_folds_its_own_and_those_of_clients(self, server: Measured, stubs: Stubs, agent: str) -> None:
        """A repeated commit of a task is no second one."""
        own, task_of = new_key(agent), new_key(agent)
        for key, summarizer in ((own, "extractive"), (task_of, "client")):
            stubs.append(key, *(text(f"Fact {number} of Atlas.") for number in range(6)))
            set_policy(stubs, key, summarizer, limit=4)
            stubs.load(key)
        task = stubs.lease(task_of)
        for _ in range(2):
            stubs.commit(task, "Three facts of Atlas.")
        stubs.append(task_of, text("A seventh."))
        for _ in range(2):
            stubs.abandon(stubs.lease(task_of))
        task = stubs.lease(task_of)
        for _ in range(2):
            stubs.abandon(task, failed=True)

        scrape = server.scrape()
        outcomes = {
            outcome: scrape.value("memoryd_folds_total", store="default", outcome=outcome) for outcome in FOLD_OUTCOMES
        }
        assert {outcome: count for outcome, count in outcomes.items() if count} == {"committed": 2, "abandoned": 1}
        assert scrape.value("memoryd_folded_messages_total", store="default") == 3 + 3
        assert scrape.value("memoryd_fold_duration_seconds_count", store="default") == 3
        assert 0 < scrape.value("memoryd_fold_duration_seconds_sum", store="default") < 60
        assert scrape.value("memoryd_folds_under_way", store="default") == 0

    def test_counts_all_methods_that_it_does_not_have_as_one(self, server: Measured, stubs: Stubs) -> None:
        """Their names are made up by callers: as labels, they would fill the memory."""

        def call(method: str) -> None:
            made_up: Any = stubs.channel.unary_unary(method)
            with pytest.raises(grpc.RpcError):
                made_up(b"", timeout=20)

        call("/made.up.Service/First")
        before = server.scrape()
        for number in range(30):
            call(f"/made.up.Service{number}/Method{number}")
        after = server.scrape()

        assert after.samples.keys() == before.samples.keys()
        assert "made" not in after.text
        assert after.value("memoryd_calls_started_total", method="unknown") == 31
        assert after.value("memoryd_calls_finished_total", method="unknown", status="UNIMPLEMENTED") == 31

    def test_takes_no_label_from_a_caller(self, server: Measured, stubs: Stubs, agent: str) -> None:
        """Not one value of a label is more than before, whoever calls about whatever."""
        statuses = {"OK", "INVALID_ARGUMENT"}
        for number in range(10):
            key = new_key(f"{agent}-{number}")
            stubs.append(key, text("hello", id=f"id-{number}"), request_id=f"request-{number}")
            stubs.load(key)
            append = partial(stubs.append, key, text("hello"), metadata=(("memoryd-store", f"store-{number}"),))
            assert refused(append).reason == "STORE_UNKNOWN"

        scrape = server.scrape()
        assert scrape.labels("method") == {method.removeprefix("/") for method in METHODS} | {"unknown"}
        assert scrape.labels("status") == statuses
        assert scrape.labels("store") == {"default"}
        assert scrape.labels("operation") == set(OPERATIONS)
        assert {label for _, labels in scrape.samples for label, _ in labels} <= {
            *("method", "status", "store", "operation", "kind", "outcome", "reason", "le", "generation"),
            *("version", "python_version", "grpc_version", "implementation", "major", "minor", "patchlevel"),
        }

    def test_tells_of_itself(self, server: Measured) -> None:
        scrape = server.scrape()
        assert scrape.value("memoryd_store_up", store="default") == 1
        assert scrape.families["memoryd_build_info"].samples[0].value == 1
        for name in ("process_resident_memory_bytes", "process_open_fds"):
            assert scrape.value(name) > 0
        assert {"python_info", "python_gc_collections"} <= scrape.families.keys()

    def test_names_metrics_as_prometheus_asks_for(self, server: Measured) -> None:
        """Base units, `_total` for counters alone, a help text for each."""
        for family in server.scrape().families.values():
            assert family.documentation, family.name
            if family.name.startswith("memoryd_"):
                assert re.fullmatch(r"[a-z_]+", family.name)
                assert not re.search(r"_(ms|millis\w*|kb|mb|total|count|sum|bucket)$", family.name), family.name
                assert ("duration" in family.name) == family.name.endswith("_duration_seconds")

    def test_closes_the_port_when_it_drains(self, server: Measured) -> None:
        assert server.process.stop() == 0
        with pytest.raises(urllib.error.URLError):
            read(server.url)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came to hold"


class TestThePort:
    def test_is_closed_by_default(self, start_server: StartServer) -> None:
        server = start_server(*IN_MEMORY)
        assert server.stop() == 0
        assert "metrics" not in server.log_text()

    def test_that_is_taken_is_named(self) -> None:
        """It is never shared with whoever listens there."""
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind(("127.0.0.1", 0))
            other.listen()
            address = f"127.0.0.1:{other.getsockname()[1]}"
            ended = subprocess.run(
                [MEMORYD, "serve", "--listen", "127.0.0.1:0", *IN_MEMORY, "--metrics-listen", address],
                env=memoryd_environment(),
                capture_output=True,
                text=True,
                timeout=START_SECONDS,
                check=False,
            )
        assert ended.returncode == 2
        assert f"metrics_listen: cannot listen on {address}" in ended.stderr
        assert "--metrics-listen (MEMORYD_METRICS_LISTEN)" in ended.stderr

    def test_that_is_no_address_is_named(self) -> None:
        ended = subprocess.run(
            [MEMORYD, "serve", "--metrics-listen", "9100"],
            env=memoryd_environment(),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert ended.returncode == 2
        assert "'9100' is no address" in ended.stderr

    def test_answers_beside_readers_that_say_nothing(self) -> None:
        exposition = Exposition(Metrics(METHODS).registry, "127.0.0.1", 0)
        exposition.start()
        try:
            url = f"http://{exposition.address}/metrics"
            where = urlsplit(url)
            with socket.create_connection((where.hostname, where.port)) as silent:
                assert read(url).families
                silent.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert silent.recv(100).startswith(b"HTTP/1.0 200 OK")
        finally:
            exposition.close()

    def test_can_be_closed_before_it_answers(self) -> None:
        exposition = Exposition(CollectorRegistry(), "::1", 0)
        assert exposition.address.startswith("[::1]:")
        exposition.close()


class PooledStore(InMemoryStore):
    """A store that shares eight connections."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = 0

    def pool_status(self) -> PoolStatus:
        return PoolStatus(size=8, in_use=min(self.busy, 8), waiting=max(0, self.busy - 8))


class TestAStore:
    async def test_is_measured_in_all_that_it_does(self) -> None:
        """Each operation of the contract, with what went wrong by kind."""
        metrics = Metrics(METHODS)
        store = HookedStore()
        measure(store, metrics.of_store("default"))
        errors = {
            "unavailable": StoreUnavailable("away"),
            "unexpected": ValueError("x"),
        }
        await store.load(SessionKey("t", "a", "s"))
        for error in errors.values():

            async def fail(method: str, error: Exception = error) -> None:
                del method
                raise error

            store.before = fail
            with pytest.raises(type(error)):
                await store.load(SessionKey("t", "a", "s"))

        scrape = exposed(metrics)
        labels = {"store": "default", "operation": "load"}
        assert scrape.value("memoryd_store_operation_duration_seconds_count", **labels) == 3
        for kind in errors:
            assert scrape.value("memoryd_store_operation_errors_total", kind=kind, **labels) == 1
        assert {"load", "read", "commit", "find", "ping", "now"} <= set(OPERATIONS)
        for operation in OPERATIONS:
            assert getattr(store, operation).__wrapped__, operation

    async def test_is_up_while_it_answers(self) -> None:
        """As the readiness check finds it, which asks all stores every few seconds."""

        async def away(method: str) -> None:
            del method
            raise StoreUnavailable("away")

        metrics, store = Metrics(METHODS), HookedStore()
        answering = store.before
        runtime = Runtime("default", store, await store.open(), Defaults(), metrics.of_store("default"))
        for before, up in ((answering, 1), (away, 0), (answering, 1)):
            store.before = before
            assert await is_reachable(runtime) == up
            assert exposed(metrics).value("memoryd_store_up", store="default") == up

    def test_that_has_a_pool_tells_how_busy_it_is(self) -> None:
        metrics = Metrics(METHODS)
        store = PooledStore()
        metrics.of_store("pooled").watch(store, lambda: 3)
        metrics.of_store("other").watch(InMemoryStore(), lambda: 0)

        scrape = exposed(metrics)
        for busy, in_use, waiting in ((0, 0, 0), (5, 5, 0), (11, 8, 3)):
            store.busy = busy
            scrape = exposed(metrics)
            assert scrape.value("memoryd_store_pool_size", store="pooled") == 8
            assert scrape.value("memoryd_store_pool_in_use", store="pooled") == in_use
            assert scrape.value("memoryd_store_pool_waiting", store="pooled") == waiting
        assert scrape.value("memoryd_commit_backlog", store="pooled") == 3
        assert scrape.families["memoryd_store_pool_size"].samples[0].labels == {"store": "pooled"}

    def test_tells_conflicts_from_what_rested_on_them(self) -> None:
        metrics = Metrics(METHODS)
        changes, outcomes = zip(
            *(
                (change_of(session), outcome)
                for session, outcome in (
                    ("one", Committed()),
                    ("two", Conflict()),
                    ("two", Conflict()),
                    ("three", Known(())),
                    ("three", Conflict()),
                    ("four", Conflict()),
                )
            ),
            strict=True,
        )
        given: tuple[Outcome, ...] = outcomes
        metrics.of_store("default").committed(changes, given)

        scrape = exposed(metrics)
        for outcome, count in {"committed": 1, "conflict": 2, "known": 1, "dependent": 2}.items():
            assert scrape.value("memoryd_changes_total", store="default", outcome=outcome) == count, outcome
        assert scrape.value("memoryd_commit_changes_sum", store="default") == 6
        assert scrape.value("memoryd_commit_sessions_sum", store="default") == 4

    def test_tells_of_the_folds_under_way_and_how_each_ended(self) -> None:
        metrics = Metrics(METHODS)
        instruments = metrics.of_store("default")
        for outcome in FOLD_OUTCOMES:
            instruments.fold_began()
            instruments.fold_began()
            assert exposed(metrics).value("memoryd_folds_under_way", store="default") == 2
            for _ in range(2):
                instruments.fold_ended(outcome, 0.2, 5 if outcome == "committed" else 0)
            assert exposed(metrics).value("memoryd_folds_total", store="default", outcome=outcome) == 2
        scrape = exposed(metrics)
        assert scrape.value("memoryd_folds_under_way", store="default") == 0
        assert scrape.value("memoryd_folded_messages_total", store="default") == 10
        assert scrape.value("memoryd_fold_duration_seconds_count", store="default") == 2 * len(FOLD_OUTCOMES)

    def test_tells_of_its_background_work(self) -> None:
        metrics = Metrics(METHODS)
        instruments = metrics.of_store("default")
        assert exposed(metrics).value("memoryd_sweep_last_success_timestamp_seconds", store="default") == 0

        instruments.swept(Deleted(messages=10, lookups=3))
        instruments.swept(Deleted(messages=1, sessions=2, runs=3, steps=40))
        instruments.expired(4)
        instruments.abandoned(5)
        instruments.sweep_failed()
        for change in (1, 1, -1):
            instruments.watchers(change)

        scrape = exposed(metrics)
        for kind, count in {"messages": 11, "lookups": 3, "sessions": 2, "events": 0, "runs": 3, "steps": 40}.items():
            assert scrape.value("memoryd_sweep_deleted_rows_total", store="default", kind=kind) == count
        assert scrape.value("memoryd_expired_sessions_total", store="default") == 4
        assert scrape.value("memoryd_abandoned_runs_total", store="default") == 5
        assert scrape.value("memoryd_sweep_failures_total", store="default") == 1
        assert scrape.value("memoryd_sweep_last_success_timestamp_seconds", store="default") > 0
        assert scrape.value("memoryd_watchers", store="default") == 1


def test_runs_that_a_server_deletes_are_counted_with_their_steps(
    start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    """By the agent's retention, and never one that goes on. A server looks for them soon after its start."""
    of_both = ("--data-dir", str(tmp_path), "--tokenizer", "estimate")
    first = start_server(*of_both)
    ended, going = (run_calls.run_of(new_key(agent), id_) for id_ in ("ended", "going"))
    with Stubs(first.address) as stubs:
        settings = agents.Agent(agent=agent, run_retention=Duration(nanos=1_000))
        stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=settings))
        run_calls.step(stubs, going, run_calls.create(stubs, going).fence, 1)
        fence = run_calls.create(stubs, ended).fence
        run_calls.step(stubs, ended, fence, 1, b"one", text("stays"))
        run_calls.step(stubs, ended, fence, 2, b"two", status=run_calls.COMPLETED)
    assert first.stop() == 0

    second = start_server(*of_both, "--metrics-listen", "127.0.0.1:0")
    url = url_of(second)

    def swept(kind: str) -> float:
        return read(url).value("memoryd_sweep_deleted_rows_total", store="default", kind=kind)

    wait_until(lambda: swept("runs") > 0)
    assert (swept("runs"), swept("steps")) == (1, 2)
    with Stubs(second.address) as stubs:
        assert refused(lambda: run_calls.get(stubs, ended)).reason == "RUN_NOT_FOUND"
        assert [run.key for run in run_calls.runs(stubs, agent)] == [going]
        assert len(run_calls.steps(stubs, going)) == len(stubs.messages(ended.session)) == 1


def change_of(session: str) -> Change:
    key = SessionKey("tenant", "agent", session)
    return Change(key, None, Record("incarnation", 1, "estimate", created=1, activity=1))


def test_calls_are_counted_around_the_error_boundary() -> None:
    """So that the status is the one that the caller gets (design section 9)."""
    interceptors = chain(InFlight(), Authentication(), Draining(), Metrics(METHODS).calls)
    names = [type(interceptor).__name__ for interceptor in interceptors]
    assert names[:5] == ["InFlight", "Correlation", "AccessLog", "CallMetrics", "ErrorBoundary"]
