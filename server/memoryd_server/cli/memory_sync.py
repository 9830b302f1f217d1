"""Memory files moved between a folder and the store: what to do with each, and doing it.

A push or a pull copies from one side, its source, to the other, its target. What was equal on both sides is remembered
(sync_records.py), so that each side is known to be as it was, changed, or gone. The target is overwritten only where it
is as it was, or equal; that holds when it happens, too: the store compares etags, and the folder its content.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final, Protocol

from memoryd import AsyncMemoryFiles, EtagMismatch, MemoryFileFull, MemoryFileInfo, MemoryFileNotFound, SecretFound
from memoryd_server.cli.memory_errors import SECRET_ADVICE, secret_told
from memoryd_server.cli.memory_folder import ChangedHere, Folder, LocalFile, Untouched, digest_of, is_memory_name
from memoryd_server.cli.memory_view import minute
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.sync_records import Record, Records

IN_FLIGHT: Final = 8
"""Files that are moved at once."""
CALL_SECONDS: Final = 60.0
"""What the call for one file may take: the largest has 1 MiB, and is searched for credentials."""
_PAGE: Final = 1_000


class Direction(StrEnum):
    """Which way files go."""

    PUSH = "push"
    """From the folder to the store."""
    PULL = "pull"
    """From the store to the folder."""


class State(Enum):
    """A side's file, compared to when both sides were equal."""

    ABSENT = auto()
    AS_IT_WAS = auto()
    CHANGED = auto()
    """Or never known to have been equal."""


class Step(Enum):
    """What to do with a file."""

    SETTLE = auto()
    """Nothing: both sides are equal, or neither has it."""
    COPY = auto()
    REMOVE = auto()
    """Remove it from the target."""
    COMPARE = auto()
    """Both sides may have changed: only their contents tell."""
    LEAVE_NEW = auto()
    """Only the target has it, and the source never had."""
    LEAVE_NEWER = auto()
    """Only the target changed."""
    LEAVE_DELETED = auto()
    """It was deleted at the source, and the target keeps it."""
    LEAVE_GONE = auto()
    """It was deleted at the target, and the source keeps it."""
    REFUSE = auto()
    """It was deleted on one side, and changed on the other."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for."""

    direction: Direction
    names: frozenset[str] = frozenset()
    """Only these files; empty for all."""
    delete: bool = False
    """Whether what was deleted at the source is deleted at the target."""
    force: bool = False
    """Whether the source wins over what changed at the target."""
    dry_run: bool = False
    author: str = ""
    allow_secrets: bool = False


def decide(source: State, target: State, *, known: bool, wish: Wish) -> Step:
    """What to do with a file. `known` says whether both sides once had it, and were equal."""
    match source, target:
        case State.ABSENT, State.ABSENT:
            return Step.SETTLE
        case State.ABSENT, _:
            if not known:
                return Step.LEAVE_NEW
            if not wish.delete:
                return Step.LEAVE_DELETED
            return Step.REMOVE if wish.force or target is State.AS_IT_WAS else Step.REFUSE
        case _, State.ABSENT:
            # A pull brings back what is missing here: nothing is lost by it, and a folder that was lost is filled.
            if not known or wish.force or wish.direction is Direction.PULL:
                return Step.COPY
            return Step.LEAVE_GONE if source is State.AS_IT_WAS else Step.REFUSE
        case State.AS_IT_WAS, State.AS_IT_WAS:
            return Step.SETTLE
        case State.CHANGED, State.AS_IT_WAS:
            return Step.COPY
        case State.AS_IT_WAS, _:
            return Step.COPY if wish.force else Step.LEAVE_NEWER
        case _:
            return Step.COMPARE


class Result(StrEnum):
    """What became of a file."""

    MADE = "made"
    CHANGED = "changed"
    DELETED = "deleted"
    SAME = "same"
    LEFT_NEW = "only_in_target"
    LEFT_NEWER = "newer_in_target"
    LEFT_DELETED = "deleted_in_source"
    LEFT_GONE = "deleted_in_target"
    CONFLICT = "conflict"
    REFUSED = "refused"
    """It cannot be read, written or stored."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file, or in a dry run would."""

    name: str
    result: Result
    reason: str = ""
    """Why there is a conflict, or what else is wrong."""


class Observer(Protocol):
    """Is told how it goes on."""

    def advanced(self, done: int, total: int) -> None:
        """So many files of all are done."""


class NoFolder(Exception):
    """There is no folder to push."""


class _Conflict(Exception):
    """A side changed. Its text says how."""


_LEFT: Final = {
    Step.LEAVE_NEW: Result.LEFT_NEW,
    Step.LEAVE_NEWER: Result.LEFT_NEWER,
    Step.LEAVE_DELETED: Result.LEFT_DELETED,
    Step.LEAVE_GONE: Result.LEFT_GONE,
}


@dataclass(slots=True)
class Sync:
    """One push or pull. What it has done so far stands in `outcomes` and `records`, also after a failure."""

    files: AsyncMemoryFiles
    folder: Folder
    records: Records
    wish: Wish
    observer: Observer
    outcomes: list[Outcome] = field(default_factory=list)
    others: tuple[str, ...] = ()
    """What else is in the folder, and is left alone."""
    foreign: tuple[str, ...] = ()
    """What the store names that is no memory file, and is left alone."""

    async def run(self) -> None:
        """Moves the files. Raises: MemorydError, NoFolder; OSError and Untouched, if it is about the whole folder."""
        pushes = self.wish.direction is Direction.PUSH
        stored = {info.name: info async for info in self.files.list(page_size=_PAGE, timeout=CALL_SECONDS)}
        listing = await asyncio.to_thread(self.folder.listing)
        if listing is None and pushes:
            raise NoFolder
        if listing is not None and not pushes and not self.wish.dry_run:
            await asyncio.to_thread(self.folder.remove_abandoned)
        here = frozenset[str]() if listing is None else listing.names
        self.others = () if listing is None else listing.others
        self.foreign = tuple(sorted(name for name in stored if not is_memory_name(name)))
        names = self.wish.names or set(filter(is_memory_name, {*here, *stored, *self.records.names}))
        if not pushes and not self.wish.dry_run and not names.isdisjoint(stored):
            await asyncio.to_thread(self.folder.make)
        await self._settle_all(sorted(names, reverse=True), stored)  # The index, then the newest logs.
        if not pushes and self._changed():
            await asyncio.to_thread(self.folder.sync)

    def _changed(self) -> bool:
        results = {outcome.result for outcome in self.outcomes}
        return not self.wish.dry_run and bool(results & {Result.MADE, Result.CHANGED, Result.DELETED})

    async def _settle_all(self, names: list[str], stored: dict[str, MemoryFileInfo]) -> None:
        left = iter(names)

        async def work() -> None:
            for name in left:
                outcome = await self._settle(name, stored.get(name))
                if outcome is not None:
                    self.outcomes.append(outcome)
                self.observer.advanced(len(self.outcomes), len(names))

        workers = [asyncio.create_task(work()) for _ in range(min(IN_FLIGHT, len(names)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _settle(self, name: str, info: MemoryFileInfo | None) -> Outcome | None:
        """Does what there is to do with a file; None where there is none of it any more."""
        try:
            local = await asyncio.to_thread(self.folder.look_at, name)
            return await self._carry_out(self._step(name, local, info), name, local, info)
        except _Conflict as conflict:
            return Outcome(name, Result.CONFLICT, str(conflict))
        except EtagMismatch:
            return Outcome(name, Result.CONFLICT, "the store's was changed just now")
        except MemoryFileNotFound:
            return Outcome(name, Result.CONFLICT, "the store's was deleted just now")
        except ChangedHere as changed:
            return Outcome(name, Result.CONFLICT, str(changed))
        except Untouched as reason:
            return Outcome(name, Result.REFUSED, str(reason))
        except SecretFound as error:
            return Outcome(name, Result.REFUSED, f"{secret_told(error)}: {SECRET_ADVICE}")
        except MemoryFileFull as error:
            return Outcome(name, Result.REFUSED, one_line(error.message))

    def _step(self, name: str, local: LocalFile | None, info: MemoryFileInfo | None) -> Step:
        record = self.records.get(name)
        here = _state(local is not None, local is not None and record is not None and local.digest == record.digest)
        there = _state(info is not None, info is not None and record is not None and info.etag == record.etag)
        source, target = (here, there) if self.wish.direction is Direction.PUSH else (there, here)
        return decide(source, target, known=record is not None, wish=self.wish)

    async def _carry_out(
        self, step: Step, name: str, local: LocalFile | None, info: MemoryFileInfo | None
    ) -> Outcome | None:
        match step:
            case Step.SETTLE:
                if local is None:
                    return self._none_left(name)
                return Outcome(name, Result.SAME)
            case Step.COMPARE if local is not None and info is not None:
                if await self._is_equal(name, local, info):
                    return Outcome(name, Result.SAME)
                if not self.wish.force:
                    raise _Conflict(self._differ(name, info))
                return await self._copy(name, local, info)
            case Step.COPY:
                return await self._copy(name, local, info)
            case Step.REMOVE:
                return await self._remove(name, local, info)
            case Step.REFUSE:
                raise _Conflict(
                    "it was changed here, and deleted in the store"
                    if info is None
                    else f"it was deleted here, and changed in the store ({_told(info)})"
                )
            case _:
                return Outcome(name, _LEFT[step])

    def _none_left(self, name: str) -> Outcome | None:
        if name in self.wish.names:
            return Outcome(name, Result.REFUSED, "neither the folder nor the store has it")
        self._note(name, None)
        return None

    def _note(self, name: str, record: Record | None) -> None:
        if not self.wish.dry_run:
            self.records.note(name, record)

    async def _is_equal(self, name: str, local: LocalFile, info: MemoryFileInfo) -> bool:
        if local.size != info.size:
            return False
        file = await self.files.get(name, timeout=CALL_SECONDS)
        if digest_of(file.content) != local.digest:
            return False
        self._note(name, Record(file.etag, local.digest))
        return True

    def _differ(self, name: str, info: MemoryFileInfo) -> str:
        if self.records.get(name) is None:
            return f"the folder's and the store's differ ({_told(info)}), and were never equal as far as is known here"
        return f"it was changed here, and in the store ({_told(info)})"

    async def _copy(self, name: str, local: LocalFile | None, info: MemoryFileInfo | None) -> Outcome:
        made = (info if self.wish.direction is Direction.PUSH else local) is None
        if not self.wish.dry_run:
            await (self._put(name, info) if self.wish.direction is Direction.PUSH else self._write(name, local))
        return Outcome(name, Result.MADE if made else Result.CHANGED)

    async def _put(self, name: str, info: MemoryFileInfo | None) -> None:
        content = await asyncio.to_thread(self.folder.read, name)
        if content is None:
            raise ChangedHere("it was deleted here just now")
        put = await self.files.put(
            content,
            name,
            etag=None if info is None else info.etag,
            create_only=info is None,
            author=self.wish.author,
            allow_secrets=self.wish.allow_secrets,
            timeout=CALL_SECONDS,
        )
        self._note(name, Record(put.etag, digest_of(content)))

    async def _write(self, name: str, local: LocalFile | None) -> None:
        file = await self.files.get(name, timeout=CALL_SECONDS)
        try:
            await asyncio.to_thread(self.folder.write, name, file.content, local)
        except OSError as error:
            raise Untouched(f"it cannot be written: {error.strerror}") from error
        self._note(name, Record(file.etag, digest_of(file.content)))

    async def _remove(self, name: str, local: LocalFile | None, info: MemoryFileInfo | None) -> Outcome:
        if not self.wish.dry_run:
            if info is not None:
                await self.files.delete(name, info.etag, timeout=CALL_SECONDS)
            elif local is not None:
                try:
                    await asyncio.to_thread(self.folder.remove, name, local)
                except OSError as error:
                    raise Untouched(f"it cannot be deleted: {error.strerror}") from error
            self._note(name, None)
        return Outcome(name, Result.DELETED)


def _state(is_there: bool, as_it_was: bool) -> State:
    if not is_there:
        return State.ABSENT
    return State.AS_IT_WAS if as_it_was else State.CHANGED


def _told(info: MemoryFileInfo) -> str:
    """What tells a version of the store to a person."""
    by = f" by {one_line(info.author)}" if info.author else ""
    return f"version {info.version}{by}, {minute(info.create_time)}"
