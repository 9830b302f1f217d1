"""Redis servers as they are set up: which are refused, what they say of durability, what their failures do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from redis import Redis as Client

from memoryd_server.stores.base import (
    Committed,
    Known,
    Pooled,
    StoreInfo,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
    Version,
)
from memoryd_server.stores.records import LookupKind, SessionKey
from memoryd_server.stores.redis import opening
from memoryd_server.stores.redis.url import read_url
from tests.databases.kinds import REDIS
from tests.databases.plugin import StartDatabaseServer
from tests.databases.redis import connected
from tests.databases.servers import OwnServer, free_ports
from tests.databases.shared import new_database
from tests.stores.builders import USABLE, Session, birth, change_of, lookup, message
from tests.stores.counting_proxy import counting_proxy
from tests.stores.redis_servers import configured, created, opened, with_options
from tests.stores.test_files import INDEX, OWNER, File, owners

pytestmark = REDIS.mark

KEY = SessionKey("tenant", "agent", "session")
PASSWORD = "hunter2"
BODIES = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """A server whose settings tests change, and set back."""
    with OwnServer(REDIS) as server:
        yield server


@pytest.fixture
def url(server: OwnServer) -> Iterator[str]:
    with server.new_database() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connected(url) as client:
        yield client


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def info_of_store(url: str) -> StoreInfo:
    store = created(url)
    try:
        return await store.open()
    finally:
        await store.close()


def reason_of(info: StoreInfo) -> str:
    [durable] = [power for power in info.capabilities if power.name == "durable"]
    assert durable.supported == info.durable
    return durable.reason


class TestDurability:
    """(design section 8: only appendonly yes with appendfsync always is durable)"""

    async def test_of_a_server_that_writes_before_it_answers(self, url: str) -> None:
        info = await info_of_store(url)
        assert info.durable
        assert reason_of(info) == ""

    @pytest.mark.parametrize(
        ("setting", "value", "wanted"),
        [
            ("appendonly", "no", "yes"),
            ("appendfsync", "everysec", "always"),
            ("appendfsync", "no", "always"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
            ("maxmemory-policy", "volatile-ttl", "noeviction"),
        ],
    )
    async def test_of_any_other_is_denied_with_what_to_set(
        self, url: str, client: Client, setting: str, value: str, wanted: str
    ) -> None:
        with configured(client, **{setting.replace("-", "_"): value}):
            info = await info_of_store(url)
        assert not info.durable
        assert f"Redis runs with {setting} {value}" in reason_of(info)
        assert f"Set {setting} {wanted}." in reason_of(info)

    async def test_of_several_faults_names_each(self, url: str, client: Client) -> None:
        with configured(client, appendonly="no", maxmemory_policy="allkeys-random"):
            reason = reason_of(await info_of_store(url))
        assert "Set appendonly yes, maxmemory-policy noeviction." in reason

    async def test_of_a_server_that_hides_its_settings_is_not_known(self, url: str, client: Client) -> None:
        client.acl_setuser("guest", enabled=True, passwords=["+" + PASSWORD], keys=["*"], commands=["+@all", "-config"])
        info = await info_of_store(with_options(url, username="guest", password=PASSWORD))
        assert not info.durable
        assert "does not tell its settings appendfsync" in reason_of(info)
        with configured(client, appendonly="no"):
            info = await info_of_store(with_options(url, username="guest", password=PASSWORD))
        assert "Redis runs with appendonly no" in reason_of(info)


class TestRefused:
    async def test_a_wrong_password(self, url: str, client: Client) -> None:
        wrong = url.replace("redis://", "redis://nobody:wrong@")
        with pytest.raises(StoreMisconfigured, match=r"WRONGPASS.*right user and password") as raised:
            await info_of_store(wrong)
        assert "wrong@" not in str(raised.value)

    async def test_no_password(self, url: str, client: Client) -> None:
        with configured(client, requirepass=PASSWORD):
            with pytest.raises(StoreMisconfigured, match=r"NOAUTH.*right user and password"):
                await info_of_store(url)
            assert (await info_of_store(url.replace("redis://", f"redis://:{PASSWORD}@"))).type == "redis"

    async def test_a_password_that_nobody_set(self, url: str) -> None:
        needless = url.replace("redis://", f"redis://:{PASSWORD}@")
        with pytest.raises(StoreMisconfigured, match=r"Redis has no password.*Leave the password out") as raised:
            await info_of_store(needless)
        assert PASSWORD not in str(raised.value)

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"J\0\0\0\x0a5.5.5-10.11.6-MariaDB\0",
            b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0@\0",
            b"E\0\0\0\x10SFATAL\0",
        ],
        ids=["HTTP", "SSH", "MariaDB", "gRPC", "PostgreSQL"],
    )
    @pytest.mark.parametrize("scheme", ["redis", "rediss"])
    async def test_a_server_of_another_protocol(self, scheme: str, answer: bytes) -> None:
        async with answering(answer) as port:
            with pytest.raises(StoreMisconfigured, match=r"is no Redis.*Correct the host and the port"):
                await info_of_store(f"{scheme}://127.0.0.1:{port}")

    @pytest.mark.parametrize("forbidden", ["-eval -evalsha", "-info", "-@all", "-hset", "-hincrby", "-rename", "-zadd"])
    async def test_a_user_who_may_not_do_what_memoryd_does(self, url: str, client: Client, forbidden: str) -> None:
        commands = ["+@all", *forbidden.split()]
        client.acl_setuser("guest", enabled=True, passwords=["+" + PASSWORD], keys=["*"], commands=commands)
        guest = with_options(url, username="guest", password=PASSWORD)
        with pytest.raises(StoreMisconfigured, match=r"NOPERM.*Give the user of the store's URL the commands"):
            await info_of_store(guest)

    async def test_a_replica(self, url: str, client: Client, start_database_server: StartDatabaseServer) -> None:
        primary = start_database_server(REDIS)
        client.replicaof("127.0.0.1", str(primary.nodes[0].port))
        try:
            with pytest.raises(StoreMisconfigured, match=r"this is a replica.*primary"):
                await info_of_store(url)
        finally:
            client.replicaof("NO", "ONE")

    async def test_several_hosts_that_are_no_cluster(self, url: str) -> None:
        address = url.partition("//")[2].partition("/")[0]
        with pytest.raises(StoreMisconfigured, match="several hosts are for a cluster"):
            await info_of_store(url.replace(address, f"{address},{address}"))

    @pytest.mark.parametrize(
        ("info", "text"),
        [
            ({"redis_version": "6.0.16", "redis_mode": "standalone"}, r"this is Redis 6\.0\.16.*needs 6\.2"),
            ({"redis_version": "5.0.14", "redis_mode": "cluster"}, r"this is Redis 5\.0\.14.*needs 6\.2"),
            ({"redis_version": "7.0.15", "redis_mode": "sentinel"}, "this is a Sentinel.*primary"),
        ],
    )
    def test_what_an_administrator_may_take_for_it(self, info: dict[str, str], text: str) -> None:
        with pytest.raises(StoreMisconfigured, match=text):
            opening.check(read_url("redis://host"), info)

    async def test_a_number_of_a_database_that_is_not_there(self, url: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"no database of the number.*prefix"):
            await info_of_store(with_options(url, db="99"))

    async def test_a_server_that_is_not_there(self) -> None:
        [port] = free_ports(1)
        with pytest.raises(StoreUnavailable, match=r"cannot be reached.*correct the store's URL"):
            await info_of_store(f"redis://127.0.0.1:{port}")

    async def test_a_host_without_an_address(self) -> None:
        with pytest.raises(StoreUnavailable, match=r"host of the store's URL has no address.*Correct the URL"):
            await info_of_store("redis://memoryd.invalid")

    async def test_a_server_that_says_nothing(self) -> None:
        async with answering(b"") as port:
            with pytest.raises(StoreUnavailable, match="did not answer"):
                await info_of_store(f"redis://127.0.0.1:{port}")


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """A server that answers the same to all who connect, whatever they say. Yields: its port."""
    connections: list[asyncio.StreamWriter] = []

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.write(answer)

    server = await asyncio.start_server(greet, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in connections:
            writer.transport.abort()
        server.close()


class TestTLS:
    @pytest.fixture
    def tls_url(self, authority: trustme.CA, url: str, client: Client, tmp_path: Path) -> str:
        """The URL of the server by TLS, with nothing that says whom to trust."""
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
        certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        [port] = free_ports(1)
        # At once: a certificate and the key of another are refused.
        settings = {
            "tls-cert-file": tmp_path / "cert.pem",
            "tls-key-file": tmp_path / "key.pem",
            "tls-ca-cert-file": tmp_path / "ca.pem",
            "tls-auth-clients": "no",
            "tls-port": port,
        }
        first, *others = [str(text) for pair in settings.items() for text in pair]
        client.config_set(first, *others)
        address = url.partition("//")[2].partition("/")[0]
        return url.replace("redis:", "rediss:").replace(address, f"127.0.0.1:{port}")

    async def test_of_a_trusted_server_works(self, tls_url: str, tmp_path: Path) -> None:
        store = await opened(with_options(tls_url, ssl_ca_certs=tmp_path / "ca.pem"))
        session = Session(store, KEY)
        await session.commit(message(1))
        assert await session.tail() == [1]
        await asyncio.gather(*(store.ping() for _ in range(20)))
        await store.close()

    async def test_of_a_stranger_is_refused(self, tls_url: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"TLS with the database failed.*Check ssl_ca_certs"):
            await info_of_store(tls_url)

    async def test_by_another_name_is_refused_unless_it_does_not_matter(self, tls_url: str, tmp_path: Path) -> None:
        by_name = with_options(tls_url.replace("127.0.0.1", "localhost"), ssl_ca_certs=tmp_path / "ca.pem")
        with pytest.raises(StoreMisconfigured, match=r"TLS with the database failed.*host is the one"):
            await info_of_store(by_name)
        assert (await info_of_store(with_options(by_name, ssl_check_hostname="false"))).type == "redis"

    async def test_with_a_file_that_is_not_there_is_refused(self, tls_url: str) -> None:
        with pytest.raises(StoreMisconfigured, match="cannot be read"):
            await info_of_store(with_options(tls_url, ssl_ca_certs="/nowhere/ca.pem"))

    async def test_where_there_is_none_is_refused(self, url: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"speaks no TLS\. Begin the URL with redis:"):
            await info_of_store(url.replace("redis:", "rediss:"))

    async def test_is_asked_for_where_there_is_nothing_else(self, tls_url: str) -> None:
        with pytest.raises(StoreMisconfigured, match=r"speaks TLS\. Begin the URL with rediss:"):
            await info_of_store(tls_url.replace("rediss:", "redis:"))

    async def test_with_a_certificate_that_the_server_asks_for_and_nobody_gave(
        self, tls_url: str, tmp_path: Path, client: Client
    ) -> None:
        with (
            configured(client, tls_auth_clients="yes"),
            pytest.raises(StoreMisconfigured, match=r"ended the connection.*ssl_certfile and ssl_keyfile"),
        ):
            await info_of_store(with_options(tls_url, ssl_ca_certs=tmp_path / "ca.pem"))

    def test_is_of_a_version_that_is_safe(self, tmp_path: Path) -> None:
        target = read_url("rediss://host")
        assert target.tls is not None
        assert ssl.create_default_context().minimum_version >= ssl.TLSVersion.TLSv1_2


class TestFailures:
    async def test_of_memory_refuse_appends_and_let_sessions_go(self, url: str, client: Client) -> None:
        store = await opened(url)
        session, other = Session(store, KEY), KEY._replace(session_id="other")
        record = await session.commit(message(1), lookups=[lookup("1")])
        with configured(client, maxmemory=1):
            for change in (change_of(KEY, record, message(2), lookups=[lookup("2")]), birth(other, message(1))):
                with pytest.raises(StoreUnavailable, match=r"OOM.*raise maxmemory"):
                    await store.commit([change])
            assert await session.tail() == [1]
            assert await store.find(KEY, LookupKind.MESSAGE, ["2"]) == []
            await session.die()
        assert await store.load(KEY) is None
        assert await store.load(other) is None
        await store.close()

    async def test_of_memory_refuse_files_and_let_them_go(self, url: str, client: Client) -> None:
        store = await opened(url)
        file, other = File(store), File(store, name="2026-01-01.md")
        saved = await file.save(b"a")
        with configured(client, maxmemory=1):
            for each in (file, other):
                with pytest.raises(StoreUnavailable, match=r"OOM.*raise maxmemory"):
                    await store.save_file(each.next(b"b"), each.expected)
            assert list(await store.load_files([file.key, other.key])) == [saved]
            assert list(await store.list_files(OWNER, "", 10)) == [(INDEX, saved.version)]
            assert await store.list_file_versions(file.key) == [saved.version]
            assert file.expected is not None
            assert await store.delete_file(file.key, file.expected)
        assert (await store.load_files([file.key]), await owners(store)) == ([], [])
        await store.close()

    async def test_of_a_primary_that_was_demoted_are_told(
        self, url: str, client: Client, start_database_server: StartDatabaseServer
    ) -> None:
        store = await opened(url)
        record = await Session(store, KEY).commit(message(1))
        file = File(store)
        await file.save(b"a")
        assert file.expected is not None
        planned, expected = file.next(b"b"), file.expected
        primary = start_database_server(REDIS)
        client.replicaof("127.0.0.1", str(primary.nodes[0].port))
        try:
            for work in (
                lambda: store.commit([change_of(KEY, record, message(2))]),
                lambda: store.save_file(planned, expected),
                lambda: store.delete_file(file.key, expected),
            ):
                with pytest.raises(StoreUnavailable, match=r"READONLY.*Repeat the call|READONLY.*demoted"):
                    await work()
        finally:
            client.replicaof("NO", "ONE")
        await store.close()

    async def test_of_replicas_that_are_asked_for_are_told_and_a_repetition_is_recognized(self, url: str) -> None:
        """What no replica has is not answered, neither at first nor when it is asked for again."""
        await info_of_store(url)
        store = await opened(with_options(url, replicas=1))
        change = birth(KEY, message(1), lookups=[lookup("1")])
        with pytest.raises(StoreUnavailable, match=r"0 of 1 replicas confirmed.*may or may not be made"):
            await store.commit([change])
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.commit([change])
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.find(KEY, LookupKind.MESSAGE, ["1"])
        assert await store.find(KEY, LookupKind.MESSAGE, ["2"]) == []
        await store.close()
        other = await opened(url)
        assert await Session(other, KEY).tail() == [1]
        assert await other.commit([change]) == [Known([lookup("1")])]
        await other.close()

    async def test_of_replicas_leave_a_change_of_a_file_unknown(self, url: str) -> None:
        await info_of_store(url)
        store = await opened(with_options(url, replicas=1))
        file = File(store)
        first = file.next(b"a")
        with pytest.raises(StoreUnavailable, match=r"0 of 1 replicas confirmed.*may or may not be made"):
            await store.save_file(first, None)
        assert list(await store.load_files([file.key])) == [first]
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.delete_file(file.key, Version(first.incarnation, 1))
        assert await store.load_files([file.key]) == []
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.save_file(first, None)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await store.erase("tenant", "user", 10)
        assert await owners(store) == []
        await store.close()


class TestOutage:
    async def test_calls_in_between_fail_and_everything_works_again_without_a_restart(
        self, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(REDIS)
        with server.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            await session.commit(message(1), lookups=[lookup("1")])
            for end, seq in ((server.kill, 2), (server.stop, 3)):
                end()
                for work in (lambda: store.load(KEY), lambda: store.commit([birth(KEY)]), store.ping, store.now):
                    with pytest.raises(StoreUnavailable, match="Repeat the call"):
                        await asyncio.wait_for(work(), 10)
                server.start()
                await session.commit(message(seq), lookups=[lookup(f"{seq}")])
                assert await session.tail() == [*range(seq, 0, -1)]
            assert store.pool_status().in_use == 0
            await store.close()

    async def test_a_read_on_connections_that_a_restart_ended_does_not_fail(
        self, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(REDIS)
        with server.new_database() as url:
            store = await opened(url)
            session = Session(store, KEY)
            await session.commit(message(1))
            await asyncio.gather(*(store.ping() for _ in range(5)))
            server.kill()
            server.start()
            assert await store.load(KEY) is not None
            await session.commit(message(2))
            await store.close()

    async def test_a_silent_database_is_given_up_soon_and_used_again_when_it_speaks(self, url: str) -> None:
        async with counting_proxy(url) as (proxy, through):
            store = await opened(with_options(through, timeout=0.3))
            session = Session(store, KEY)
            record = await session.commit(message(1))
            proxy.fall_silent()
            calls = [store.load(KEY, Tail(USABLE, 5)) for _ in range(30)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {StoreUnavailable}
            with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 seconds"):
                await store.commit([change_of(KEY, record, message(2))])
            proxy.speak()
            assert (await store.load(KEY)) is not None
            assert store.pool_status().in_use == store.pool_status().waiting == 0
            await store.close()

    async def test_a_server_that_stands_still_at_the_start_is_told(
        self, start_database_server: StartDatabaseServer
    ) -> None:
        server = start_database_server(REDIS)
        with (
            server.new_database() as url,
            server.hanging(),
            pytest.raises(StoreUnavailable, match="did not answer within"),
        ):
            await asyncio.wait_for(info_of_store(with_options(url, timeout=0.5)), 10)


class TestCancellation:
    """A cancelled call leaks nothing, leaves no partial write, and no answer for the next call (invariant 16)."""

    async def test_of_200_calls_leaves_the_connections_whole(self, url: str) -> None:
        store = await opened(with_options(url, connections=3))
        session = Session(store, KEY)
        await session.commit(*map(message, range(1, 201)))
        for number in range(200):
            assert session.record is not None
            change = change_of(KEY, session.record, message(201), message(202), lookups=[lookup("a")])
            calls = [
                asyncio.create_task(store.load(KEY, Tail(USABLE, 50, body_bytes=BODIES))),
                asyncio.create_task(store.commit([change]) if number % 10 == 0 else store.now()),
            ]
            for _ in range(number % 9):
                await asyncio.sleep(0)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert await store.now() > 1_600_000_000_000_000
        status = store.pool_status()
        assert (status.size, status.in_use, status.waiting) == (3, 0, 0)
        assert await session.tail(messages=2) in ([200, 199], [202, 201])
        await store.close()


class TestConnections:
    async def test_are_made_when_they_are_needed_and_are_bounded(self, url: str) -> None:
        async with counting_proxy(url) as (proxy, through):
            store = await opened(with_options(through, connections=4))
            assert isinstance(store, Pooled)
            for _ in range(5):
                await store.ping()
            few = proxy.connections
            await asyncio.gather(*(store.load(KEY) for _ in range(200)))
            assert few <= 3
            assert proxy.connections <= few + 4
            await store.close()

    async def test_say_whose_they_are(self, url: str, client: Client) -> None:
        store = await opened(url)
        assert "memoryd" in [each["name"] for each in client.client_list()]
        await store.close()

    async def test_a_closed_store_is_unavailable(self, url: str) -> None:
        store = await opened(url)
        await store.close()
        file = File(store)
        for work in (
            store.ping(),
            store.load(KEY),
            store.commit([birth(KEY)]),
            store.load_files([file.key]),
            store.save_file(file.next(b"a"), None),
        ):
            with pytest.raises(StoreUnavailable, match="closed"):
                await work


async def test_a_database_that_others_use_too_is_no_hindrance() -> None:
    """Keys of other programs, and of none of our types, are left alone."""
    with new_database(REDIS) as url, connected(url) as client:
        client.set("memoryd", "a text")
        client.lpush("someone:else", "x")
        store = await opened(url)
        assert await store.commit([birth(KEY, message(1))]) == [Committed()]
        assert client.get("memoryd") == b"a text"
        client.delete("memoryd", "someone:else")
        await store.close()
