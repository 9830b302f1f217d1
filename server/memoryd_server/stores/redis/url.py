"""What a URL of a Redis server or cluster says."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from memoryd_server.stores.urls import masked

PORT: Final = 6379
PREFIX: Final = "memoryd:"
"""What the names of all keys begin with, unless the URL says otherwise."""

CONNECTIONS: Final = 16
"""The most connections that a server has to a node, unless the URL says otherwise: Redis serves one command at a time,
and a call holds its connection for one round trip."""

ANSWER_SECONDS: Final = 5.0
"""How long a call waits for the database, a connection included, before it is given up, unless the URL says otherwise.
"""

_TLS_OPTIONS: Final = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname"}
)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class URLError(Exception):
    """A URL cannot be read. The text says why, and holds nothing that may be a secret."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, or nodes by which to find a cluster."""

    name: str
    """The URL as messages may show it."""
    addresses: tuple[Address, ...]
    login: Mapping[str, str]
    """`username` and `password`, as far as they are given."""
    tls: Mapping[str, str | bool] | None
    """Options of TLS, as redis-py's SSLConnection has them; None without TLS."""
    database: int
    prefix: str
    connections: int
    """The most to one node."""
    answer_seconds: float
    replicas: int | None
    """How many replicas must have a change before it is answered; None for 1 on a cluster, else none."""


def read_url(url: str, answer_seconds: float = ANSWER_SECONDS) -> Target:
    """Reads `redis://user:password@host:port/database?options`, or `rediss:` for TLS. `answer_seconds`: how long a call
    waits where the URL does not say it.

    Raises: URLError.
    """
    try:
        parsed = urlsplit(url)
    except ValueError as error:
        raise URLError("it cannot be read") from error
    credentials, _, hosts = parsed.netloc.rpartition("@")
    if "@" in credentials:
        raise URLError("it has more than one @")
    user, _, password = credentials.partition(":")
    options = dict(parse_qsl(parsed.query, keep_blank_values=True))
    login = {"username": unquote(user), "password": unquote(password)}
    login |= {name: options.pop(name) for name in ("username", "password") if name in options}
    is_tls = parsed.scheme == "rediss"
    tls_options = {name: options.pop(name) for name in sorted(_TLS_OPTIONS & options.keys())}
    if tls_options and not is_tls:
        raise URLError(f"its option {next(iter(tls_options))} is for TLS: begin the URL with rediss:")
    tls: dict[str, str | bool] = {**tls_options}
    if "ssl_check_hostname" in tls_options:
        tls["ssl_check_hostname"] = _choice("ssl_check_hostname", tls_options["ssl_check_hostname"])
    database = _database(options.pop("db", None), parsed.path.strip("/"))
    target = Target(
        name=masked(url),
        addresses=tuple(_address(host) for host in hosts.split(",")),
        login={name: value for name, value in login.items() if value},
        tls=MappingProxyType(tls) if is_tls else None,
        database=database,
        prefix=options.pop("prefix", PREFIX),
        connections=_number("connections", options.pop("connections", str(CONNECTIONS)), int, 1),
        answer_seconds=_number("timeout", options.pop("timeout", str(answer_seconds)), float, 0.1),
        replicas=_number("replicas", options.pop("replicas"), int, 0) if "replicas" in options else None,
    )
    if options:
        raise URLError(
            f"it has an unknown option {next(iter(options))!r}: there are prefix, db, username, password, connections, "
            f"timeout, replicas, and with rediss: {', '.join(sorted(_TLS_OPTIONS))}"
        )
    if set(target.prefix) & set("{}") or not target.prefix.isprintable():
        raise URLError("its prefix holds a brace or a character that cannot be printed")
    return target


def tls_context(options: Mapping[str, str | bool]) -> ssl.SSLContext:
    """The context of TLS. Raises: OSError when a file cannot be read or does not hold what it should."""
    context = ssl.create_default_context()
    ca_file, ca_path = options.get("ssl_ca_certs"), options.get("ssl_ca_path")
    if ca_file or ca_path:
        context.load_verify_locations(str(ca_file) if ca_file else None, str(ca_path) if ca_path else None)
    if "ssl_certfile" in options:
        key = options.get("ssl_keyfile")
        context.load_cert_chain(
            str(options["ssl_certfile"]), str(key) if key else None, str(options.get("ssl_password", ""))
        )
    context.check_hostname = bool(options.get("ssl_check_hostname", True))
    return context


def _address(text: str) -> Address:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise URLError("a host in it cannot be read")
        port = rest[1:]
    elif ":" in text:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise URLError("a port in it is no number from 1 to 65535")
    return Address(unquote(host) or "localhost", int(port or PORT))


def _database(option: str | None, path: str) -> int:
    if option is not None:
        return _number("db", option or "0", int, 0)
    if path and not (path.isascii() and path.isdigit()):
        raise URLError("what stands behind its host and a slash is not the number of a database, such as 0")
    return int(path or "0")


def _number(name: str, text: str, kind: Callable[[str], float], least: float) -> int:
    try:
        value = kind(text)
    except ValueError:
        value = least - 1
    if not value >= least:
        raise URLError(f"its option {name} must be a number from {least:g}")
    return value  # type: ignore[return-value]


def _choice(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise URLError(f"its option {name} must be true or false")
    return text.lower() in ("true", "1", "yes")
