"""The logging of a process, which `logs.set_up` changes for good, in tests that share theirs with others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from memoryd_server import logs


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Whatever sets up logging in it, levels and handlers are as they were afterwards."""
    root = logging.getLogger()
    levels = {logger: logger.level for logger in (root, *map(logging.getLogger, ("alembic", *logs.OURS)))}
    handlers = root.handlers[:]
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        for logger, level in levels.items():
            logger.setLevel(level)
