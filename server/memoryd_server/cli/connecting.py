"""How commands reach a server, and how they tell a person that something there went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from memoryd import (
    AsyncMemoryClient,
    FailedPrecondition,
    InvalidArgument,
    MemoryClient,
    MemorydError,
    ServerUnavailable,
    Session,
    SessionInfo,
    SessionNotFound,
)
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import Failure

MAX_AGENTS_ASKED = 1_000
"""Agents that are asked for a session whose agent was not given."""


Client = TypeVar("Client", MemoryClient, AsyncMemoryClient)


def _made(kind: type[Client], address: str, store: str | None) -> Client:
    try:
        return kind(address, store=store)
    except ValueError as error:
        raise Failure(f"{error}. It is given by --store or MEMORYD_STORE", status=2) from error


def async_client(address: str, store: str | None) -> AsyncMemoryClient:
    """An async client of the server; errors of its calls are those of the SDK."""
    return _made(AsyncMemoryClient, address, store)


@contextmanager
def connected(address: str, store: str | None) -> Iterator[MemoryClient]:
    """A client of the server. Errors of its calls leave as Failure."""
    with _made(MemoryClient, address, store) as client:
        try:
            yield client
        except MemorydError as error:
            raise failure(error, address) from error


def failure(error: MemorydError, address: str) -> Failure:
    """An error of a call, for a person."""
    if isinstance(error, ServerUnavailable):
        return Failure(
            f"no server answers at {one_line(address)}. Start one with `memoryd serve`, or name another with --address "
            f"(MEMORYD_ADDRESS)"
        )
    if isinstance(error, InvalidArgument | FailedPrecondition):
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
