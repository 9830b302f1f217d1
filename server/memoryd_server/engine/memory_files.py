"""Memory files: what the MemoryContextService does with them, free of its protocol (design sections 3 and 7)."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from memoryd_server import limits
from memoryd_server.engine import page_tokens
from memoryd_server.engine.changes import StaleRead, check_etag
from memoryd_server.engine.errors import Reason, RequestError, field_invalid, field_required, field_too_large
from memoryd_server.engine.histories import page_size_of
from memoryd_server.engine.incoming import check_text
from memoryd_server.engine.memory_guide import INDEX, TIER_NAMES
from memoryd_server.engine.memory_writes import (
    Write,
    Written,
    check_secrets,
    check_write,
    expected,
    first_answer,
    load,
    make,
    until_made,
)
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.records import FileKey, FileOwner, FileVersion, StoredFile, Tier

OWNER_FIELDS: Final = {Tier.USER: "owner.user_id", Tier.PROJECT: "owner.project_id"}

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BOM: Final = b"\xef\xbb\xbf"
_SECOND: Final = 1_000_000


def etag_of(version: FileVersion) -> str:
    """The etag of a version (AIP-154): equal for equal contents."""
    return version.digest[:32]


def check_owner(owner: FileOwner, field: str | None = None) -> None:
    """The owner of memory files."""
    check_text(field or OWNER_FIELDS[owner.tier], owner.id, limits.MAX_ID_BYTES, required=True, what="the owner's id")


def check_name(name: str) -> None:
    """The name of a memory file: the index, or the log of a day."""
    if not name:
        raise field_required("name", f"{INDEX}, or YYYY-MM-DD.md")
    if name != INDEX and not (name.endswith(".md") and _is_day(name.removesuffix(".md"))):
        raise field_invalid("name", f"a memory file is {INDEX}, or YYYY-MM-DD.md with a date of the calendar")


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


async def get(runtime: Runtime, key: FileKey, version: int = 0) -> StoredFile:
    """A memory file, now or (with a version from 1) as it was.

    Raises: RequestError (field errors, MEMORY_FILE_NOT_FOUND), StoreUnavailable.
    """
    _check_key(key)
    if version < 0:
        raise field_invalid("version", "a version is 1 or more; 0 is the current one")
    if version:
        found = await runtime.store.load_file_version(key, version)
    else:
        found = await load(runtime, key)
    if found is None:
        raise _not_found(key, version)
    return found


async def list_(
    runtime: Runtime, owner: FileOwner, page_size: int = 0, page_token: str = ""
) -> tuple[Sequence[tuple[str, FileVersion]], str]:
    """A page of an owner's files, the index first and then the newest logs, and the token of the next.

    Raises: RequestError (field errors, PAGE_TOKEN_INVALID), StoreUnavailable.
    """
    check_owner(owner)
    limit = page_size_of(page_size)
    query = ("ListMemoryFiles", *owner)
    before = page_tokens.read(runtime.info.secret, query, page_token, str) if page_token else ""
    found = await runtime.store.list_files(owner, before, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return page, page_tokens.make(runtime.info.secret, query, page[-1][0]) if more else ""


async def list_versions(runtime: Runtime, key: FileKey) -> Sequence[FileVersion]:
    """The versions of a file that are kept, newest first.

    Raises: RequestError (field errors, MEMORY_FILE_NOT_FOUND), StoreUnavailable.
    """
    _check_key(key)
    versions = await runtime.store.list_file_versions(key)
    if not versions:
        raise _not_found(key)
    return versions


async def put(
    runtime: Runtime,
    write: Write,
    content: bytes,
    *,
    etag: str = "",
    create_only: bool = False,
    deadline: float | None = None,
) -> FileVersion:
    """Replaces a file, or makes it. Nothing is written when it has this content already.

    Raises: RequestError (field errors, SECRET_FOUND, ETAG_MISMATCH, REQUEST_ID_CONFLICT, CONTENTION), StoreUnavailable.
    """
    _check_key(write.key)
    check_write(write)
    if etag and create_only:
        raise field_invalid("create_only", "a file that must not exist has no etag: give one of the two")
    if len(content) > limits.MAX_FILE_BYTES:
        raise field_too_large("content", len(content), limits.MAX_FILE_BYTES, "bytes", "prune it, or use daily logs")
    await check_secrets(write, [("content", content)])

    def plan(current: StoredFile | None) -> tuple[bytes, int]:
        if current is None or current.content != content:
            if create_only and current is not None:
                raise _exists(write.key, current)
            if etag:
                check_etag(etag, "" if current is None else etag_of(current.version))
        return content, 0

    asked = ("put", content, etag, create_only)
    return (await make(runtime, write, asked, plan, deadline)).version


async def delete(runtime: Runtime, key: FileKey, *, etag: str = "", deadline: float | None = None) -> bool:
    """Deletes a file with all its versions. Returns: whether there was one.

    Raises: RequestError (field errors, ETAG_MISMATCH, CONTENTION), StoreUnavailable.
    """
    _check_key(key)

    async def attempt(current: StoredFile | None) -> bool:
        if current is None:
            return False
        check_etag(etag, etag_of(current.version))
        if not await runtime.store.delete_file(key, expected(current)):
            raise StaleRead
        return True

    return await until_made(runtime, key, attempt, deadline)


async def add_entries(
    runtime: Runtime, write: Write, entries: Sequence[str], *, deadline: float | None = None
) -> Written:
    """Adds lines at the end of an index; those that it holds already are skipped. Nothing is written when none is new.

    Raises: RequestError (field errors, SECRET_FOUND, MEMORY_FILE_FULL, REQUEST_ID_CONFLICT, CONTENTION),
    StoreUnavailable.
    """
    _check_key(write.key)
    check_write(write)
    _check_entries(entries)
    lines = [entry.encode() for entry in entries]
    await check_secrets(write, [(f"entries[{index}]", line) for index, line in enumerate(lines)])

    def plan(current: StoredFile | None) -> tuple[bytes, int]:
        content = b"" if current is None else current.content
        known = set(_lines(content))
        new = [line for line in dict.fromkeys(lines) if line not in known]
        return _appended(write.key, content, new) if new else content, len(new)

    return await make(runtime, write, ("add", *entries), plan, deadline)


async def append_log(
    runtime: Runtime,
    write: Write,
    text: str,
    *,
    day: str = "",
    time_zone: str = "",
    deadline: float | None = None,
) -> tuple[str, FileVersion]:
    """Adds text at the end of a daily log. `write.key` names the owner; the day gives the file's name.

    Returns: the log's name and version.
    Raises: RequestError (field errors, SECRET_FOUND, MEMORY_FILE_FULL, REQUEST_ID_CONFLICT, CONTENTION),
    StoreUnavailable.
    """
    check_owner(write.key.owner)
    check_write(write)
    name = f"{_day(runtime, day, time_zone)}.md"
    write = Write(FileKey(write.key.owner, name), write.author, write.allow_secrets, write.request_id)
    if not text.strip():
        raise field_required("text", "what is to be logged")
    encoded = text.encode()
    if len(encoded) > limits.MAX_FILE_BYTES:
        raise field_too_large("text", len(encoded), limits.MAX_FILE_BYTES, "bytes", "log what matters of it")
    await check_secrets(write, [("text", encoded)])
    added = encoded.rstrip(b"\r\n")
    asked = ("log", text)
    if not day and write.request_id:
        # The first try may have been yesterday.
        before = FileKey(write.key.owner, f"{date.fromisoformat(name[:10]) - timedelta(days=1)}.md")
        first = await first_answer(runtime, write, asked, await load(runtime, before))
        if first is not None:
            return before.name, first.version

    def plan(current: StoredFile | None) -> tuple[bytes, int]:
        return _appended(write.key, b"" if current is None else current.content, [added]), 0

    written = await make(runtime, write, asked, plan, deadline)
    return name, written.version


def _day(runtime: Runtime, day: str, time_zone: str) -> str:
    if day and time_zone:
        raise field_invalid("time_zone", "it tells which day is today: leave it out beside a date")
    if day:
        if not _is_day(day):
            raise field_invalid("date", "a day is YYYY-MM-DD, one of the calendar")
        return day
    check_text("time_zone", time_zone, limits.MAX_ID_BYTES)
    try:
        zone = zoneinfo.ZoneInfo(time_zone) if time_zone else UTC
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise field_invalid(
            "time_zone", "use a name of the IANA database such as Europe/Berlin, or leave it out"
        ) from None
    return datetime.fromtimestamp(runtime.clock.now() / _SECOND, zone).date().isoformat()


def _check_key(key: FileKey) -> None:
    check_owner(key.owner)
    check_name(key.name)


def _check_entries(entries: Sequence[str]) -> None:
    if not entries:
        raise field_required("entries", f"1 to {limits.MAX_MEMORY_ENTRIES} lines")
    if len(entries) > limits.MAX_MEMORY_ENTRIES:
        raise field_too_large(
            "entries", len(entries), limits.MAX_MEMORY_ENTRIES, "entries", "add them in several calls"
        )
    for index, entry in enumerate(entries):
        field = f"entries[{index}]"
        if not entry.strip():
            raise field_required(field, "a line that holds more than white space")
        if "\n" in entry or "\r" in entry:
            raise field_invalid(field, "an entry is one line: add several entries, or log what is longer")
        if (size := len(entry.encode())) > limits.MAX_MEMORY_ENTRY_BYTES:
            raise field_too_large(
                field, size, limits.MAX_MEMORY_ENTRY_BYTES, "bytes", "log it, and add a line about it"
            )


def _lines(content: bytes) -> list[bytes]:
    return content.removeprefix(_BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _appended(key: FileKey, content: bytes, lines: Sequence[bytes]) -> bytes:
    """The content with lines at its end, which end as those before do."""
    line_end = b"\r\n" if content.rpartition(b"\n")[0].endswith(b"\r") else b"\n"
    apart = b"" if content in (b"", _BOM) or content.endswith((b"\n", b"\r")) else line_end
    new = b"".join((content, apart, *(line + line_end for line in lines)))
    if len(new) > limits.MAX_FILE_BYTES:
        raise RequestError(
            Reason.MEMORY_FILE_FULL,
            f"{key.name} would have {len(new):,} bytes, and the limit is {limits.MAX_FILE_BYTES:,}; nothing was "
            "written: put a shorter file first",
            name=key.name,
            limit=limits.MAX_FILE_BYTES,
            actual=len(new),
        )
    return new


def _not_found(key: FileKey, version: int = 0) -> RequestError:
    of = f"version {version} of {key.name}" if version else key.name
    advice = "ListMemoryFileVersions tells what is kept" if version else "ListMemoryFiles tells what there is"
    metadata: dict[str, object] = {"name": key.name} | ({"version": version} if version else {})
    return RequestError(
        Reason.MEMORY_FILE_NOT_FOUND,
        f"{TIER_NAMES[key.owner.tier]} {key.owner.id!r} has no {of}: {advice}",
        retry_after=None,
        **metadata,
    )


def _exists(key: FileKey, current: StoredFile) -> RequestError:
    return RequestError(
        Reason.ETAG_MISMATCH,
        f"there is a {key.name} already, with other content: read it, then put with its etag",
        etag=etag_of(current.version),
    )
