"""Carries plans out on SQLite's driver."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeVar

from memoryd_server.stores.sql.steps import Execute, ExecuteMany, Fetch, Plan

Result = TypeVar("Result")


def carry_out(connection: sqlite3.Connection, plan: Plan[Result]) -> Result:
    """Runs the statements of a plan, and returns its result. Rows are lazy: what a plan does not walk costs nothing."""
    answer: Any = None
    while True:
        try:
            step = plan.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        kind = type(step)
        if kind is Fetch:
            answer = connection.execute(step.sql, step.parameters)  # type: ignore[union-attr]
        elif kind is ExecuteMany:
            connection.executemany(step.sql, step.rows)  # type: ignore[union-attr]
            answer = None
        else:
            cursor = connection.execute(step.sql, step.parameters)  # type: ignore[union-attr]
            answer = cursor.rowcount if kind is Execute else cursor.lastrowid
