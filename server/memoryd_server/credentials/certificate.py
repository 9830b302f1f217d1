"""The server's TLS certificate."""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import grpc
import structlog

from memoryd_server.credentials.reloading import ReloadedFiles, Unusable

_EDWARDS: Final = (b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65\x71")
"""The identifiers of Ed25519 and Ed448 (RFC 8410), in DER."""

_log: Final = structlog.stdlib.get_logger("memoryd.credentials")


class Certificate:
    """A certificate and its key. New connections get what the files hold now; open ones go on with what they have."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Reads the two PEM files. Raises: Unusable."""
        self.files = ReloadedFiles("tls_certificate, tls_key", (certificate, key), _understand)
        self._given = self.files.current

    def credentials(self) -> grpc.ServerCredentials:
        """What a port is bound with."""
        # The stub leaves out that the function may have no news.
        return grpc.dynamic_ssl_server_credentials(self._given, self._news)  # type: ignore[arg-type]

    def _news(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC, in threads of its own, before each handshake: None while nothing is new."""
        current = self.files.current
        if current is self._given:
            return None
        self._given = current
        return current


def _understand(paths: Sequence[Path], contents: Sequence[bytes]) -> grpc.ServerCertificateConfiguration:
    certificate, key = paths
    try:
        # gRPC itself would tell of a pair that does not fit only in its own log, when the first caller comes.
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key, lambda: _refuse_encrypted(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Unusable(f"{key} is not the key of {certificate}: give the two that belong together") from error
        raise Unusable(
            f"{certificate} or {key} is no PEM file of a certificate or its key ({error.reason or 'unreadable'})"
        ) from error
    except OSError as error:
        raise Unusable(f"{certificate} or {key} cannot be read ({error.strerror})") from error
    chain, private_key = contents
    if _is_edwards(private_key):
        raise Unusable(f"{key} is an Ed25519 or Ed448 key, with which gRPC shakes no hands: make an ECDSA or RSA one")
    if key.stat().st_mode & stat.S_IROTH:
        _log.warning("every user of this machine can read the key: chmod o-r it", tls_key=str(key))
    if refusal := _refusal(server, certificate):
        _log.warning("clients will refuse the certificate", tls_certificate=str(certificate), problem=refusal)
    return grpc.ssl_server_certificate_configuration([(private_key, chain)])


def _refusal(server: ssl.SSLContext, certificate: Path) -> str:
    """Why a client refuses the certificate although it trusts it, for example because it has expired; empty if it
    does not. Told by a handshake in memory, for `ssl` reads the times of no other certificate than one that is shown.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client.load_verify_locations(certificate)
        caller = client.wrap_bio(to_client, to_server)
        answerer = server.wrap_bio(to_server, to_client, server_side=True)
        for each in (caller, answerer, caller):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except OSError as error:  # No handshake comes about, or the file has just gone: neither ends a server.
        return str(error)
    return ""


def _is_edwards(key: bytes) -> bool:
    """Told by the algorithm's identifier, with which PKCS #8, the only form of such keys, begins."""
    body = re.search(rb"-----BEGIN PRIVATE KEY-----(.+?)-----END", key, re.DOTALL)
    return body is not None and any(oid in base64.b64decode(body[1])[:24] for oid in _EDWARDS)


def _refuse_encrypted(key: Path) -> NoReturn:
    raise Unusable(f"{key} is encrypted, and nobody is there to give its password: decrypt it with `openssl pkey`")
