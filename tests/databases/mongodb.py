"""Servers that speak the protocol of MongoDB, for which no registry has MongoDB itself: two, written apart from each
other, each of which does what the other cannot."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from pymongo import IndexModel, MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from tests.databases.kind import Kind, find_programs, is_served

Document = dict[str, Any]

TOOLS: Final = Path(__file__).parents[2] / "build" / "tools"
"""Where `make test-deps` puts what it builds."""

DRIVER: Final = os.environ.get("MEMORYD_TEST_MONGODB_DRIVER", "")
"""By which the stores under test reach their database, if it is not the one that they take by themselves."""

_ANSWER_MS: Final = 2_000
"""How long a server may take to say that it is there."""


class _MongoDB(Kind):
    compose_url = "mongodb://127.0.0.1:17017/"
    program: ClassVar[str]
    where: ClassVar[Path]
    options: ClassVar[Sequence[str]] = ()
    """Of the URLs of its databases."""

    def programs(self) -> tuple[Path, ...] | None:
        return find_programs(self.program, before_path=[self.where])

    def local_url(self, ports: Sequence[int]) -> str:
        return f"mongodb://127.0.0.1:{ports[0]}/"

    def database_url(self, server: str, database: str) -> str:
        parts = urlsplit(server)
        options = [*filter(None, [parts.query]), *self.options, *([f"driver={DRIVER}"] if DRIVER else [])]
        return parts._replace(path=f"/{database}", query="&".join(options)).geturl()

    def answers(self, server: str) -> bool:
        # The driver would try for as long as it may.
        with suppress(PyMongoError), _connected(server, timeoutMS=_ANSWER_MS) as client:
            return is_served(server) and bool(client.admin.command("ping")["ok"])
        return False

    def drop(self, server: str, database: str) -> None:
        with _connected(server) as client:
            client.drop_database(database)

    def empty(self, url: str) -> bool:
        with database_at(url) as database:
            for name in database.list_collection_names():
                database[name].delete_many({})
        return True


class FerretDB(_MongoDB):
    """Close to MongoDB in its commands, and as slow as it should be, but an update is a read and a write of its own."""

    name = "mongodb"
    title = "MongoDB (FerretDB)"
    program = "ferretdb"
    where = TOOLS
    is_atomic = False

    @property
    def how_to_install(self) -> str:
        return "`make test-deps` builds it where go is installed"

    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        return [
            str(programs[0]),
            f"--listen-addr=127.0.0.1:{port}",
            "--handler=sqlite",
            f"--sqlite-url=file:{data}/",
            f"--state-dir={data}",
            # It tells nobody that it runs, and serves nothing else.
            "--telemetry=disable",
            "--debug-addr=-",
            "--log-level=WARN",
        ]


class NX27017(_MongoDB):
    """Right about concurrent updates, but it looks at every document of a collection for most questions."""

    name = "mongodb_concurrent"
    title = "MongoDB (NX-27017)"
    program = "nx-27017"
    where = Path(sys.executable).parent
    # Else it waits for the disk after each document, and not after each command, which makes most tests four times as
    # slow. What it has written outlives it all the same.
    options = ("journal=false",)

    @property
    def how_to_install(self) -> str:
        return "`make install` installs it"

    def serve_command(self, programs: Sequence[Path], data: Path, port: int) -> list[str]:
        return [
            str(programs[0]),
            f"--data-dir={data}",
            f"--port={port}",
            # It tells the same on its standard error.
            "--log-file=/dev/null",
            # A new one each time: it takes the process that now has the number of one that was killed for itself.
            f"--pid-file={data}/{uuid.uuid4().hex}.pid",
        ]


def index_single_fields(url: str, fields: Mapping[str, Iterable[str]]) -> None:
    """Gives collections of a database an index on each of some fields. NX-27017 finds documents by such ones alone, and
    else looks at all that there are.
    """
    with database_at(url) as database:
        for name, each in fields.items():
            database[name].create_indexes([IndexModel(field) for field in each])


@contextmanager
def database_at(url: str) -> Iterator[Database[Document]]:
    """The database of a URL."""
    with _connected(url) as client:
        yield client.get_default_database()


def _connected(url: str, **options: Any) -> MongoClient[Document]:
    # Without the store's own option, which comes last.
    return MongoClient(re.sub(r"[?&]driver=\w+$", "", url), **options)
