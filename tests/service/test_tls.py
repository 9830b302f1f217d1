"""TLS: what callers and servers show each other, and a certificate that changes while the server runs (design section
9)."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from structlog.testing import capture_logs

from memoryd import MemoryClient, ServerUnavailable, TlsFailed, user
from memoryd_server.config import Settings, SettingsError, load_settings
from memoryd_server.credentials import token_editing
from memoryd_server.credentials.access import Access
from tests.certificates import Authority, Pair
from tests.cli.commands import wait_for
from tests.conftest import StartServer
from tests.servers import ServerProcess

IN_MEMORY: Final = ("--store", "default=memory://", "--tokenizer", "estimate")


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """A CA that has nothing to do with the server."""
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> Pair:
    return authority.issue(tmp_path / "tls")


@pytest.fixture
def server(start_server: StartServer, pair: Pair) -> ServerProcess:
    return start_server(*IN_MEMORY, *pair.flags)


def shown_by(server: ServerProcess, authority: Authority) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2"])
    host, _, port = server.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname=host) as s,
    ):
        shown = s.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def first_in(path: Path) -> bytes:
    """The first certificate of a PEM file, as it goes over the wire."""
    text = path.read_text()
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])


class TestAClient:
    def test_that_trusts_the_ca_is_served(self, server: ServerProcess, authority: Authority) -> None:
        """By any name of the certificate, and with the CA as file or bytes."""
        _, _, port = server.address.rpartition(":")
        for ca in (authority.path, str(authority.path), authority.pem):
            for host in ("127.0.0.1", "localhost"):
                with MemoryClient(f"{host}:{port}", ca=ca) as client:
                    assert client.session(agent="a").append(user("one"))[0].seq == 1

    def test_that_trusts_another_ca_is_told_so(self, server: ServerProcess, stranger: Authority) -> None:
        with MemoryClient(server.address, ca=stranger.path) as client, pytest.raises(TlsFailed) as caught:
            client.store()
        assert f"the certificate of the server at {server.address} is not from a CA that the client trusts" in str(
            caught.value
        )

    def test_that_trusts_public_cas_is_told_so(self, server: ServerProcess) -> None:
        with (
            MemoryClient(server.address, tls=True) as client,
            pytest.raises(TlsFailed, match="give the right one as ca"),
        ):
            client.store()

    def test_that_comes_by_another_name_is_told_so(
        self, start_server: StartServer, authority: Authority, tmp_path: Path
    ) -> None:
        server = start_server(*IN_MEMORY, *authority.issue(tmp_path / "other", "memory.example.com").flags)
        with MemoryClient(server.address, ca=authority.path) as client, pytest.raises(TlsFailed) as caught:
            client.store()
        assert f"the certificate of the server at {server.address} is for other names" in str(caught.value)

    def test_is_told_of_a_certificate_that_has_expired(
        self, start_server: StartServer, authority: Authority, tmp_path: Path
    ) -> None:
        old = authority.issue(tmp_path / "old", expires=datetime(2020, 1, 1, tzinfo=UTC))
        server = start_server(*IN_MEMORY, *old.flags)
        with MemoryClient(server.address, ca=authority.path) as client, pytest.raises(TlsFailed, match="has expired"):
            client.store()

    def test_without_tls_is_told_that_the_server_may_want_it(self, server: ServerProcess) -> None:
        with MemoryClient(server.address) as client, pytest.raises(TlsFailed, match="it may ask for TLS"):
            client.store()

    def test_with_tls_is_told_that_the_server_has_none(self, start_server: StartServer, authority: Authority) -> None:
        server = start_server(*IN_MEMORY)
        with MemoryClient(server.address, ca=authority.path) as client, pytest.raises(TlsFailed, match="not speak TLS"):
            client.store()

    def test_is_told_of_a_server_that_is_not_there_as_without_tls(self, authority: Authority) -> None:
        with MemoryClient("127.0.0.1:9", ca=authority.path) as client, pytest.raises(ServerUnavailable) as caught:
            client.store()
        assert type(caught.value) is ServerUnavailable


class TestANewCertificate:
    def test_is_shown_to_new_connections_while_old_ones_go_on(
        self, server: ServerProcess, authority: Authority, pair: Pair
    ) -> None:
        first = first_in(pair.certificate)
        assert shown_by(server, authority) == first
        with MemoryClient(server.address, ca=authority.path) as client:
            session = client.session(agent="a")
            session.append(user("one"))
            second = first_in(authority.issue(pair.certificate.parent).certificate)
            wait_for(lambda: shown_by(server, authority) == second)
            assert session.append(user("two"))[0].seq == 2
        assert first != second

    def test_may_be_of_another_ca(
        self, server: ServerProcess, authority: Authority, pair: Pair, stranger: Authority
    ) -> None:
        """Its clients need the new CA for new connections alone."""
        with MemoryClient(server.address, ca=authority.path) as old:
            old.store()
            stranger.issue(pair.certificate.parent)
            wait_for(lambda: "read again" in server.log_text())
            old.store()
            with MemoryClient(server.address, ca=stranger.path) as new:
                assert new.store().reachable

    @pytest.mark.parametrize("broken", ["no PEM", "another's key", "gone", "half of it"])
    def test_that_cannot_be_used_leaves_the_old_one_in_force(
        self, server: ServerProcess, authority: Authority, pair: Pair, tmp_path: Path, broken: str
    ) -> None:
        first = first_in(pair.certificate)
        match broken:
            case "no PEM":
                pair.certificate.write_text("hunter2")
            case "another's key":
                pair.key.write_bytes(authority.issue(tmp_path / "another").key.read_bytes())
            case "gone":
                pair.certificate.unlink()
            case _:
                pair.key.write_bytes(pair.key.read_bytes()[:100])
        wait_for(lambda: "what was read before stays in force" in server.log_text())
        assert shown_by(server, authority) == first
        assert "hunter2" not in server.log_text()

        second = first_in(authority.issue(pair.certificate.parent).certificate)
        wait_for(lambda: shown_by(server, authority) == second)


def settings(pair: Pair) -> Settings:
    return load_settings({"tls_certificate": pair.certificate, "tls_key": pair.key})


class TestTheStart:
    def test_with_both_listens_to_other_machines(
        self, start_server: StartServer, pair: Pair, authority: Authority, tmp_path: Path
    ) -> None:
        token, _ = token_editing.create(tmp_path / "tokens.toml", "acme", "")
        flags = ("--tokens-file", str(tmp_path / "tokens.toml"), *pair.flags)
        server = start_server(*IN_MEMORY, "--listen", "0.0.0.0:0", *flags)
        _, _, port = server.address.rpartition(":")
        with MemoryClient(f"localhost:{port}", ca=authority.path, token=token) as client:
            assert client.store().reachable
        assert "read along" not in server.log_text()

    def test_with_a_key_of_another_certificate_is_refused(
        self, authority: Authority, pair: Pair, tmp_path: Path
    ) -> None:
        pair.key = authority.issue(tmp_path / "another").key
        with pytest.raises(SettingsError, match="is not the key of"):
            Access.of(settings(pair))

    def test_with_an_encrypted_key_is_refused_without_asking(self, pair: Pair) -> None:
        encrypted = pair.key.with_name("encrypted.key")
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        encrypted.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"hunter2"),
            )
        )
        pair.key = encrypted
        with pytest.raises(SettingsError, match="is encrypted"):
            Access.of(settings(pair))

    def test_with_a_key_that_grpc_cannot_use_is_refused(self, pair: Pair) -> None:
        """Otherwise it would start, and no handshake would end."""
        key = ed25519.Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        begin = datetime.now(UTC)
        made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=1)).sign(
            key, None
        )
        pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        with pytest.raises(SettingsError, match="Ed25519"):
            Access.of(settings(pair))

    @pytest.mark.parametrize("which", ["certificate", "key"])
    def test_with_files_that_are_missing_or_something_else_is_refused(self, pair: Pair, which: str) -> None:
        path: Path = getattr(pair, which)
        path.write_text("hunter2")
        with pytest.raises(SettingsError, match=r"tls_certificate, tls_key: .* is no PEM file") as caught:
            Access.of(settings(pair))
        assert "hunter2" not in str(caught.value)
        path.unlink()
        with pytest.raises(SettingsError, match="cannot be read"):
            Access.of(settings(pair))

    @pytest.mark.parametrize(
        ("days", "problem"), [(-1, "certificate has expired"), (366, "certificate is not yet valid"), (30, None)]
    )
    def test_warns_of_a_certificate_that_clients_will_refuse(
        self, authority: Authority, tmp_path: Path, days: int, problem: str | None
    ) -> None:
        """`Authority` makes one that expires on a day valid from a year before."""
        pair = authority.issue(tmp_path / "tls", expires=datetime.now(UTC) + timedelta(days=days))
        with capture_logs() as logged:
            Access.of(settings(pair))
        assert [(entry["tls_certificate"], entry["problem"]) for entry in logged] == (
            [(str(pair.certificate), problem)] if problem else []
        )

    @pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
    def test_warns_of_a_key_that_others_can_read(self, pair: Pair, mode: int, warned: bool) -> None:
        pair.key.chmod(mode)
        with capture_logs() as logged:
            Access.of(settings(pair))
        assert [entry["tls_key"] for entry in logged] == ([str(pair.key)] if warned else [])
