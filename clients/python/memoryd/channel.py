"""How the clients' channels are set up: the same options for the sync and the async client."""

import ipaddress
import os
import re
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from memoryd.arguments import seconds, string

DEFAULT_ADDRESS = "127.0.0.1:7600"
DEFAULT_TIMEOUT = 30.0
"""Seconds that a call may take, its retries included."""

Metadata = tuple[tuple[str, str], ...]
"""What goes along with a call: the name of its store, and the caller's token."""

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0
"""The pauses between tries of a call (`retries.py`), and between tries to connect, so that a server that restarts is
found again as soon as a call is."""
_CONNECT_SECONDS: Final = 5.0
"""What one try to connect may take."""
_PORT = re.compile(r":[0-9]+\Z")
_THIS_MACHINE = ("unix:", "unix-abstract:")
"""The beginnings of addresses that no other machine can have."""


def channel_options(address: str) -> list[tuple[str, str | int]]:
    """The options of a channel. The limit of received messages stays gRPC's 4 MiB: every answer fits into it."""
    options: list[tuple[str, str | int]] = [
        ("grpc.initial_reconnect_backoff_ms", int(FIRST_PAUSE_SECONDS * 1_000)),
        ("grpc.max_reconnect_backoff_ms", int(LONGEST_PAUSE_SECONDS * 1_000)),
        # Despite its name: how long a try to connect may take. By default it is longer than a call is tried again.
        ("grpc.min_reconnect_backoff_ms", int(_CONNECT_SECONDS * 1_000)),
        # The server allows pings every 10 s.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # gRPC waits for the ping's own answer for a minute otherwise, whatever the keepalive's timeout.
        ("grpc.http2.ping_timeout_ms", 10_000),
        # A watch sends nothing after its request: without pings it would not notice that its connection is gone.
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if is_loopback(address):
        # A proxy from the environment (http_proxy) does not reach this machine's loopback.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def host_and_port(address: str) -> tuple[str, str]:
    """The name (or the address) of a server's machine, and the port: that of HTTPS where none is given, as in gRPC."""
    name = address.removeprefix("dns:").rpartition("/")[2]
    port = _PORT.search(name)
    return _PORT.sub("", name).removeprefix("[").removesuffix("]"), port[0].removeprefix(":") if port else "443"


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own, so that nobody in between can read along."""
    if address.startswith(_THIS_MACHINE):
        return True
    host = _PORT.sub("", address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Target:
    """Whom a client talks to, how, and how long it waits: what both clients hold besides their channel."""

    address: str
    timeout: float
    store: str | None = None
    token: str | None = field(default=None, repr=False)
    ca: str | os.PathLike[str] | bytes | None = None
    tls: bool | None = None
    allow_token_without_tls: bool = False
    credentials: grpc.ChannelCredentials | None = field(init=False, repr=False, compare=False)
    """Those of the channel; None for one without TLS."""

    def __post_init__(self) -> None:
        if not string(self.address, "address", DEFAULT_ADDRESS):
            raise ValueError(f"address is empty; give the server's host:port, for example {DEFAULT_ADDRESS!r}")
        call_seconds(self.timeout)
        if self.store is not None:
            store_name(self.store, "store")
        if self.token is not None:
            _check_token(self.token)
        if self.ca is not None and self.tls is False:
            raise ValueError("ca is given and tls is False; leave one of them out")
        encrypted = self.ca is not None if self.tls is None else self.tls
        if self.token and not (encrypted or self.allow_token_without_tls or is_loopback(self.address)):
            raise ValueError(
                f"token would go to {self.address} unencrypted, for anybody on the way to read; give ca (the "
                f"certificate of the server's CA) or tls=True (for one from a public CA), or accept it with "
                f"allow_token_without_tls=True"
            )
        credentials = None
        if encrypted:
            credentials = grpc.ssl_channel_credentials(None if self.ca is None else _certificates(self.ca))
        object.__setattr__(self, "credentials", credentials)

    def metadata(self, store: str | None) -> Metadata:
        """The metadata of requests to a store; None for the server's default."""
        metadata = () if store is None else (("memoryd-store", store),)
        return metadata if self.token is None else (*metadata, ("authorization", f"Bearer {self.token}"))


def store_name(value: str, argument: str) -> str:
    """The name of a store. TypeError and ValueError name the argument that it was given as."""
    if not (string(value, argument, "default") and value.isascii() and value.isprintable()):
        raise ValueError(f"{argument} is {value!r}; the name of a store is printable ASCII")
    return value


def _check_token(token: str) -> None:
    """Raises TypeError or ValueError, which never hold the token itself."""
    string(token, "token", "memoryd_…")
    if not token:
        raise ValueError("token is empty; give one that `memoryd token create` made, or None where none is needed")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            "token holds white space or characters that no token has; give it as `memoryd token create` printed it, "
            "without the end of its line"
        )


def _certificates(ca: str | os.PathLike[str] | bytes) -> bytes:
    """The certificates of a CA: given as they are, or by the path of their file."""
    if isinstance(ca, bytes):
        name, pem = "ca", ca
    elif isinstance(ca, str | os.PathLike):
        name = f"ca {os.fspath(ca)!r}"
        try:
            pem = Path(ca).read_bytes()
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}; give the path of a PEM file") from error
    else:
        raise TypeError(f"ca is of type {type(ca).__name__}; give the path of a PEM file, or its bytes")
    try:
        # gRPC would say nothing before the first call, and then only that no server can be reached.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{name} holds no certificate; give one or more, in PEM") from error
    return pem


def call_seconds(timeout: float) -> float:
    """The seconds that an operation may take. TypeError and ValueError for what is no number of them above 0."""
    checked = seconds(timeout, "timeout")
    if checked <= 0:
        raise ValueError(f"timeout is {checked:g}; give the seconds that a call may take, more than 0")
    return checked


class Deadline:
    """The end of one operation, which may take several calls. TypeError and ValueError as in `call_seconds`."""

    def __init__(self, timeout: float) -> None:
        self.seconds = call_seconds(timeout)
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        """The seconds until the end, at least 0."""
        return max(0.0, self._end - time.monotonic())
