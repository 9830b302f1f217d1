"""How the clients' channels are set up: the same options for the sync and the async client."""

import json
import time
from dataclasses import dataclass

from memoryd.arguments import seconds, string
from memoryd.methods import METHODS

DEFAULT_ADDRESS = "127.0.0.1:7600"
DEFAULT_TIMEOUT = 30.0
"""Seconds that a call may take, its retries included."""

_RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


def service_config() -> str:
    """The gRPC service config (JSON): which methods are retried, and how. Retries end with the call's deadline."""
    names = [{"service": method.service, "method": method.name} for method in METHODS if method.retried]
    return json.dumps({"methodConfig": [{"name": names, "retryPolicy": _RETRY_POLICY}]})


def channel_options(address: str) -> list[tuple[str, str | int]]:
    """The options of a channel. The limit of received messages stays gRPC's 4 MiB: every answer fits into it."""
    options: list[tuple[str, str | int]] = [
        ("grpc.service_config", service_config()),
        # A server that restarts is found again within a retry, not after gRPC's default of a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # The server allows pings every 10 s.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    ]
    if address.startswith(_LOOPBACK):
        # A proxy from the environment (http_proxy) does not reach this machine's loopback.
        options.append(("grpc.enable_http_proxy", 0))
    return options


@dataclass(frozen=True)
class Target:
    """Whom a client talks to and how long it waits: what both clients hold besides their channel."""

    address: str
    timeout: float
    store: str | None

    def __post_init__(self) -> None:
        if not string(self.address, "address", DEFAULT_ADDRESS):
            raise ValueError(f"address is empty; give the server's host:port, for example {DEFAULT_ADDRESS!r}")
        if seconds(self.timeout, "timeout") <= 0:
            raise ValueError(f"timeout is {self.timeout:g}; give the seconds that a call may take, more than 0")
        if self.store is not None and not (
            string(self.store, "store", "default") and self.store.isascii() and self.store.isprintable()
        ):
            raise ValueError(f"store is {self.store!r}; the name of a store is printable ASCII")

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every request."""
        return () if self.store is None else (("memoryd-store", self.store),)


class Deadline:
    """The end of one operation, which may take several calls."""

    def __init__(self, timeout: float) -> None:
        self.seconds = seconds(timeout, "timeout")
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        """The seconds until the end, at least 0."""
        return max(0.0, self._end - time.monotonic())
