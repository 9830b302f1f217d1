"""Builds the server, runs it, drains it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
import structlog
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from memoryd.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    history_service_pb2,
    history_service_pb2_grpc,
    memory_context_service_pb2,
    memory_context_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    store_service_pb2,
    store_service_pb2_grpc,
    summary_service_pb2,
    summary_service_pb2_grpc,
    window_service_pb2,
    window_service_pb2_grpc,
)
from memoryd_server import limits, logs
from memoryd_server.config import Settings, SettingsError, split_address
from memoryd_server.credentials.access import Access
from memoryd_server.engine import tokens
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.stores import Stores
from memoryd_server.engine.sweeping import Sweeper, follow_store_clock
from memoryd_server.interceptors import Authentication, Draining, InFlight, chain
from memoryd_server.opening import make_data_directory, open_store
from memoryd_server.services.agent_service import AgentService
from memoryd_server.services.health import HealthService
from memoryd_server.services.history_service import HistoryService
from memoryd_server.services.memory_context_service import MemoryContextService
from memoryd_server.services.run_service import RunService
from memoryd_server.services.store_service import StoreService
from memoryd_server.services.summary_service import SummaryService
from memoryd_server.services.window_service import WindowService
from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.summarizing import create_summarizers

if TYPE_CHECKING:
    from memoryd_server.metrics import Metrics
    from memoryd_server.metrics.exposition import Exposition

MIN_PING_INTERVAL_MS: Final = 10_000
"""Clients may send keepalive pings this often (design section 9)."""

PING_INTERVAL_MS: Final = 60_000
PING_TIMEOUT_MS: Final = 20_000
"""How often the server asks a silent connection whether anybody is there, and how long it waits: what a watcher that
vanished without a word held is then free again."""

LAME_DUCK_SECONDS: Final = 0.3
"""How long a server that drains refuses calls by itself before gRPC does: from then on, a call that was on its way is
CANCELLED, which no client tries again."""

STATUS_SECONDS: Final = 1.0
"""How long the last answers and statuses may take to leave, before gRPC ends what is left."""

CLEANUP_SECONDS: Final = 5.0
"""How long handlers that were ended by the drain may take for their last steps."""

_OURS: Final = tuple(
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (history_service_pb2, "HistoryService"),
        (window_service_pb2, "WindowService"),
        (summary_service_pb2, "SummaryService"),
        (memory_context_service_pb2, "MemoryContextService"),
        (run_service_pb2, "RunService"),
        (agent_service_pb2, "AgentService"),
        (store_service_pb2, "StoreService"),
    )
)

SERVICES: Final = tuple(service.full_name for service in _OURS)
"""Full names of the services of memoryd."""

REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"

METHODS: Final = (
    *(f"/{service.full_name}/{method.name}" for service in _OURS for method in service.methods),
    *(f"/grpc.health.v1.Health/{method.name}" for method in health_pb2.DESCRIPTOR.services_by_name["Health"].methods),
    *(f"/{service}/ServerReflectionInfo" for service in (REFLECTION_V1, reflection.SERVICE_NAME)),
)
"""The methods that the server may have, as gRPC writes them."""

_log: Final = structlog.stdlib.get_logger("memoryd")


@dataclass(frozen=True, slots=True)
class App:
    """A server that is built, and not started."""

    server: grpc.aio.Server
    stores: Stores
    health: HealthService
    in_flight: InFlight
    draining: Draining
    access: Access
    address: str
    """The host and port that it is bound to."""
    exposition: Exposition | None = None
    """The port of the metrics, if they are served."""


def create_metrics(settings: Settings) -> Metrics | None:
    """The metrics of a server; None when nobody is to read any, and then nothing is counted."""
    if settings.metrics_listen is None:
        return None
    from memoryd_server.metrics import Metrics

    return Metrics(METHODS)


@asynccontextmanager
async def open_stores(settings: Settings, metrics: Metrics | None = None) -> AsyncIterator[Stores]:
    """Opens all configured stores, and closes them at the end. What they do is counted in `metrics`.

    Raises: SettingsError for one that is not set up right, StoreUnavailable for one that does not answer.
    """
    defaults = Defaults(
        tokenizer=settings.tokenizer,
        summarizer=settings.summarizer,
        run_retention=settings.run_retention_microseconds,
        run_recoveries=settings.run_recoveries,
    )
    summarizers = create_summarizers(settings)
    if not settings.stores:
        make_data_directory(settings.data_dir.expanduser())
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(summarizers.close)
        runtimes: dict[str, Runtime] = {}
        for name, configured in settings.effective_stores.items():
            with structlog.contextvars.bound_contextvars(store=name):
                runtimes[name] = await open_store(name, configured, defaults, metrics, summarizers)
            opened.push_async_callback(runtimes[name].close)
        yield Stores(runtimes, settings.effective_default_store)


def build(
    settings: Settings,
    stores: Stores,
    extra_handlers: Sequence[grpc.GenericRpcHandler] = (),
    metrics: Metrics | None = None,
    access: Access | None = None,
) -> App:
    """Builds the server and binds its ports.

    `access` defaults to what the settings say.
    `extra_handlers` are served through the same interceptors (the benchmarks measure their floor with one).

    Raises: SettingsError when a port is taken, or when the tokens or the certificate cannot be used.
    """
    in_flight, draining = InFlight(), Draining()
    access = access or Access.of(settings)
    server = grpc.aio.server(
        interceptors=chain(
            in_flight, Authentication(access.tokens), draining, None if metrics is None else metrics.calls
        ),
        options=[
            ("grpc.max_receive_message_length", limits.MAX_REQUEST_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
            ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
            ("grpc.so_reuseport", 0),
        ],
    )
    health = HealthService(stores, SERVICES)
    history_service_pb2_grpc.add_HistoryServiceServicer_to_server(HistoryService(stores), server)
    window_service_pb2_grpc.add_WindowServiceServicer_to_server(WindowService(stores), server)
    summary_service_pb2_grpc.add_SummaryServiceServicer_to_server(SummaryService(stores), server)
    memory_context_service_pb2_grpc.add_MemoryContextServiceServicer_to_server(MemoryContextService(stores), server)
    agent_service_pb2_grpc.add_AgentServiceServicer_to_server(AgentService(stores), server)
    run_service_pb2_grpc.add_RunServiceServicer_to_server(RunService(stores), server)
    store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreService(stores), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if settings.reflection:
        _add_reflection(server)
    if extra_handlers:
        server.add_generic_rpc_handlers(tuple(extra_handlers))
    host, port = split_address(settings.listen)
    host = f"[{host}]" if ":" in host else host
    try:
        bound = access.bind(server, f"{host}:{port}")
    except RuntimeError as error:
        raise SettingsError(
            f"listen: cannot listen on {settings.listen}: the port is taken, or the host is not this machine's; stop "
            "the other server, or choose another port with --listen (MEMORYD_LISTEN)"
        ) from error
    exposition = _exposition(settings, metrics, in_flight)
    return App(server, stores, health, in_flight, draining, access, f"{host}:{bound}", exposition)


def _exposition(settings: Settings, metrics: Metrics | None, in_flight: InFlight) -> Exposition | None:
    if metrics is None or settings.metrics_listen is None:
        return None
    from memoryd_server.metrics.exposition import Exposition

    metrics.watch_calls_in_flight(lambda: in_flight.count)
    try:
        return Exposition(metrics.registry, *split_address(settings.metrics_listen))
    except OSError as error:
        raise SettingsError(
            f"metrics_listen: cannot listen on {settings.metrics_listen} ({error.strerror}): choose another port with "
            "--metrics-listen (MEMORYD_METRICS_LISTEN)"
        ) from error


def _add_reflection(server: grpc.aio.Server) -> None:
    """Serves reflection v1, and v1alpha for older tools. The two differ by name alone; grpcio brings code for the
    latter.
    """
    names = [*SERVICES, "grpc.health.v1.Health", REFLECTION_V1, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    method = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": method}),)
    )


async def serve(settings: Settings, *, started: Callable[[App], None] | None = None) -> None:
    """Runs a server until SIGTERM or SIGINT, then drains it.

    Raises: SettingsError, StoreUnavailable.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.tell_of_loop_error)
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_, stop.set)
    metrics = create_metrics(settings)
    # Before the stores: a start that fails has changed no schema.
    access = Access.of(settings)
    async with open_stores(settings, metrics) as stores:
        await asyncio.to_thread(tokens.counter, settings.tokenizer)
        app = build(settings, stores, metrics=metrics, access=access)
        await app.server.start()
        background = [
            asyncio.create_task(app.health.refresh_for_ever(), name="health"),
            *(asyncio.create_task(following, name="credentials") for following in app.access.follow()),
            *(
                asyncio.create_task(_work_for(runtime, work), name=f"{name} {runtime.name}")
                for runtime in stores.all()
                for name, work in (("sweep", Sweeper(runtime).run_for_ever()), ("clock", follow_store_clock(runtime)))
            ),
        ]
        # What the start made lives as long as the process: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        _log.info("serving", address=app.address, pid=os.getpid())
        if app.exposition is not None:
            app.exposition.start()
            _log.info("serving metrics", address=app.exposition.address)
        if started is not None:
            started(app)
        await stop.wait()
        await drain(app, settings.drain_seconds, settings.drain_delay_seconds)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        if app.exposition is not None:
            await asyncio.to_thread(app.exposition.close)
    _log.info("stopped")


async def _work_for(runtime: Runtime, work: Awaitable[None]) -> None:
    """Does background work of one store, whose name all log lines of it carry."""
    structlog.contextvars.bind_contextvars(store=runtime.name)
    await work


async def drain(app: App, seconds: float, delay_seconds: float = 0) -> None:
    """Ends a server so that every call gets a status (invariant 16): no new calls, time for those under way, then
    their end.

    Before that, calls are taken for `delay_seconds` as if nothing were: a balancer learns only when it asks that health
    is NOT_SERVING, and of the calls that it sends until then some cannot be tried again.
    """
    _log.info("draining", delay_seconds=delay_seconds, seconds=seconds, calls=app.in_flight.count)
    await app.health.enter_graceful_shutdown()
    await asyncio.sleep(delay_seconds)
    app.draining.refuse_calls()
    await asyncio.sleep(LAME_DUCK_SECONDS)
    stopping = asyncio.create_task(app.server.stop(seconds + CLEANUP_SECONDS))  # Tells callers to go elsewhere.
    await _in_time(app.in_flight.wait_until_idle(but_for_endless=True), seconds)
    app.draining.end_calls()
    if not await _in_time(asyncio.shield(stopping), STATUS_SECONDS):
        await app.server.stop(None)
    await stopping
    await _in_time(app.in_flight.wait_until_idle(), CLEANUP_SECONDS)


async def _in_time(waiting: Awaitable[None], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return False
    return True


def _tell(app: App) -> None:
    """Says on standard output where the server can be reached; with port 0, nobody else knows."""
    sys.stdout.write(f"memoryd serves on {app.address}\n")
    if app.exposition is not None:
        sys.stdout.write(f"memoryd serves metrics on http://{app.exposition.address}/metrics\n")
    sys.stdout.flush()


def run(settings: Settings) -> int:
    """Runs a server in this process. Returns: the exit status, 0 after a drain and 2 when it cannot start."""
    logs.set_up(settings.log_level, settings.log_format)
    _log.info("starting", version=version("memoryd-server"), listen=settings.listen)
    try:
        uvloop.run(serve(settings, started=_tell))
    except SettingsError as error:
        sys.stderr.write(f"memoryd cannot start: {error}\n")
        return 2
    except StoreUnavailable as error:
        sys.stderr.write(f"memoryd cannot start: {error}\n")
        return 2
    return 0
