"""How commands reach a server, and how they tell a person that something there went wrong."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from memoryd import (
    AsyncMemoryClient,
    CredentialInvalid,
    CredentialMissing,
    FailedPrecondition,
    InvalidArgument,
    MemoryClient,
    MemorydError,
    ServerUnavailable,
    Session,
    SessionInfo,
    SessionNotFound,
    TlsFailed,
)
from memoryd.channel import is_loopback
from memoryd_server.cli.options import Server
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import Failure

TOKEN_ENV: Final = "MEMORYD_TOKEN"

MAX_AGENTS_ASKED = 1_000
"""Agents that are asked for a session whose agent was not given."""


Client = TypeVar("Client", MemoryClient, AsyncMemoryClient)


def _made(kind: type[Client], server: Server) -> Client:
    token = _token(server)
    if token and not (server.tls or server.ca or server.allow_token_without_tls or is_loopback(server.address)):
        raise Failure(
            f"your token would go to {one_line(server.address)} unencrypted, for anybody on the way to read. Use TLS, "
            f"with --ca FILE (MEMORYD_CA) or --tls (MEMORYD_TLS=true), or accept it with --allow-token-without-tls",
            status=2,
        )
    try:
        return kind(
            server.address,
            store=server.store,
            token=token,
            ca=server.ca,
            tls=server.tls or None,
            allow_token_without_tls=server.allow_token_without_tls,
        )
    except ValueError as error:
        raise Failure(f"{error}. It is given by {_GIVEN_BY[str(error).split()[0]]}", status=2) from error


_GIVEN_BY: Final = {
    "address": "--address or MEMORYD_ADDRESS",
    "store": "--store or MEMORYD_STORE",
    "token": f"--token-file or {TOKEN_ENV}",
    "ca": "--ca or MEMORYD_CA",
}
"""Where a person says what the SDK's argument of this name is; its errors begin with the argument."""


def _token(server: Server) -> str | None:
    """The token of the options, else of the environment; never one of the command line, which every process can see."""
    if server.token_file is None:
        return os.environ.get(TOKEN_ENV) or None
    try:
        return server.token_file.read_text("utf-8").strip()
    except OSError as error:
        raise Failure(
            f"the token file {one_line(str(server.token_file))} cannot be read: {error.strerror}", status=2
        ) from error
    except UnicodeDecodeError as error:
        raise Failure(
            f"the token file {one_line(str(server.token_file))} is no text; write into it what `memoryd token create` "
            f"printed",
            status=2,
        ) from error


def async_client(server: Server) -> AsyncMemoryClient:
    """An async client of the server; errors of its calls are those of the SDK."""
    return _made(AsyncMemoryClient, server)


@contextmanager
def connected(server: Server) -> Iterator[MemoryClient]:
    """A client of the server. Errors of its calls leave as Failure."""
    with _made(MemoryClient, server) as client:
        try:
            yield client
        except MemorydError as error:
            raise failure(error, server.address) from error


def failure(error: MemorydError, address: str) -> Failure:
    """An error of a call, for a person."""
    if isinstance(error, TlsFailed):
        return Failure(f"{error.message}. Commands take ca as --ca FILE, and tls as --tls")
    if isinstance(error, ServerUnavailable):
        return Failure(
            f"no server answers at {one_line(address)}. Start one with `memoryd serve`, or name another with --address "
            f"(MEMORYD_ADDRESS)"
        )
    if isinstance(error, CredentialMissing):
        return Failure(
            f"the server at {one_line(address)} asks for a token. Give yours with --token-file FILE or in {TOKEN_ENV}; "
            f"the server's operator makes one with `memoryd token create`"
        )
    if isinstance(error, InvalidArgument | FailedPrecondition | CredentialInvalid):
        return Failure(error.message)
    return Failure(str(error))


def found_session(client: MemoryClient, session_id: str, agent: str | None) -> tuple[Session, SessionInfo]:
    """The session of this id: of the agent, or of the only agent that has one. Raises Failure, saying what to give."""
    if agent is not None:
        session = client.session(agent=agent, id=session_id)
        try:
            return session, session.info()
        except SessionNotFound as error:
            raise Failure(
                f"agent {one_line(agent)} has no session {one_line(session_id)}; `memoryd sessions` lists what there is"
            ) from error
    found: list[tuple[Session, SessionInfo]] = []
    for index, one in enumerate(client.agents()):
        if index == MAX_AGENTS_ASKED:
            raise Failure(
                f"there are more than {MAX_AGENTS_ASKED:,} agents; say whose session it is, with --agent NAME"
            )
        session = client.session(agent=one.agent, id=session_id)
        try:
            found.append((session, session.info()))
        except SessionNotFound:
            continue
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"there is no session {one_line(session_id)}; `memoryd sessions` lists what there is")
    names = "\n".join(f"  --agent {one_line(session.agent)}" for session, _ in found)
    raise Failure(f"{len(found)} agents have a session {one_line(session_id)}. Say which one:\n{names}", status=2)
