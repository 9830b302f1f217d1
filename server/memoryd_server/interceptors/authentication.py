"""Tells whose call it is: by its bearer token, or, on a server without tokens, the default tenant's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakSet

import structlog

from memoryd_server.credentials.reloading import ReloadedFiles
from memoryd_server.credentials.token_file import TokenEntry, TokenTable, digest_of
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.interceptors.correlation import Call, current_call
from memoryd_server.interceptors.wrapping import ENDLESS, Context, WrappingInterceptor

DEFAULT_TENANT: Final = "default"
"""The tenant of all calls on a server without tokens (design section 1)."""

_HEALTH: Final = "/grpc.health.v1."
"""Whoever watches over a server need not know its data."""

_SCHEME: Final = "bearer"


class Authentication(WrappingInterceptor):
    """Within the error boundary, which gives the status. Each answer of a stream is authenticated anew."""

    by_step = True

    def __init__(self, tokens: ReloadedFiles[TokenTable] | None = None) -> None:
        """Without tokens, every caller is welcome."""
        super().__init__()
        self._tokens = tokens
        self._endless: dict[asyncio.Task[Any], Call] = {}
        """The calls that wait, maybe for ever, for something to tell."""
        self._ended: WeakSet[asyncio.Task[Any]] = WeakSet()
        if tokens is not None:
            tokens.when_changed(self._end_revoked)

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Sets the call's tenant, also in logs, or refuses the call."""
        del context
        call = current_call.get()
        if self._tokens is None:
            _admit(call, DEFAULT_TENANT)
        elif not method.startswith(_HEALTH):
            _admit(call, self._authenticated(call.authorization).tenant)
            if method.startswith(ENDLESS):
                async with self._ended_when_revoked(call):
                    yield
                return
        yield

    @asynccontextmanager
    async def _ended_when_revoked(self, call: Call) -> AsyncIterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._endless[task] = call
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            raise _invalid() from None
        finally:
            del self._endless[task]

    def _authenticated(self, authorization: Sequence[str]) -> TokenEntry:
        """The caller's token, as the file has it. Raises: RequestError."""
        if not authorization:
            raise RequestError(
                Reason.CREDENTIAL_MISSING,
                "this server asks for a token, in the metadata `authorization: Bearer TOKEN`: clients take it as "
                "token, commands as --token-file or MEMORYD_TOKEN, and the server's operator makes one with `memoryd "
                "token create`",
            )
        assert self._tokens is not None
        scheme, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != _SCHEME:
            raise _invalid()
        entry = self._tokens.current.get(digest_of(token))
        if entry is None:
            raise _invalid()
        return entry

    def _end_revoked(self) -> None:
        """Ends the endless calls whose token is no longer in force. Other calls end by themselves: soon, or with their
        stream's next answer.
        """
        for task, call in self._endless.items():
            try:
                _admit(call, self._authenticated(call.authorization).tenant)
            except RequestError:
                self._ended.add(task)
                task.cancel()


def _admit(call: Call, tenant: str) -> None:
    """Makes it a call of this tenant, once and for all. Raises: RequestError when it is another's already."""
    if not call.tenant:
        call.tenant = tenant
        # Not unbound afterwards: each call has a context of its own, which ends with it.
        structlog.contextvars.bind_contextvars(tenant=tenant)
    elif call.tenant != tenant:  # The token was given to another tenant while the call's stream went on.
        raise _invalid()


def _invalid() -> RequestError:
    """One answer for every token that is not in force: it does not tell whether the token ever was."""
    return RequestError(
        Reason.CREDENTIAL_INVALID,
        "this server does not accept the call's token: send one that is in force, as `authorization: Bearer TOKEN`; "
        "the server's operator lists them with `memoryd token list` and makes new ones with `memoryd token create`",
    )
