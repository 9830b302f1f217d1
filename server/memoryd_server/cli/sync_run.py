"""Runs a push or a pull: connects, shows how it goes on, and tells what became of the files."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from memoryd import MemorydError
from memoryd_server.cli.connecting import async_client, failure
from memoryd_server.cli.json_lines import print_line
from memoryd_server.cli.memory_errors import explained
from memoryd_server.cli.memory_folder import Folder, Untouched
from memoryd_server.cli.memory_options import Owner
from memoryd_server.cli.memory_sync import Direction, NoFolder, Outcome, Result, Sync, Wish
from memoryd_server.cli.options import Server
from memoryd_server.cli.progress import Bar
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.sync_records import Records
from memoryd_server.cli.terminal import INTERRUPTED, Failure, counted, err, out, tell

CONFLICTS: Final = 1
"""The exit status when a file could not be moved, as after any other failure."""
_NAMES: Final = 6
"""Names that one line tells; of more it tells how many."""
_MOVED: Final = (Result.MADE, Result.CHANGED, Result.DELETED)
_LEFT: Final = (Result.LEFT_NEW, Result.LEFT_NEWER, Result.LEFT_DELETED, Result.LEFT_GONE)

_NOTES: Final = {
    (Direction.PUSH, Result.LEFT_NEW): "in the store only, which `memoryd memory pull` takes here",
    (Direction.PUSH, Result.LEFT_NEWER): "changed in the store only, which `memoryd memory pull` takes here",
    (Direction.PUSH, Result.LEFT_DELETED): "deleted here, and kept in the store without --delete",
    (Direction.PUSH, Result.LEFT_GONE): "deleted in the store, and kept here: `memoryd memory pull --delete` deletes "
    "them here, --force puts them back",
    (Direction.PULL, Result.LEFT_NEW): "here only, which `memoryd memory push` takes to the store",
    (Direction.PULL, Result.LEFT_NEWER): "changed here only, which `memoryd memory push` takes to the store",
    (Direction.PULL, Result.LEFT_DELETED): "deleted in the store, and kept here without --delete",
}


def synchronize(server: Server, owner: Owner, directory: Path | None, wish: Wish, *, as_json: bool) -> None:
    """Moves an owner's files. Raises: Failure, unless all could be moved that there was to move."""
    run = _Run(server, owner, directory, wish)
    try:
        with Bar(err(), f"{wish.direction}ing") as bar, explained(owner):
            asyncio.run(run.move(bar))
    except MemorydError as error:
        raise Failure(f"{failure(error, server.address)}.\n{run.so_far()} {_REPEAT}") from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted.\n{run.so_far()} {_REPEAT}", status=INTERRUPTED) from interrupt
    except NoFolder as error:
        raise Failure(
            f"there is no folder {run.folder}. {'Go to the workspace' if owner.tier == 'project' else 'Make it'}, or "
            f"name another: memoryd memory push DIR {owner.option}"
        ) from error
    except OSError as error:
        raise Failure(f"the folder {run.folder} cannot be used: {error.strerror}.\n{run.so_far()}") from error
    except Untouched as reason:
        raise Failure(f"the folder {run.folder} is not used: {reason}.\n{run.so_far()}") from reason
    run.report(as_json=as_json)


_REPEAT: Final = "Repeat the command, and it goes on where it stopped."


class _Progress:
    def __init__(self, bar: Bar, label: str) -> None:
        self._bar = bar
        self._label = label

    def advanced(self, done: int, total: int) -> None:
        if done == 1:
            self._bar.begin(self._label, total)
        self._bar.show(done, f"{done:,} of {counted(total, 'file')}")


class _Run:
    def __init__(self, server: Server, owner: Owner, directory: Path | None, wish: Wish) -> None:
        self.folder = Folder.chosen(directory, owner.tier)
        self._server = server
        self._owner = owner
        self._directory = directory
        self._wish = wish
        self._store = ""
        self._sync: Sync | None = None

    async def move(self, bar: Bar) -> None:
        async with async_client(self._server) as client:
            self._store = (await client.store()).name
            records = Records(
                server=self._server.address,
                store=self._store,
                owner=f"{self._owner.tier} {self._owner.id}",
                folder=self.folder.identity(),
            )
            self._sync = Sync(
                self._owner.async_files(client),
                self.folder,
                records,
                self._wish,
                _Progress(bar, f"{self._wish.direction}ing"),
            )
            try:
                await self._sync.run()
            finally:
                self._save(records)

    @staticmethod
    def _save(records: Records) -> None:
        try:
            records.save()
        except OSError as error:
            tell(
                err(),
                f"what is equal now cannot be remembered in {one_line(str(records.path))} ({error.strerror}): files "
                f"that differ the next time are conflicts",
                "yellow",
            )

    def so_far(self) -> str:
        moved = sum(outcome.result in _MOVED for outcome in self._outcomes())
        if not moved or self._wish.dry_run:
            return "Nothing was moved."
        return f"{counted(moved, 'file')} moved."

    def _outcomes(self) -> Sequence[Outcome]:
        outcomes = [] if self._sync is None else self._sync.outcomes
        return sorted(outcomes, key=lambda outcome: outcome.name, reverse=True)  # The index, then the newest logs.

    def report(self, *, as_json: bool) -> None:
        """Tells what became of the files. Raises: Failure, when there are conflicts."""
        outcomes = self._outcomes()
        if as_json:
            for outcome in outcomes:
                print_line(self._json(outcome))
        else:
            self._tell_notes(err(), outcomes)
            tell(out(), self._summary(outcomes))
        stuck = [outcome for outcome in outcomes if outcome.result in (Result.CONFLICT, Result.REFUSED)]
        if stuck:
            raise Failure(self._stuck(stuck), status=CONFLICTS)

    def _json(self, outcome: Outcome) -> dict[str, str]:
        source, target = ("folder", "store") if self._wish.direction is Direction.PUSH else ("store", "folder")
        result = outcome.result.replace("source", source).replace("target", target)
        return {"name": outcome.name, "result": result} | ({"reason": outcome.reason} if outcome.reason else {})

    def _tell_notes(self, console: Console, outcomes: Sequence[Outcome]) -> None:
        for result in _LEFT:
            if names := [outcome.name for outcome in outcomes if outcome.result is result]:
                tell(console, f"{_listed(names)}: {_NOTES[self._wish.direction, result]}", "dim")
        if self._sync is not None and self._sync.others:
            tell(console, f"{_listed(self._sync.others)}: no memory files, left alone", "dim")
        if self._sync is not None and self._sync.foreign:
            tell(console, f"{_listed(self._sync.foreign)}: no memory files, left alone in the store", "yellow")

    def _summary(self, outcomes: Sequence[Outcome]) -> str:
        counts = [
            f"{count:,} {word}"
            for word, results in (
                ("made", (Result.MADE,)),
                ("changed", (Result.CHANGED,)),
                ("deleted", (Result.DELETED,)),
                ("the same", (Result.SAME,)),
                ("left alone", _LEFT),
                ("in conflict", (Result.CONFLICT,)),
                ("refused", (Result.REFUSED,)),
            )
            if (count := sum(outcome.result in results for outcome in outcomes))
        ]
        stored = f"{self._owner} in store {one_line(self._store)}"
        way = f"{self.folder} to {stored}" if self._wish.direction is Direction.PUSH else f"{stored} to {self.folder}"
        done = f"This would {self._wish.direction}" if self._wish.dry_run else f"{self._wish.direction.title()}ed"
        return f"{done} {way}: {', '.join(counts) or 'there are no memory files'}."

    def _stuck(self, stuck: Sequence[Outcome]) -> str:
        lines = [f"{counted(len(stuck), 'file')} could not be {self._wish.direction}ed:"]
        lines += [f"  {outcome.name}: {outcome.reason}" for outcome in stuck]
        conflicts = [outcome.name for outcome in stuck if outcome.result is Result.CONFLICT]
        if conflicts:
            name = conflicts[0] if len(conflicts) == 1 else "NAME"
            lines.append(
                f"Nothing was overwritten. `memoryd memory show {name} {self._owner.option}` shows what the store has. "
                f"Bring both together in the folder, then take the folder's:\n  {self._forced(Direction.PUSH, name)}\n"
                f"or take the store's instead:\n  {self._forced(Direction.PULL, name)}"
            )
        return "\n".join(lines)

    def _forced(self, direction: Direction, name: str) -> str:
        directory = "" if self._directory is None else f" {quoted(str(self._directory))}"
        delete = " --delete" if self._wish.delete else ""
        return f"memoryd memory {direction}{directory} {self._owner.option} --file {name} --force{delete}"


def _listed(names: Iterable[str]) -> str:
    shown = [*map(one_line, names)]
    more = f" and {len(shown) - _NAMES:,} more" if len(shown) > _NAMES else ""
    return f"{', '.join(shown[:_NAMES])}{more}"
