"""Structured logs, for people or for programs.

What a line may hold: what memoryd does, in words of its own; methods, statuses, reasons and durations of calls; the
correlation id; the tenant and the store, which operators name; addresses, versions and paths of the server's own files;
a store's URL without its password.

What no line holds, at any level: anything else that a caller sent. Message texts, metadata, labels and tokens are
secrets, and the ids of sessions, users, messages and requests and the names of agents may be personal, often an e-mail
address or a telephone number: an erased user must not live on in the logs. The correlation id is the way from a
caller's report to the log: it comes with every answer, and a caller who wants to find a session's calls later sends ids
of its own and keeps them.

So texts of errors are logged only where they are known to hold no such data: the text of a `ValueError`, a `KeyError`
or a driver's error may quote what it stumbled over, and its type and its place stand for it. Other libraries are heard
from INFO on: at DEBUG, some of them log the commands and bodies that they send.

Lines that are written within a call carry `correlation_id` and, once it is known, `tenant`; lines about one store, and
those of background work, carry `store`. A commit belongs to all calls that share it, and so to the store.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any, Final

import structlog

from memoryd_server.stores.base import StoreError

OURS: Final = ("memoryd", "memoryd_server")
"""The roots of memoryd's loggers."""

_TELLING: Final = (StoreError, OSError, AttributeError, ImportError, MemoryError, NameError, RecursionError)
"""Errors whose texts hold nothing of callers: they name what the code or the machine lacks."""

_CODES: Final = ("sqlstate", "sqlite_errorname")
"""Attributes that tell what a driver's error is, in the place of its text."""

_log: Final = structlog.stdlib.get_logger("memoryd")


def set_up(level: str, format_: str) -> None:
    """Sends all logs, those of libraries included, to standard error in one format (`console` or `json`)."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    tracebacks = structlog.processors.ExceptionRenderer(format_exception)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            tracebacks,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if format_ == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, tracebacks, renderer],
        )
    )
    least = logging.getLevelNamesMapping()[level.upper()]
    # It announces its plugins and every step at INFO, at each start.
    logging.getLogger("alembic").setLevel(max(logging.WARNING, least))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO, least))
    for ours in OURS:
        logging.getLogger(ours).setLevel(least)


def format_exception(exc_info: structlog.typing.ExcInfo) -> str:
    """A traceback, without the texts of errors that may quote what callers sent."""
    return "\n".join(_lines(exc_info[1], set()))


def _lines(error: BaseException, told: set[int]) -> Iterator[str]:
    told.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in told:
        yield from _lines(before, told)
        yield "\nwhich led to:\n" if error.__cause__ is before else "\nand then, while that was handled:\n"
    yield "Traceback (most recent call last):"
    yield from (line.rstrip("\n") for line in traceback.format_tb(error.__traceback__))
    yield _summary(error)
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield "\none of these was:\n"
            yield from _lines(part, told)


def _summary(error: BaseException) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, _TELLING):
        return f"{kind}: {error}"
    codes = [f"{name} {code}" for name in _CODES if (code := getattr(error, name, None)) is not None]
    return f"{kind} ({', '.join([*codes, 'its text is left out, since it may quote what callers sent'])})"


def tell_of_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's handler of errors that nobody awaited. Its own would log tasks and callbacks, which show
    errors' texts and arguments.
    """
    del loop
    about = "callback" if "handle" in context else context.get("message")
    _log.error("unexpected error in the background", about=about, exc_info=context.get("exception"))


__all__ = ["format_exception", "set_up", "tell_of_loop_error"]
