"""Transcripts in JSON Lines files: reading them, naming what is wrong in them, and the ids of their messages."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final

from memoryd import Message, from_anthropic, from_openai
from memoryd_server.cli.options import Format

STDIN: Final = Path("-")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Where:
    """A line of a file."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")


class BadLine(Exception):
    """A line cannot be imported. Its text names file, line (column too, where known) and what is wrong."""

    def __init__(self, where: Where, what: str) -> None:
        super().__init__(f"{where}: {what}")


@dataclass(frozen=True, slots=True)
class Transcript:
    """One session of a file."""

    where: Where
    agent: str
    session_id: str
    messages: list[Message]
    sources: list[Mapping[str, Any]]
    """What each message was made of."""
    names: list[str]
    """How to name each message in an error, for example `messages[3]`."""
    size: int
    """The bytes of its line."""

    def ids(self, base: int) -> list[str]:
        """The ids under which the messages are stored behind the seq `base`.

        The same transcript always has the same ids, so that what is stored already is recognized, whenever that was.
        Each is a digest of all messages so far: where one id is found, everything before it is stored as well, and a
        transcript that differs anywhere has other ids from there on.
        """
        digest = blake2b(digest_size=16)
        ids = []
        for index, source in enumerate(self.sources):
            digest.update(json.dumps(source, sort_keys=True, separators=(",", ":")).encode())
            digest.update(b"\n")
            ids.append(f"import-{base}-{index}-{digest.hexdigest()}")
        return ids


def base_of(message_id: str) -> int | None:
    """The `base` of an id that `Transcript.ids` made; None for another id."""
    match message_id.split("-"):
        case ["import", base, index, _] if base.isdecimal() and index.isdecimal():
            return int(base)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Source:
    """A file to import."""

    path: Path
    format: Format
    agent: str
    """Whose sessions its transcripts become."""

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return "standard input" if self.path == STDIN else str(self.path)

    @property
    def size(self) -> int | None:
        """The bytes of the file; None where that is not known beforehand. Raises OSError without the file."""
        if self.path == STDIN:
            return None
        return self.path.stat().st_size if self.path.is_file() else None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The numbers and bytes of the lines that are not blank. Raises OSError."""
        with self._open() as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    yield number, text

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        if self.path == STDIN:
            yield sys.stdin.buffer
        else:
            with self.path.open("rb") as file:
                yield file

    def transcript(self, number: int, line: bytes) -> Transcript | None:
        """The transcript of a line; None for one without messages. Raises BadLine."""
        where = Where(self.name, number)
        value = _json(where, line)
        if isinstance(value, list):
            value = {"messages": value}
        if not isinstance(value, dict):
            raise BadLine(where, f"is not an object: {_EXPECTED}")
        messages = value.get("messages")
        if not isinstance(messages, list):
            raise BadLine(where, f'has no array "messages": {_EXPECTED}')
        session_id = value.get("session_id", f"{'stdin' if self.path == STDIN else self.path.stem}-{number}")
        if not isinstance(session_id, str) or not session_id:
            raise BadLine(where, f'has a "session_id" that is not text: {json.dumps(session_id)[:60]}')
        try:
            sources, names, made = _READERS[self.format](value, messages)
        except ValueError as error:
            raise BadLine(where, str(error)) from error
        if not made:
            return None
        return Transcript(where, self.agent, session_id, made, sources, names, len(line))


_EXPECTED: Final = 'each line is {"session_id": …, "messages": […]}, or an array of messages'


def _json(where: Where, line: bytes) -> Any:
    try:
        return json.loads(line.rstrip(b"\r\n").decode())
    except UnicodeDecodeError as error:
        raise BadLine(Where(where.file, where.line, error.start + 1), "is not UTF-8") from error
    except json.JSONDecodeError as error:
        hint = ". JSON Lines have a whole value on each line: `jq -c '.[]' FILE` makes them of a JSON array"
        spread = where.line == 1 and line.strip() in (b"[", b"{")
        raise BadLine(
            Where(where.file, where.line, error.colno), f"is not JSON: {error.msg}{hint if spread else ''}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadLine(where, f"is JSON that nests too deep or has too long numbers ({error})") from error


Read = tuple[list[Mapping[str, Any]], list[str], list[Message]]


def _read_openai(value: Mapping[str, Any], messages: list[Any]) -> Read:
    del value
    return messages, _names(messages), from_openai(messages)


def _read_anthropic(value: Mapping[str, Any], messages: list[Any]) -> Read:
    system = value.get("system")
    made = from_anthropic(messages, system)
    if system is None:
        return messages, _names(messages), made
    return [{"system": system}, *messages], ["system", *_names(messages)], made


def _names(messages: list[Any]) -> list[str]:
    return [f"messages[{index}]" for index in range(len(messages))]


_READERS: Final[Mapping[Format, Callable[[Mapping[str, Any], list[Any]], Read]]] = {
    Format.OPENAI_CHAT: _read_openai,
    Format.ANTHROPIC: _read_anthropic,
}
