"""The statements about runs and their steps."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    ColumnElement,
    Dialect,
    Select,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from memoryd_server.stores.records import RunStatus
from memoryd_server.stores.sql.compiling import (
    MYSQL,
    compile_once,
    first_rows,
    insert_row,
    led_by,
    values_of,
)
from memoryd_server.stores.sql.rows import (
    KEY,
    RUN_COLUMNS,
    RUN_STATE_COLUMNS,
    STEP_COLUMNS,
    STORED_STEP_COLUMNS,
)
from memoryd_server.stores.sql.schema import run_steps, runs, sessions

LEAVING: Final = ""
"""The tenant and the agent of a run that is being deleted: no real one is empty, so no list holds it."""

Value = TypeVar("Value")


class RunStatements:
    """The SQL texts. Values are passed in the order of the names given here."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: ClauseElement, *parameters: str) -> str:
            return compile_once(dialect, statement, *parameters)

        self._names_places_twice = dialect.name in MYSQL
        s, r, x = sessions.c, runs.c, run_steps.c
        of_key = [s[name] == bindparam(name) for name in KEY]
        life = ("session", "life")
        of_life = (r.session == bindparam("session"), r.life == bindparam("life"))
        of_run, run = (*of_life, r.id == bindparam("run")), (*life, "run")
        steps_of_life = (x.session == bindparam("session"), x.life == bindparam("life"))
        of_steps = (*steps_of_life, x.run_id == bindparam("run"))

        # Reading
        self.session = compiled(select(s.id, s.life, s.incarnation).where(*of_key), *KEY)
        with_run = sessions.outerjoin(runs, and_(r.session == s.id, r.life == s.life, r.id == bindparam("run")))
        self.load = compiled(
            select(s.record, s.open_calls, r.tenant, r.head, r.state).select_from(with_run).where(*of_key),
            *("run", *KEY),
        )
        self.place = compiled(
            select(s.id, s.life, s.incarnation, r.tenant).select_from(with_run).where(*of_key), *("run", *KEY)
        )
        after = x.number > bindparam("after")
        self.sizes = compiled(
            first_rows(select(x.number, x.size).where(*of_steps, after).order_by(x.number)), *(*run, "after", "limit")
        )
        self.steps = compiled(
            select(*(x[name] for name in STEP_COLUMNS))
            .where(*of_steps, after, x.number <= bindparam("last"))
            .order_by(x.number),
            *(*run, "after", "last"),
        )

        # Lists. A run of a dead life is passed over: the session's row is gone, or of another life.
        living = runs.join(sessions, and_(s.id == r.session, s.life == r.life))
        of_agent = (r.tenant == bindparam("tenant"), r.agent == bindparam("agent"))
        agent = ("tenant", "agent")
        # As the indexes say of their rows (`schema`).
        leaving: ColumnElement[str] = literal_column(f"'{LEAVING}'")
        listed = r.tenant != leaving
        told = (r.created, r.session, r.id, r.head, r.state)

        def led(statement: Select[Any], index: str) -> Select[Any]:
            # The index has the order: the sessions are to be looked up in it, one by one however few there are.
            for name in MYSQL:
                statement = statement.prefix_with("STRAIGHT_JOIN", dialect=name)
            return led_by(led_by(statement, runs, index), sessions, "PRIMARY")

        def newest(index: str, *conditions: ColumnElement[bool]) -> Select[Any]:
            statement = (
                select(s.session_id, *told).select_from(living).where(*of_agent, listed, *conditions, self._behind())
            )
            return first_rows(led(statement, index).order_by(r.created.desc(), r.session.desc(), r.id.desc()))

        place = self.place_in_agent("created", "number", "id")
        self.list_of_agent = compiled(newest("memoryd_runs_of_agent"), *(*agent, *place, "limit"))
        self.list_by_status = compiled(
            newest("memoryd_runs_by_status", r.status == bindparam("status")), *(*agent, "status", *place, "limit")
        )
        statuses = tuple(f"status_{status.value}" for status in RunStatus)
        self.list_of_session = compiled(
            first_rows(
                led_by(select(*told), runs, "memoryd_runs_of_session")
                .where(
                    *of_life,
                    r.status.in_([bindparam(name) for name in statuses]),
                    listed,
                    self._behind_in_session(),
                )
                .order_by(r.created.desc(), r.id.desc())
            ),
            *(*life, *statuses, *self.place_in_session("created", "id"), "limit"),
        )

        def until(column: ColumnElement[Any], index: str, *columns: ColumnElement[Any]) -> str:
            statement = (
                select(s.session_id, *columns)
                .select_from(living)
                .where(*of_agent, column < bindparam("before"))
                .order_by(column, r.session, r.id)
            )
            return compiled(first_rows(led(statement, index)), *(*agent, "before", "limit"))

        claimable = (r.claimable_at, "memoryd_runs_claimable")
        self.list_claimable = until(*claimable, s.incarnation, r.id)
        self.load_claimable = until(*claimable, s.record, s.open_calls, r.id, r.head, r.state)
        self.list_ended = until(r.ended, "memoryd_runs_ended", s.incarnation, r.id)

        # Writing
        self.stored = compiled(select(r.id).where(*of_run), *run)
        self.insert = compiled(insert_row(runs, *RUN_COLUMNS), *RUN_COLUMNS)
        self.change = compiled(
            update(runs).where(*of_run).values(values_of(RUN_STATE_COLUMNS)), *RUN_STATE_COLUMNS, *run
        )
        self.change_head = compiled(
            update(runs).where(*of_run).values(values_of((*RUN_STATE_COLUMNS, "head"))),
            *(*RUN_STATE_COLUMNS, "head", *run),
        )
        # The usual change, for a database that writes index entries anew although they stay as they are.
        self.advance = compiled(
            update(runs).where(*of_run, r.status == bindparam("same")).values(values_of(("claimable_at", "state"))),
            *("claimable_at", "state", *run, "same"),
        )
        self.insert_step = compiled(insert_row(run_steps, *STORED_STEP_COLUMNS), *STORED_STEP_COLUMNS)

        # Deleting
        self.lock = compiled(select(r.tenant, r.ended).where(*of_run).with_for_update(), *run)
        self.hide = compiled(update(runs).where(*of_run).values(tenant=leaving, agent=leaving), *run)
        self.delete = compiled(delete(runs).where(*of_run), *run)
        self.list_leaving = compiled(
            first_rows(
                led_by(select(r.session, r.life, r.id), runs, "memoryd_runs_ended")
                .where(r.tenant == leaving, r.agent == leaving, r.ended > literal_column("0"))
                .order_by(r.ended, r.session, r.id)
            ),
            "limit",
        )
        first_steps = first_rows(select(x.number).where(*of_steps).order_by(x.number)).subquery()
        self.last_step_to_delete = compiled(select(func.max(first_steps.c.number)), *run, "limit")
        self.delete_steps = compiled(delete(run_steps).where(*of_steps, x.number <= bindparam("last")), *(*run, "last"))
        self.first_steps_of_life = compiled(
            first_rows(select(x.run_id, x.number).where(*steps_of_life).order_by(x.run_id, x.number)),
            *(*life, "limit"),
        )
        self.delete_steps_of_runs_before = compiled(
            delete(run_steps).where(*steps_of_life, x.run_id < bindparam("run")), *run
        )
        first_runs = first_rows(select(r.id).where(*of_life).order_by(r.id)).subquery()
        self.last_to_delete = compiled(select(func.max(first_runs.c.id)), *life, "limit")
        self.delete_first = compiled(delete(runs).where(*of_life, r.id <= bindparam("last")), *(*life, "last"))

    def place_in_agent(self, created: Value, number: Value, id_: Value) -> tuple[Value, ...]:
        """The parameters that name a place in the runs of an agent: see `Statements.place`."""
        return (created, created, number, number, id_) if self._names_places_twice else (created, number, id_)

    def place_in_session(self, created: Value, id_: Value) -> tuple[Value, ...]:
        """The parameters that name a place in the runs of a session."""
        return (created, created, id_) if self._names_places_twice else (created, id_)

    def _behind(self) -> ColumnElement[bool]:
        r = runs.c
        created: BindParameter[int] = bindparam("created")
        number: BindParameter[int] = bindparam("number")
        id_: BindParameter[str] = bindparam("id")
        if self._names_places_twice:
            of_other_session = or_(r.session < number, and_(r.session == number, r.id < id_))
            return and_(r.created <= created, or_(r.created < created, of_other_session))
        return tuple_(r.created, r.session, r.id) < tuple_(created, number, id_)

    def _behind_in_session(self) -> ColumnElement[bool]:
        r = runs.c
        created: BindParameter[int] = bindparam("created")
        id_: BindParameter[str] = bindparam("id")
        if self._names_places_twice:
            return and_(r.created <= created, or_(r.created < created, r.id < id_))
        return tuple_(r.created, r.id) < tuple_(created, id_)
