"""Tokens and TLS of the clients: what is sent, what is never sent, and mistakes that are named before any call."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

import memoryd
from memoryd import AsyncMemoryClient, CredentialInvalid, CredentialMissing, MemoryClient, Unauthenticated
from memoryd.channel import Target, host_and_port, is_loopback
from memoryd.v1.history_service_pb2 import GetSessionResponse
from memoryd_server.credentials import token_editing
from tests.certificates import Authority
from tests.conftest import StartServer
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers, fails

TOKEN = "memoryd_c2VjcmV0"
AWAY = "memory.example.com:7600"


@pytest.fixture(params=[MemoryClient, AsyncMemoryClient])
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The two kinds of clients; a client that was never used needs no end."""
    made: Callable[..., Any] = request.param
    return made


async def test_the_token_is_shown_with_every_request(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", answers(GetSessionResponse()), answers(GetSessionResponse()))
    await connect(scripted.address, token=TOKEN, store="second").session(agent="a").info()
    await connect(scripted.address).session(agent="a").info()
    assert scripted.metadata[0]["authorization"] == f"Bearer {TOKEN}"
    assert scripted.metadata[0]["memoryd-store"] == "second"
    assert "authorization" not in scripted.metadata[1]


@pytest.mark.parametrize(
    ("reason", "kind"), [("CREDENTIAL_MISSING", CredentialMissing), ("CREDENTIAL_INVALID", CredentialInvalid)]
)
async def test_a_refusal_has_its_type_and_is_not_tried_again(
    reason: str, kind: type[Unauthenticated], connect: Connect, scripted: ScriptedServer
) -> None:
    scripted.script("GetSession", fails(grpc.StatusCode.UNAUTHENTICATED, reason))
    with pytest.raises(Unauthenticated) as caught:
        await connect(scripted.address, token=TOKEN).session(agent="a").info()
    assert type(caught.value) is kind
    assert len(scripted.asked("GetSession")) == 1
    assert TOKEN not in f"{caught.value!r} {caught.value} {pickle.dumps(caught.value)!r}"


async def test_a_refusal_by_a_proxy_is_one_too(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", fails(grpc.StatusCode.UNAUTHENTICATED))
    with pytest.raises(Unauthenticated) as caught:
        await connect(scripted.address).session(agent="a").info()
    assert (type(caught.value), caught.value.reason) == (Unauthenticated, "")


class TestATokenWithoutTls:
    @pytest.mark.parametrize(
        "address", [AWAY, "10.0.0.7:7600", "[2001:db8::1]:7600", f"dns:///{AWAY}", "127.evil.com:1"]
    )
    def test_never_leaves_the_machine_by_itself(self, address: str, kind: Callable[..., Any]) -> None:
        with pytest.raises(ValueError) as caught:
            kind(address, token=TOKEN)
        for part in (f"token would go to {address} unencrypted", "ca", "tls=True", "allow_token_without_tls=True"):
            assert part in str(caught.value)
        assert TOKEN not in str(caught.value)
        with pytest.raises(ValueError, match="unencrypted"):
            kind(address, token=TOKEN, tls=False)

    def test_goes_where_the_caller_says_so(self, kind: Callable[..., Any], tmp_path: Path) -> None:
        kind(AWAY, token=TOKEN, allow_token_without_tls=True)
        kind(AWAY, token=TOKEN, tls=True)
        kind(AWAY, token=TOKEN, ca=Authority(tmp_path).path)
        kind(AWAY)

    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1:7600",
            "127.1.2.3:7600",
            "localhost:7600",
            "[::1]:7600",
            "unix:/run/memoryd.sock",
            "localhost",
        ],
    )
    def test_goes_to_this_machine(self, address: str, kind: Callable[..., Any]) -> None:
        kind(address, token=TOKEN)

    @pytest.mark.parametrize(
        "address",
        [
            "localhost.example.com:7600",
            "127.0.0.1.example.com:7600",
            "127.evil.com:7600",
            "ipv4:127.0.0.1:7600,10.0.0.7:7600",
            "user@127.0.0.1:7600",
            "0.0.0.0:7600",
            "[::]:7600",
            "2130706433:7600",
            "",
        ],
    )
    def test_is_not_misled_about_this_machine(self, address: str) -> None:
        assert not is_loopback(address)


class TestMistakes:
    @pytest.mark.parametrize(
        ("token", "says"),
        [
            ("", "token is empty"),
            (f"{TOKEN}\n", "white space"),
            (f"Bearer {TOKEN}", "white space"),
            (f"{TOKEN}é", "characters that no token has"),
        ],
    )
    def test_in_a_token_are_named_without_it(self, token: str, says: str, kind: Callable[..., Any]) -> None:
        with pytest.raises(ValueError, match=says) as caught:
            kind(token=token)
        assert TOKEN not in str(caught.value)

    def test_of_type_are_named(self, kind: Callable[..., Any]) -> None:
        with pytest.raises(TypeError, match="token is of type bytes") as caught:
            kind(token=TOKEN.encode())
        assert TOKEN not in str(caught.value)
        with pytest.raises(TypeError, match="ca is of type int"):
            kind(ca=7)

    def test_in_a_ca_are_named(self, kind: Callable[..., Any], tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        with pytest.raises(ValueError, match=r"ca .*ca.pem' cannot be read: No such file"):
            kind(ca=path)
        for content in (b"", b"hunter2", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            path.write_bytes(content)
            for ca in (path, str(path), content):
                with pytest.raises(ValueError, match=r"ca.* holds no certificate"):
                    kind(ca=ca)

    def test_that_contradict_each_other_are_named(self, kind: Callable[..., Any], tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="ca is given and tls is False"):
            kind(ca=Authority(tmp_path).path, tls=False)


def test_a_token_is_not_shown_with_what_holds_it() -> None:
    target = Target("127.0.0.1:7600", 30, token=TOKEN)
    client = MemoryClient(token=TOKEN)
    shown = [target, client, client.session(agent="a", id="s"), client.agent("a"), vars(client)]
    assert TOKEN not in "".join(map(repr, shown))
    client.close()


def test_errors_of_credentials_have_one_base() -> None:
    assert issubclass(memoryd.CredentialMissing, memoryd.Unauthenticated)
    assert issubclass(memoryd.TlsFailed, memoryd.ServerUnavailable)


@pytest.fixture
def guarded_address(start_server: StartServer, tmp_path: Path) -> tuple[str, Path, str]:
    """The address of a server with tokens and TLS, its CA, and a token."""
    authority = Authority(tmp_path)
    token, _ = token_editing.create(tmp_path / "tokens.toml", "acme", "")
    flags = ("--tokens-file", str(tmp_path / "tokens.toml"), *authority.issue(tmp_path / "tls").flags)
    server = start_server("--store", "default=memory://", "--tokenizer", "estimate", *flags)
    return server.address, authority.path, token


async def test_both_clients_speak_tls_and_show_tokens(connect: Connect, guarded_address: tuple[str, Path, str]) -> None:
    address, ca, token = guarded_address
    session = connect(address, ca=ca, token=token).session(agent="a")
    (appended,) = await session.append(memoryd.user("one"))
    assert appended.seq == 1
    with pytest.raises(CredentialMissing):
        await connect(address, ca=ca).store()
    with pytest.raises(CredentialInvalid):
        await connect(address, ca=ca, token="memoryd_wrong").store()


class TestANameWithSeveralAddresses:
    """`localhost` is 127.0.0.1 and ::1, where nobody listens: gRPC tells either failure, whichever came last."""

    @pytest.mark.parametrize("attempt", range(4))
    async def test_does_not_hide_what_is_wrong_with_tls(
        self, attempt: int, connect: Connect, guarded_address: tuple[str, Path, str], tmp_path: Path
    ) -> None:
        address, _, token = guarded_address
        address = address.replace("127.0.0.1", "localhost")
        (tmp_path / "stranger").mkdir()
        cases: list[tuple[dict[str, Any], str]] = [
            ({"ca": Authority(tmp_path / "stranger").path}, "is not from a CA that the client trusts"),
            ({"tls": True}, "is not from a CA that the client trusts"),
            ({}, "it may ask for TLS"),
        ]
        for options, says in cases:
            session = connect(address, token=token, **options).session(agent="a", id="s")
            with pytest.raises(memoryd.TlsFailed, match=says):
                await session.update(user_id="u")  # Not tried again.
            if attempt == 0:
                with pytest.raises(memoryd.TlsFailed, match=says):
                    await session.info()
                with pytest.raises(memoryd.TlsFailed, match=says):
                    await anext(session.watch())

    async def test_is_reached_with_the_right_trust(
        self, connect: Connect, guarded_address: tuple[str, Path, str]
    ) -> None:
        address, ca, token = guarded_address
        await connect(address.replace("127.0.0.1", "localhost"), ca=ca, token=token).store()

    async def test_is_told_when_no_server_is_there(self, connect: Connect, tmp_path: Path) -> None:
        with pytest.raises(memoryd.ServerUnavailable) as caught:
            await connect("localhost:9", ca=Authority(tmp_path).path).session(agent="a").update(user_id="u")
        assert type(caught.value) is memoryd.ServerUnavailable


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:7600", ("localhost", "7600")),
        ("dns:///memory.example.com:7600", ("memory.example.com", "7600")),
        ("memory.example.com", ("memory.example.com", "443")),
        ("[::1]:7600", ("::1", "7600")),
    ],
)
def test_addresses_have_a_name_and_a_port(address: str, parts: tuple[str, str]) -> None:
    assert host_and_port(address) == parts
