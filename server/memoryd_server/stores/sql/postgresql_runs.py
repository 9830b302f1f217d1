"""The part of PostgreSQL's statement for commits that is about runs: it writes them in the same round trip as all else
(`postgresql_statements.AppendStatement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from memoryd_server.stores.base import Change
from memoryd_server.stores.records import encode_run_head
from memoryd_server.stores.sql.rows import (
    RUN_COLUMNS,
    RUN_STATE_COLUMNS,
    STORED_STEP_COLUMNS,
    Codec,
    row_of_run,
    row_of_run_state,
)

_TYPES: Final = {
    # Which of the changes a row belongs to, from 1.
    "change": "integer",
    "status": "smallint",
    "size": "integer",
    "payload": "bytea",
    **dict.fromkeys(("created", "claimable_at", "ended", "number", "fence", "first_seq", "messages"), "bigint"),
}
"""The types of columns that are not texts."""

_OF_LIFE: Final = 2
"""How many columns name a life: the statement knows them."""

_BEGUN: Final = ("change", *RUN_COLUMNS[_OF_LIFE:])
_CHANGED: Final = ("change", "id", *RUN_STATE_COLUMNS, "head")
_STEPS: Final = ("change", *STORED_STEP_COLUMNS[_OF_LIFE:])


def tables_of_runs(parameters: int) -> str:
    """What the statement does about runs, as further tables of its WITH. Its parameters come behind so many others."""

    def rows(columns: Sequence[str]) -> str:
        nonlocal parameters
        first = parameters + 1
        parameters += len(columns)
        arrays = ", ".join(f"${first + n}::{_TYPES.get(name, 'text')}[]" for n, name in enumerate(columns))
        return f"unnest({arrays}) AS a ({', '.join(columns)}) JOIN changed ON changed.number = a.change"

    def inserted(table: str, columns: Sequence[str]) -> str:
        _, *told = columns
        return (
            f"INSERT INTO {table} (session, life, {', '.join(told)}) "
            f"SELECT changed.id, changed.life, {', '.join(f'a.{name}' for name in told)} FROM {rows(columns)}"
        )

    state = ", ".join(f"{name} = a.{name}" for name in RUN_STATE_COLUMNS)
    begun = inserted("memoryd_runs", _BEGUN)
    changed = rows(_CHANGED)
    steps = inserted("memoryd_run_steps", _STEPS)
    return f""", begun AS ({begun}), run_changed AS (
                UPDATE memoryd_runs r SET {state}, head = COALESCE(a.head, r.head) FROM {changed}
                WHERE r.session = changed.id AND r.life = changed.life AND r.id = a.id
            ), stepped AS ({steps})"""


def arrays_of_runs(codec: Codec, changes: Sequence[Change]) -> Sequence[Any]:
    """The parameters of that, for changes of which each names a run once."""
    begun: list[Any] = []
    changed: list[Any] = []
    steps: list[Any] = []
    for number, change in enumerate(changes, 1):
        for each in change.changed_runs:
            if each.begins:
                begun.append((number, *row_of_run(0, 0, change.key, each)[_OF_LIFE:]))
            else:
                head = None if each.head is None else encode_run_head(each.head)
                changed.append((number, each.run_id, *row_of_run_state(each), head))
        steps += [(number, *codec.row_of_step(0, 0, step)[_OF_LIFE:]) for step in change.new_steps]
    return (
        *(zip(*begun, strict=True) if begun else ((),) * len(_BEGUN)),
        *(zip(*changed, strict=True) if changed else ((),) * len(_CHANGED)),
        *(zip(*steps, strict=True) if steps else ((),) * len(_STEPS)),
    )
