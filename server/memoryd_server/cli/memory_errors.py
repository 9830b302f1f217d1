"""What goes wrong with memory files, for a person: what happened, and the command that goes on."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from memoryd import EtagMismatch, InvalidArgument, MemoryFileFull, MemoryFileNotFound, MemoryFiles, SecretFound
from memoryd_server.cli.connecting import connected
from memoryd_server.cli.memory_options import Owner
from memoryd_server.cli.options import Server
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.terminal import Failure

SECRET_ADVICE: Final = "take it out, or repeat the command with --allow-secrets if it is none"


@contextmanager
def files_of(owner: Owner, server: Server) -> Iterator[MemoryFiles]:
    """The owner's files on a server. Errors of its calls leave as Failure."""
    with connected(server) as client, explained(owner):
        yield owner.files(client)


@contextmanager
def explained(owner: Owner) -> Iterator[None]:
    """Lets those errors leave as Failure of which a command line can say more than the SDK."""
    try:
        yield
    except MemoryFileNotFound as error:
        raise Failure(_not_found(owner, error)) from error
    except SecretFound as error:
        raise Failure(f"nothing was written: {secret_told(error)}; {SECRET_ADVICE}") from error
    except MemoryFileFull as error:
        name = quoted(error.metadata.get("name", ""))
        raise Failure(f"{error.message}; `memoryd memory edit {name} {owner.option}` prunes it") from error
    except ValueError as error:  # The SDK's word on what no request can carry.
        raise Failure(str(error), status=2) from error


def _not_found(owner: Owner, error: MemoryFileNotFound) -> str:
    name, version = error.metadata.get("name", ""), error.metadata.get("version", "")
    if version:
        return (
            f"{owner} has no version {one_line(version)} of {one_line(name)}; "
            f"`memoryd memory show {quoted(name)} --versions {owner.option}` lists those that are kept"
        )
    return f"{owner} has no {one_line(name)}; `memoryd memory show {owner.option}` lists what there is"


def secret_told(error: SecretFound, places: Sequence[str] = ()) -> str:
    """Where a credential is, and of what kind; never the credential. `places` are what entries are called."""
    where = f"line {error.line}"
    if places and (entry := _ENTRY.search(error.field)):
        where = places[int(entry[1])]
    return f"{where} holds a credential ({one_line(error.kind)})"


def invalid_told(error: InvalidArgument, places: Sequence[str]) -> str:
    """What is wrong with entries, each named by its place rather than by its field."""
    return _ENTRY.sub(lambda entry: places[int(entry[1])], error.message)


def changed_told(error: EtagMismatch) -> str:
    """What became of a file that is not any more what it was when it was read."""
    return "was changed meanwhile" if error.etag else "was deleted meanwhile"


_ENTRY: Final = re.compile(r"entries\[(\d+)\]")
