"""The statements about memory files."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Dialect,
    Table,
    and_,
    bindparam,
    delete,
    literal_column,
    select,
    update,
)

from memoryd_server import limits
from memoryd_server.stores.sql.compiling import (
    ListStatement,
    compile_once,
    first_rows,
    insert_new,
    insert_row,
    values_of,
)
from memoryd_server.stores.sql.rows import FILE_KEY_COLUMNS, FILE_VERSION_COLUMNS
from memoryd_server.stores.sql.schema import file_versions, files

OWNER: Final = FILE_KEY_COLUMNS[:-1]
CHANGING: Final = ("version", "requests")

_PARAMETER: Final = re.compile(r"\$(\d+)")


class FileStatements:
    """The SQL texts. Values are passed in the order of the names given here."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: ClauseElement, *parameters: str) -> str:
            return compile_once(dialect, statement, *parameters)

        def of(table: Table, *names: str) -> list[ColumnElement[bool]]:
            return [table.c[name] == bindparam(f"of_{name}") for name in names]

        f, v = files.c, file_versions.c
        key = tuple(f"of_{name}" for name in FILE_KEY_COLUMNS)
        owner = key[:-1]
        of_key, of_key_of_version = of(files, *FILE_KEY_COLUMNS), of(file_versions, *FILE_KEY_COLUMNS)
        told = [v[name] for name in FILE_VERSION_COLUMNS]
        same_key = and_(*(f[name] == v[name] for name in FILE_KEY_COLUMNS))
        newest = files.join(file_versions, and_(same_key, f.version == v.version))

        # Reading
        self._load = compiled(
            select(*(f[name] for name in FILE_KEY_COLUMNS), f.incarnation, f.requests, v.content, *told)
            .select_from(newest)
            .where(*of_key),
            *key,
        )
        self.size = compiled(select(v.size).select_from(newest).where(*of_key), *key)
        self.load_version = compiled(
            select(f.incarnation, v.content, *told)
            .select_from(files.join(file_versions, same_key))
            .where(*of_key, v.version == bindparam("at")),
            *(*key, "at"),
        )
        self.versions = compiled(select(*told).where(*of_key_of_version).order_by(v.version.desc()), *key)
        self.list_of_owner = compiled(
            first_rows(
                select(f.name, *told)
                .select_from(newest)
                .where(*of(files, *OWNER), f.name < bindparam("before"))
                .order_by(f.name.desc())
            ),
            *(*owner, "before", "limit"),
        )
        self.list_owners = compiled(
            first_rows(
                select(f.owner).where(*of(files, "tenant", "tier"), f.owner > bindparam("after")).distinct()
            ).order_by(f.owner),
            *("of_tenant", "of_tier", "after", "limit"),
        )
        self.list_tenants = compiled(
            first_rows(select(f.tenant).where(f.tenant > bindparam("after")).distinct()).order_by(f.tenant),
            *("after", "limit"),
        )

        # Writing
        born = (*FILE_KEY_COLUMNS, "incarnation", *CHANGING)
        self.insert = compiled(insert_new(dialect, files, *born), *born)
        expected = (f.incarnation == bindparam("of_incarnation"), f.version == bindparam("of_version"))
        state = ("of_incarnation", "of_version")
        self.change = compiled(
            update(files).where(*of_key, *expected).values(values_of(CHANGING)), *(*CHANGING, *key, *state)
        )
        stored = (*FILE_KEY_COLUMNS, *FILE_VERSION_COLUMNS, "content")
        self.insert_version = compiled(insert_row(file_versions, *stored), *stored)
        surplus = (
            select(v.version)
            .where(*of_key_of_version)
            .order_by(v.version.desc())
            .limit(literal_column("1"))
            .offset(literal_column(str(limits.MAX_FILE_VERSIONS)))
        )
        self.newest_surplus_version = compiled(surplus, *key)
        self.delete_first_versions = compiled(
            delete(file_versions).where(*of_key_of_version, v.version <= bindparam("last")), *(*key, "last")
        )
        self.delete = compiled(delete(files).where(*of_key, *expected), *(*key, *state))
        self.delete_versions = compiled(delete(file_versions).where(*of_key_of_version), *key)

        # Erasing
        self.lock_some = compiled(
            first_rows(select(f.name).where(*of(files, *OWNER)).order_by(f.name)).with_for_update(), *(*owner, "limit")
        )
        self.delete_named = ListStatement(dialect, delete(files).where(*of(files, *OWNER)), f.name, *owner)
        self.delete_versions_named = ListStatement(
            dialect, delete(file_versions).where(*of(file_versions, *OWNER)), v.name, *owner
        )

    def load(self, count: int) -> str:
        """Reads so many files by their keys. Each is looked up by itself: no database takes another way to them."""
        size = len(FILE_KEY_COLUMNS)
        return " UNION ALL ".join(_numbered_from(before, self._load) for before in range(0, count * size, size))


def _numbered_from(before: int, sql: str) -> str:
    """The text with its parameters behind so many others, where they are numbered."""
    return _PARAMETER.sub(lambda number: f"${int(number[1]) + before}", sql)
