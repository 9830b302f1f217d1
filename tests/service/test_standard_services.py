"""Health, reflection, and how the server itself is set up (design section 9)."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from memoryd_server import app, limits
from memoryd_server.config import load_settings
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors import Authentication, Draining, InFlight, chain
from memoryd_server.stores.base import StoreUnavailable
from tests.conftest import StartServer
from tests.service.in_process import HookedStore, serving, until
from tests.service.wire import Stubs

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

SERVICES: Final = (
    "memoryd.v1.AgentService",
    "memoryd.v1.HistoryService",
    "memoryd.v1.MemoryContextService",
    "memoryd.v1.RunService",
    "memoryd.v1.StoreService",
    "memoryd.v1.SummaryService",
    "memoryd.v1.WindowService",
)


async def away(method: str) -> None:
    """Before each call to a store that does not answer."""
    del method
    raise StoreUnavailable("away")


class TestHealth:
    @pytest.mark.parametrize("service", ["", *SERVICES])
    def test_of_the_server_and_of_each_service_is_told(self, stubs: Stubs, service: str) -> None:
        health: Any = health_pb2_grpc.HealthStub(stubs.channel)

        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service=service))
        assert next(watch).status == SERVING
        watch.cancel()

    async def test_of_all_services_is_told_at_once(self) -> None:
        protocol: Any = health_pb2  # Its stubs are older than the method.
        request = protocol.HealthListRequest()
        store = HookedStore()
        async with serving(store) as (_, stubs):
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            answer = await health.List(request)
            assert {name: each.status for name, each in answer.statuses.items()} == dict.fromkeys(
                ("", *SERVICES), SERVING
            )
            store.before = away
            answer = await health.List(request)
            assert {each.status for each in answer.statuses.values()} == {NOT_SERVING}

    def test_of_an_unknown_service_is_not_found(self, sqlite_stubs: Stubs) -> None:
        health: Any = health_pb2_grpc.HealthStub(sqlite_stubs.channel)
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(service="memoryd.v1.Nothing"))
        failed: Any = caught.value
        assert failed.code() == grpc.StatusCode.NOT_FOUND

    async def test_rests_on_the_store(self) -> None:
        """NOT_SERVING while the default store does not answer, and SERVING again when it does."""
        store = HookedStore()
        healthy = store.before
        async with serving(store) as (_, stubs):
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            for before, expected in ((healthy, SERVING), (away, NOT_SERVING), (healthy, SERVING)):
                store.before = before
                for service in ("", *SERVICES):
                    answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                    assert answer.status == expected

    async def test_does_not_wait_for_a_store_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The readiness check is bounded in time."""
        monkeypatch.setattr(limits, "STORE_PROBE_SECONDS", 0.05)
        hanging = 0

        async def hang(method: str) -> None:
            nonlocal hanging
            del method
            hanging += 1
            try:
                await until(lambda: False, seconds=60)
            finally:
                hanging -= 1

        store = HookedStore()
        store.before = hang
        async with serving(store) as (_, stubs):
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=20)
            assert answer.status == NOT_SERVING
            assert not hanging


class TestReflection:
    @pytest.mark.parametrize("version", ["v1", "v1alpha"])
    def test_lists_all_services(self, sqlite_stubs: Stubs, version: str) -> None:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflect(sqlite_stubs, version, request)

        names = {service.name for service in answer.list_services_response.service}
        assert names == {
            *SERVICES,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        }

    @pytest.mark.parametrize("version", ["v1", "v1alpha"])
    @pytest.mark.parametrize("service", SERVICES)
    def test_describes_each_service(self, sqlite_stubs: Stubs, version: str, service: str) -> None:
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
        (answer,) = reflect(sqlite_stubs, version, request)

        files = [FileDescriptorProto.FromString(file) for file in answer.file_descriptor_response.file_descriptor_proto]
        assert service.rpartition(".")[2] in {found.name for file in files for found in file.service}

    def test_answers_several_requests_of_one_stream(self, sqlite_stubs: Stubs) -> None:
        requests = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=service) for service in SERVICES]
        assert len(reflect(sqlite_stubs, "v1", *requests)) == len(SERVICES)

    def test_can_be_left_out(self, start_server: StartServer) -> None:
        server = start_server("--no-reflection", "--store", "default=memory://", "--tokenizer", "estimate")
        with Stubs(server.address) as stubs, pytest.raises(grpc.RpcError) as caught:
            reflect(stubs, "v1", reflection_pb2.ServerReflectionRequest(list_services=""))
        failed: Any = caught.value
        assert failed.code() == grpc.StatusCode.UNIMPLEMENTED


def reflect(
    stubs: Stubs, version: str, *requests: reflection_pb2.ServerReflectionRequest
) -> list[reflection_pb2.ServerReflectionResponse]:
    call: Any = stubs.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return list(call(iter(requests), timeout=20))


def test_interceptors_stand_in_their_order() -> None:
    """As design section 9 says; calls are counted around all of it."""
    names = [type(interceptor).__name__ for interceptor in chain(InFlight(), Authentication(), Draining())]

    assert names == ["InFlight", "Correlation", "AccessLog", "ErrorBoundary", "Authentication", "Draining", "Deadline"]


class TestTheServersOptions:
    @pytest.fixture
    def options(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
        """The options that a server is built with."""
        given: dict[str, object] = {}
        build_server = grpc.aio.server

        def server(**arguments: Any) -> grpc.aio.Server:
            given.update(arguments["options"])
            return build_server(**arguments)

        monkeypatch.setattr(grpc.aio, "server", server)
        return given

    async def test_allow_pings_bound_requests_and_share_no_port(self, options: dict[str, object]) -> None:
        app.build(load_settings({"listen": "127.0.0.1:0"}), Stores({}, "default"))

        # The option that counts is this one; the similar min_recv_ping_interval does nothing.
        assert options["grpc.http2.min_ping_interval_without_data_ms"] == 10_000
        assert options["grpc.keepalive_permit_without_calls"] == 1
        assert options["grpc.max_receive_message_length"] == 16 * 1024 * 1024
        assert options["grpc.max_send_message_length"] == -1
        assert options["grpc.so_reuseport"] == 0
