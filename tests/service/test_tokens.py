"""Bearer tokens: who is let in, and what changes of the token file do while a server runs (design section 9)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from structlog.testing import capture_logs

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1.session_pb2 import SessionKey
from memoryd_server.app import METHODS, build
from memoryd_server.config import SettingsError, load_settings
from memoryd_server.credentials import token_editing, token_file
from memoryd_server.credentials.access import Access
from memoryd_server.credentials.reloading import ReloadedFiles, Unusable
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.stores import Stores
from memoryd_server.interceptors.correlation import Call
from memoryd_server.stores.memory import InMemoryStore
from tests.cli.commands import wait_for
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.in_process import connect
from tests.service.wire import Refusal, Stubs, refusal_of, refused, seqs, text

KEY: Final = SessionKey(agent="a", session_id="s")
UNAUTHENTICATED: Final = grpc.StatusCode.UNAUTHENTICATED


def asked(address: str, *authorization: str) -> Refusal | None:
    """What a call with this metadata is told; None when it is served."""
    with Stubs(address) as stubs:
        metadata = tuple(("authorization", each) for each in authorization)
        try:
            stubs.histories.ListSessions(history.ListSessionsRequest(), timeout=30, metadata=metadata)
        except grpc.RpcError as error:
            return refusal_of(error)
    return None


def is_served(address: str, token: str) -> bool:
    return asked(address, f"Bearer {token}") is None


class Guarded:
    """A server with a token file, and what one does with them."""

    def __init__(self, start: StartServer, path: Path) -> None:
        self.path = path
        self.token = self.create("acme")
        flags = ("--store", "default=memory://", "--tokenizer", "estimate", "--log-level", "debug")
        self.server: ServerProcess = start(*flags, "--tokens-file", str(path))

    def create(self, tenant: str, name: str = "") -> str:
        return token_editing.create(self.path, tenant, name)[0]

    def revoke(self, token: str) -> None:
        token_editing.revoke(self.path, token_file.digest_of(token).hex())

    def serves(self, token: str) -> bool:
        return is_served(self.server.address, token)

    def stubs(self, token: str = "") -> Stubs:
        return Stubs(self.server.address, token=token or self.token)


@pytest.fixture
def guarded(start_server: StartServer, tmp_path: Path) -> Guarded:
    return Guarded(start_server, tmp_path / "tokens.toml")


class TestCallers:
    def test_with_a_token_are_served(self, guarded: Guarded) -> None:
        with guarded.stubs() as stubs:
            assert seqs(stubs.append(KEY, text("one"))) == [1]
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert asked(guarded.server.address, f"{scheme} {guarded.token}") is None

    def test_without_a_token_are_told_what_is_missing(self, guarded: Guarded) -> None:
        refusal = asked(guarded.server.address)

        assert refusal is not None
        assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "CREDENTIAL_MISSING")
        for part in ("authorization: Bearer TOKEN", "MEMORYD_TOKEN", "`memoryd token create`"):
            assert part in refusal.text

    def test_with_anything_else_are_refused_with_one_answer(self, guarded: Guarded) -> None:
        """It tells neither what is wrong with a token nor whether there ever was such a one."""
        revoked = guarded.create("acme")
        wait_for(lambda: guarded.serves(revoked))
        guarded.revoke(revoked)
        wait_for(lambda: not guarded.serves(revoked))
        good = guarded.token
        wrong: dict[str, tuple[str, ...]] = {
            "another": (f"Bearer memoryd_{'A' * 43}",),
            "a revoked one": (f"Bearer {revoked}",),
            "its hash": (f"Bearer {hashlib.sha256(good.encode()).hexdigest()}",),
            "a part of it": (f"Bearer {good[:-1]}",),
            "more than it": (f"Bearer {good}x",),
            "in another case": (f"Bearer {good.upper()}",),
            "without a scheme": (good,),
            "with another scheme": (f"Basic {good}",),
            "without a space": (f"Bearer{good}",),
            "none": ("Bearer ",),
            "nothing": ("",),
            "two": (f"Bearer {good}", f"Bearer {good}"),
            "a list": (f"Bearer {good}, Bearer {good}",),
            "a long one": (f"Bearer {'x' * 4_000}",),
        }
        answers = set()
        for name, authorization in wrong.items():
            refusal = asked(guarded.server.address, *authorization)
            assert refusal is not None, name
            answers.add(
                (refusal.code, refusal.reason, refusal.text, *sorted(set(refusal.metadata) - {"correlation_id"}))
            )
        assert len(answers) == 1
        assert next(iter(answers))[:2] == (UNAUTHENTICATED, "CREDENTIAL_INVALID")
        assert guarded.serves(good)

    @pytest.mark.parametrize("method", [method for method in METHODS if not method.startswith("/grpc.health.")])
    def test_need_a_token_for_every_method(self, guarded_once: Guarded, method: str) -> None:
        for token, reason in (("", "CREDENTIAL_MISSING"), ("wrong", "CREDENTIAL_INVALID")):
            with Stubs(guarded_once.server.address, token=token) as stubs:
                call: Any = stubs.channel.stream_stream(method)
                refusal = refused(lambda: list(call(iter([b""]), timeout=30)))  # noqa: B023 - called at once.
            assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)

    def test_need_none_for_health(self, guarded: Guarded) -> None:
        with Stubs(guarded.server.address) as stubs:
            health: Any = health_pb2_grpc.HealthStub(stubs.channel)
            assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            watch.cancel()

    def test_of_a_server_without_tokens_are_one_tenant(self, start_server: StartServer, tmp_path: Path) -> None:
        """`default`: so a token of this tenant opens what was there before."""
        data = ("--data-dir", str(tmp_path / "data"), "--tokenizer", "estimate")
        server = start_server(*data)
        for token in ("", "any", "another"):
            with Stubs(server.address, token=token) as stubs:
                stubs.append(KEY, text("one"))
        server.stop()
        path = tmp_path / "tokens.toml"
        default, other = (token_editing.create(path, tenant, "")[0] for tenant in ("default", "acme"))
        server = start_server(*data, "--tokens-file", str(path))
        with Stubs(server.address, token=default) as stubs:
            assert len(stubs.messages(KEY)) == 3
        with Stubs(server.address, token=other) as stubs:
            assert refused(lambda: stubs.messages(KEY)).reason == "SESSION_NOT_FOUND"


@pytest.fixture(scope="module")
def guarded_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """For tests that leave the token file alone."""
    directory = tmp_path_factory.mktemp("guarded")
    started: list[ServerProcess] = []

    def start(*arguments: str, **options: Any) -> ServerProcess:
        started.append(ServerProcess(*arguments, log=directory / "server.log", **options))
        return started[-1]

    yield Guarded(start, directory / "tokens.toml")
    for server in started:
        server.close()


class TestAChangeOfTheFile:
    def test_is_in_force_without_a_restart(self, guarded: Guarded) -> None:
        """As in a rotation: the new token beside the old one, then without it."""
        old, new = guarded.token, guarded.create("acme", "new")
        wait_for(lambda: guarded.serves(new))
        assert guarded.serves(old)
        guarded.revoke(old)
        wait_for(lambda: not guarded.serves(old))
        assert guarded.serves(new)

    def test_may_be_a_swap_of_links(self, start_server: StartServer, tmp_path: Path) -> None:
        """Kubernetes mounts a secret as a link to a directory that is itself a link, and swaps the latter."""
        tokens = {}
        for version in ("v1", "v2"):
            (tmp_path / version).mkdir()
            tokens[version] = token_editing.create(tmp_path / version / "tokens.toml", "acme", "")[0]
        (tmp_path / "data").symlink_to("v1")
        (tmp_path / "tokens.toml").symlink_to("data/tokens.toml")
        server = start_server("--store", "default=memory://", "--tokens-file", str(tmp_path / "tokens.toml"))
        assert is_served(server.address, tokens["v1"])
        assert not is_served(server.address, tokens["v2"])
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").rename(tmp_path / "data")
        wait_for(lambda: is_served(server.address, tokens["v2"]))
        assert not is_served(server.address, tokens["v1"])

    @pytest.mark.parametrize("broken", ["no TOML", "another file", "gone", "a directory"])
    def test_that_cannot_be_used_leaves_the_old_tokens_in_force(self, guarded: Guarded, broken: str) -> None:
        content = guarded.path.read_text()
        guarded.path.unlink()
        match broken:
            case "a directory":
                guarded.path.mkdir()
            case "gone":
                pass
            case "another file":
                guarded.path.write_text(f'{content}password = "hunter2"\n')
            case _:
                guarded.path.write_text(f"{content}[[tokens")
        wait_for(lambda: "what was read before stays in force" in guarded.server.log_text())
        assert guarded.serves(guarded.token)
        assert "mend the file" in guarded.server.log_text()
        assert "hunter2" not in guarded.server.log_text()

        if broken == "a directory":
            guarded.path.rmdir()
        guarded.path.write_text(content)
        new = guarded.create("acme")
        wait_for(lambda: guarded.serves(new))
        assert guarded.serves(guarded.token)

    def test_to_no_tokens_refuses_everybody(self, guarded: Guarded) -> None:
        guarded.revoke(guarded.token)
        wait_for(lambda: not guarded.serves(guarded.token))
        assert asked(guarded.server.address) is not None
        wait_for(lambda: "no token is in force" in guarded.server.log_text())

    def test_of_a_tokens_tenant_moves_its_caller(self, guarded: Guarded) -> None:
        with guarded.stubs() as stubs:
            stubs.append(KEY, text("of acme"))
            guarded.path.write_text(guarded.path.read_text().replace('"acme"', '"rival"'))
            wait_for(lambda: not stubs.histories.ListSessions(history.ListSessionsRequest()).sessions)


def next_seq(watch: Iterable[history.WatchMessagesResponse]) -> int:
    """The seq of the next message that is told."""
    return next(event for answer in watch for event in answer.events).message.seq


class TestARevokedToken:
    def test_ends_a_watch_that_waits(self, guarded: Guarded) -> None:
        """Within seconds, and no other watch."""
        kept = guarded.create("acme", "kept")
        wait_for(lambda: guarded.serves(kept))
        with guarded.stubs() as stubs, guarded.stubs(kept) as others:
            stubs.append(KEY, text("one"))
            request = history.WatchMessagesRequest(session=KEY, after_seq=0)
            ended, goes_on = (each.histories.WatchMessages(request, timeout=60) for each in (stubs, others))
            for watch in (ended, goes_on):
                assert next_seq(watch) == 1
            guarded.revoke(guarded.token)
            refusal = refused(lambda: list(ended))
            assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "CREDENTIAL_INVALID")
            others.append(KEY, text("two"))
            assert next_seq(goes_on) == 2
            goes_on.cancel()

    def test_ends_a_stream_of_requests_that_waits(self, guarded: Guarded) -> None:
        over = threading.Event()

        def requests() -> Iterator[reflection_pb2.ServerReflectionRequest]:
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            over.wait()

        with guarded.stubs() as stubs:
            call: Any = stubs.channel.stream_stream(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            answers = call(requests(), timeout=60)
            next(answers)
            guarded.revoke(guarded.token)
            assert refused(lambda: list(answers)).reason == "CREDENTIAL_INVALID"
            over.set()

    @pytest.mark.parametrize("change", ["revoked", "another tenant's"])
    async def test_gets_no_further_answer_of_a_stream(self, tmp_path: Path, change: str) -> None:
        """Also of one that never waits: each answer is authenticated anew."""
        path = tmp_path / "tokens.toml"
        token, entry = token_editing.create(path, "acme", "")
        waiting, more = asyncio.Event(), asyncio.Event()

        async def count(request: bytes, context: object) -> AsyncIterator[bytes]:
            del request, context
            yield b"1"
            waiting.set()
            await more.wait()
            yield b"2"

        method: Any = grpc.unary_stream_rpc_method_handler(count)
        handler = grpc.method_handlers_generic_handler("test.Counting", {"Count": method})
        store = InMemoryStore()
        runtime = Runtime("default", store, await store.open(), Defaults(tokenizer="estimate"))
        settings = load_settings({"listen": "127.0.0.1:0", "tokens_file": path})
        app = build(settings, Stores({"default": runtime}, "default"), [handler])
        await app.server.start()
        async with connect(app.address) as channel:
            call: Any = channel.unary_stream("/test.Counting/Count")
            answers = call(b"", metadata=(("authorization", f"Bearer {token}"),))
            assert await answers.read() == b"1"
            await waiting.wait()
            if change == "revoked":
                token_editing.revoke(path, entry.sha256)
            else:
                path.write_text(path.read_text().replace("acme", "rival"))
            assert app.access.tokens is not None
            for _ in range(2):
                await app.access.tokens.look()
            more.set()
            assert await answers.read() == b"2"  # What the handler was at is still told; then it is over.
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers.read()
            assert refusal_of(caught.value).reason == "CREDENTIAL_INVALID"
        await app.server.stop(None)
        await runtime.close()


class TestReloading:
    """What is taken over, and when."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "file"
        path.write_text("1")
        return path

    def read(self, path: Path) -> ReloadedFiles[int]:
        def understand(paths: Sequence[Path], contents: Sequence[bytes]) -> int:
            try:
                return int(contents[0])
            except ValueError as error:
                raise Unusable(f"{paths[0]} is no number") from error

        return ReloadedFiles("number", [path], understand)

    async def look_at(self, file: ReloadedFiles[int], path: Path, content: str) -> None:
        await asyncio.to_thread(path.write_text, content)
        await file.look()

    async def test_waits_until_a_change_is_complete(self, path: Path) -> None:
        """A file that is being written is left alone until two readings agree."""
        file = self.read(path)
        for content in ("2", "23", "234"):
            await self.look_at(file, path, content)
            assert file.current == 1
        await file.look()
        assert file.current == 234

    async def test_listeners_hear_of_each_change_once(self, path: Path) -> None:
        file = self.read(path)
        heard: list[int] = []
        file.when_changed(lambda: heard.append(file.current))
        for content in ("2", "2", "2", "3", "3", "3"):
            await self.look_at(file, path, content)
        assert heard == [2, 3]

    async def test_a_problem_is_logged_once_and_its_end_too(self, path: Path) -> None:
        file = self.read(path)
        with capture_logs() as logged:
            for content in ("x", "x", "x", "x", "1", "1", "1"):
                await self.look_at(file, path, content)
        assert [entry["log_level"] for entry in logged] == ["error", "info"]
        assert logged[0]["problem"] == f"{path} is no number"
        assert file.current == 1


WRONG_FILES: Final[dict[str, tuple[str | bytes, str]]] = {
    "no TOML": ("[[tokens", "no valid TOML"),
    "no UTF-8": (b"\xff", "no valid TOML"),
    "another key": ('password = "hunter2"', "`password`"),
    "the token itself": ('[[tokens]]\ntenant = "acme"\ntoken = "hunter2"', "`token`"),
    "the token as its hash": ('[[tokens]]\ntenant = "acme"\nsha256 = "hunter2"', "$.tokens[0].sha256"),
    "no hash": ('[[tokens]]\ntenant = "acme"', "`sha256`"),
    "no tenant": (f'[[tokens]]\nsha256 = "{"a" * 64}"', "`tenant`"),
    "an empty tenant": (f'[[tokens]]\ntenant = ""\nsha256 = "{"a" * 64}"', "1 to 256 bytes"),
    "a long tenant": (f'[[tokens]]\ntenant = "{"é" * 129}"\nsha256 = "{"a" * 64}"', "1 to 256 bytes"),
    "a NUL": (f'[[tokens]]\ntenant = "a\\u0000"\nsha256 = "{"a" * 64}"', "without control characters"),
    "a tenant of two lines": (f'[[tokens]]\ntenant = "a\\nb"\nsha256 = "{"a" * 64}"', "on one line"),
    "a name of two lines": (
        f'[[tokens]]\ntenant = "a"\nname = "a\\u2028b"\nsha256 = "{"a" * 64}"',
        "a token's name is UTF-8, on one line",
    ),
    "one token twice": (f'[[tokens]]\ntenant = "a"\nsha256 = "{"a" * 64}"\n' * 2, "twice"),
    "something else as tokens": ("tokens = 1", "$.tokens"),
    "too deep": ("tokens = " + "[" * 100_000, "no valid TOML"),
}


class TestAFile:
    @pytest.mark.parametrize("name", WRONG_FILES)
    def test_that_is_wrong_ends_the_start_and_says_why(self, tmp_path: Path, name: str) -> None:
        content, why = WRONG_FILES[name]
        path = tmp_path / "tokens.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(SettingsError) as caught:
            Access.of(load_settings({"tokens_file": path}))
        assert str(caught.value).startswith(f"tokens_file: {path} ")
        assert why in str(caught.value)
        assert "hunter2" not in str(caught.value)

    def test_that_is_missing_ends_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="cannot be read"):
            Access.of(load_settings({"tokens_file": tmp_path / "none"}))

    def test_without_tokens_is_one(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens.toml"
        path.write_text("# Nobody yet.\n")
        with capture_logs() as logged:
            access = Access.of(load_settings({"tokens_file": path}))
        assert access.tokens is not None
        assert not access.tokens.current
        assert "every call is refused" in logged[0]["event"]


def test_tokens_are_in_no_log(guarded: Guarded) -> None:
    """At any level, whether they are right or wrong; the tenant is."""
    for token in (guarded.token, "memoryd_wrong-token"):
        with guarded.stubs(token) as stubs:
            for call in (lambda: stubs.append(KEY, text("one")), lambda: stubs.messages(SessionKey(agent="a"))):
                with contextlib.suppress(grpc.RpcError):
                    call()
    log = guarded.server.log_text()
    assert "tenant=acme" in log
    assert "CREDENTIAL_INVALID" in log
    assert "wrong-token" not in log
    assert guarded.token not in log
    assert guarded.token not in guarded.path.read_text()


def test_tokens_are_not_shown_with_what_is_known_of_a_call() -> None:
    call = Call("id", "", ("Bearer secret",), "acme")
    assert "secret" not in repr(call)


class TestListeningOutsideOfLoopback:
    TOKENS: ClassVar = {"tokens_file": "tokens.toml"}
    TLS: ClassVar = {"tls_certificate": "server.pem", "tls_key": "server.key"}

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({}, ("callers are not authenticated and nothing is encrypted", "--tokens-file", "--tls-certificate")),
            (TLS, ("callers are not authenticated:", "--tokens-file")),
            (TOKENS, ("nothing is encrypted:", "--tls-certificate", "MEMORYD_TLS_KEY")),
        ],
    )
    @pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "memory.example.com"])
    def test_needs_tokens_and_tls(self, host: str, given: dict[str, str], says: tuple[str, ...]) -> None:
        with pytest.raises(SettingsError) as caught:
            load_settings({"listen": f"{host}:7600", **given})
        for part in (*says, f"{host}:7600 is reachable", "--insecure"):
            assert part in str(caught.value)
        if given:
            assert (" --tokens-file" in str(caught.value)) is (given is self.TLS)

    def test_is_fine_with_both_and_can_be_accepted(self) -> None:
        load_settings({"listen": "0.0.0.0:1", **self.TOKENS, **self.TLS})
        load_settings({"listen": "0.0.0.0:1", "insecure": True})

    def test_is_no_matter_on_loopback(self) -> None:
        for host in ("127.0.0.1", "localhost", "[::1]", "127.1.2.3"):
            load_settings({"listen": f"{host}:1", **self.TOKENS})

    def test_that_was_accepted_is_warned_of(self) -> None:
        with capture_logs() as logged:
            Access.of(load_settings({"listen": "0.0.0.0:1", "insecure": True}))
        assert {entry["log_level"] for entry in logged} == {"warning"}
        assert len(logged) == 2

    @pytest.mark.parametrize("one", TLS)
    def test_a_certificate_needs_its_key_and_a_key_its_certificate(self, one: str) -> None:
        with pytest.raises(SettingsError, match="go together"):
            load_settings({one: self.TLS[one]})
