"""How callers get in: with which tokens, and over which certificate."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc.aio
import structlog

from memoryd_server.config import Settings, SettingsError, is_loopback, split_address
from memoryd_server.credentials import token_file
from memoryd_server.credentials.certificate import Certificate
from memoryd_server.credentials.reloading import ReloadedFiles, Unusable
from memoryd_server.credentials.token_file import TokenTable

Opened = TypeVar("Opened")

_log: Final = structlog.stdlib.get_logger("memoryd.credentials")


@dataclass(frozen=True, slots=True)
class Access:
    """What a server has been set up with; None where it has been without."""

    tokens: ReloadedFiles[TokenTable] | None
    certificate: Certificate | None

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """Reads the files of the settings. Raises: SettingsError."""
        tokens = certificate = None
        if settings.tokens_file is not None:
            path = settings.tokens_file.expanduser()
            tokens = _opened("tokens_file", lambda: ReloadedFiles("tokens_file", [path], token_file.table))
            tokens.when_changed(lambda: _warn_without_tokens(path, tokens.current))
            _warn_without_tokens(path, tokens.current)
        if settings.tls_certificate is not None and settings.tls_key is not None:
            files = settings.tls_certificate.expanduser(), settings.tls_key.expanduser()
            certificate = _opened("tls_certificate, tls_key", lambda: Certificate(*files))
        _warn_of_strangers(settings)
        return cls(tokens, certificate)

    def bind(self, server: grpc.aio.Server, address: str) -> int:
        """Binds a port of the server. Returns: its number. Raises: RuntimeError when gRPC cannot."""
        if self.certificate is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, self.certificate.credentials())

    def follow(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What must run in the background so that changes of the files are seen."""
        files: list[ReloadedFiles[Any]] = []
        if self.tokens is not None:
            files.append(self.tokens)
        if self.certificate is not None:
            files.append(self.certificate.files)
        return [each.follow() for each in files]


def _opened(setting: str, open_: Callable[[], Opened]) -> Opened:
    try:
        return open_()
    except Unusable as error:
        raise SettingsError(f"{setting}: {error}") from error


def _warn_without_tokens(path: Path, table: TokenTable) -> None:
    if not table:
        _log.warning("no token is in force, so every call is refused: `memoryd token create` makes one", file=str(path))


def _warn_of_strangers(settings: Settings) -> None:
    if is_loopback(split_address(settings.listen)[0]):
        return
    if settings.tokens_file is None:
        _log.warning("whoever reaches this server can read and change everything: set tokens_file")
    if settings.tls_certificate is None:
        _log.warning("whoever is between callers and this server can read along: set tls_certificate and tls_key")
