"""Writes of memory files: each is planned as a pure function of the file and made by compare-and-set; when another came
first, it is planned again. A request id is remembered beside the file (AIP-155).

Calls for one file within a process take turns, so that only other servers come between a read and a change.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Final, TypeVar

import msgspec

from memoryd_server import limits
from memoryd_server.engine import secret_scan
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.committer import CONTENTION_RETRY_SECONDS
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import check_text
from memoryd_server.engine.replay import request_id_conflict
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_unchanged
from memoryd_server.stores.base import Version
from memoryd_server.stores.records import (
    FileKey,
    FileRequest,
    FileVersion,
    StoredFile,
    decode_requests,
    encode_requests,
)

_SECOND: Final = 1_000_000

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Write:
    """What all writes of a memory file bring."""

    key: FileKey
    author: str = ""
    allow_secrets: bool = False
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to a write."""

    version: FileVersion
    added: int = 0
    """Entries that were added."""


Plan = Callable[[StoredFile | None], tuple[bytes, int]]
"""Plans a write from the file as it is: its new content, and how many entries that adds. Raises what the caller shall
get instead. Must be pure: it may run any number of times.
"""


def check_write(write: Write) -> None:
    """Author and request id."""
    check_text("author", write.author, limits.MAX_NAME_BYTES)
    check_text("request_id", write.request_id, limits.MAX_ID_BYTES)


async def check_secrets(write: Write, texts: Sequence[tuple[str, bytes]]) -> None:
    """Texts by field: none may hold a credential, unless the caller says so. Raises: RequestError SECRET_FOUND."""
    if not write.allow_secrets:
        await asyncio.to_thread(_refuse_secrets, texts)


def _refuse_secrets(texts: Sequence[tuple[str, bytes]]) -> None:
    for field, text in texts:
        for found in secret_scan.find_secrets_in_bytes(text):
            raise RequestError(
                Reason.SECRET_FOUND,
                f"line {found.line} of {field} holds a credential ({found.kind}), and memory is no place for it; "
                "nothing was written: take it out, or set allow_secrets if it is none",
                field=field,
                line=found.line,
                kind=found.kind,
            )


async def make(runtime: Runtime, write: Write, asked: Sequence[object], plan: Plan, deadline: float | None) -> Written:
    """Makes a write, once: `asked` tells it from other requests with its id."""

    async def attempt(current: StoredFile | None) -> Written:
        first = await first_answer(runtime, write, asked, current)
        if first is not None:
            return first
        content, added = plan(current)
        if current is not None and content == current.content:
            await runtime.store.confirm_file(write.key)
            return Written(current.version, added)
        number = 1 if current is None else current.version.version + 1
        now = runtime.clock.now()
        version = FileVersion(number, sha256(content).hexdigest(), len(content), write.author, now)
        known = () if current is None else decode_requests(current.requests)
        requests = [request for request in known if request.created > now - limits.LOOKUP_SECONDS * _SECOND]
        if write.request_id:
            requests.append(FileRequest(*_marks(write, asked), version, added, now))
        file = StoredFile(
            key=write.key,
            incarnation=new_incarnation(runtime.info.secret) if current is None else current.incarnation,
            version=version,
            content=content,
            requests=encode_requests(requests[-limits.MAX_FILE_REQUESTS :]),
        )
        if not await runtime.store.save_file(file, None if current is None else expected(current)):
            raise StaleRead
        return Written(version, added)

    return await until_made(runtime, write.key, attempt, deadline)


async def first_answer(
    runtime: Runtime, write: Write, asked: Sequence[object], file: StoredFile | None
) -> Written | None:
    """The first answer to a replay of a write of this file; None when it is none.

    Raises: RequestError REQUEST_ID_CONFLICT when its id is that of another request; StoreUnavailable.
    """
    if file is None or not write.request_id:
        return None
    id_, digest = _marks(write, asked)
    for request in decode_requests(file.requests):
        if request.id == id_:
            if request.digest != digest:
                raise request_id_conflict(write.request_id)
            await runtime.store.confirm_file(file.key)
            return Written(request.answer, request.added)
    return None


def _marks(write: Write, asked: Sequence[object]) -> tuple[str, str]:
    """By which a request is remembered: of its id, and of what it asks for."""
    return _digest(write.request_id.encode()), _digest(msgspec.msgpack.encode(asked))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def new_incarnation(secret: bytes) -> str:
    """The incarnation of a file that begins in the store with this secret: 96 random bits, and a mark of the store."""
    random_ = secrets.token_hex(12)
    return random_ + _birthmark(secret, random_)


def was_born_in(incarnation: str, store_secrets: Collection[bytes]) -> bool:
    """Whether a file began in a store with one of these secrets, rather than elsewhere."""
    random_, mark = incarnation[:24], incarnation[24:]
    return any(mark == _birthmark(secret, random_) for secret in store_secrets)


def _birthmark(secret: bytes, random_: str) -> str:
    return blake2b(random_.encode(), key=secret, digest_size=4).hexdigest()


async def until_made(
    runtime: Runtime, key: FileKey, attempt: Callable[[StoredFile | None], Awaitable[Result]], deadline: float | None
) -> Result:
    """Tries on the file as it is, until an attempt answers: StaleRead says that the file was changed meanwhile.

    Raises: what else the attempt raises; RequestError CONTENTION when the deadline comes first; StoreUnavailable.
    """

    async def on_the_file() -> Result:
        return await attempt(await load(runtime, key))

    def contended() -> RequestError:
        return RequestError(
            Reason.CONTENTION,
            f"other calls kept changing {key.name}; nothing was written: try again",
            retry_after=CONTENTION_RETRY_SECONDS,
        )

    async with runtime.file_turns.setdefault(key, asyncio.Lock()):
        return await until_unchanged(on_the_file, deadline, contended)


async def load(runtime: Runtime, key: FileKey) -> StoredFile | None:
    """The file as it is. Raises: StoreUnavailable."""
    return next(iter(await runtime.store.load_files((key,))), None)


def expected(file: StoredFile) -> Version:
    """The state of the file that a change of it rests on."""
    return Version(file.incarnation, file.version.version)
