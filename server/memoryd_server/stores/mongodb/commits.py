"""`commit`: changes by compare-and-set on a session's document (design section 5; see `redo` for what follows it).

A warm append takes three commands: one that looks for its ids, the compare-and-set, and one that writes out what that
carries. The ids are looked for where all is written out up to the version that the change rests on; the compare-and-set
then succeeds on that version alone, so that none can have come between. A step of a run waits as often, but what it
brings is written out with a command for each collection, at once. A run that begins, ends or gets another status takes
one more command, by which its session says that the lists of runs can be relied on again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Known,
    Lost,
    Outcome,
    StoreUnavailable,
    Taken,
)
from memoryd_server.stores.mongodb import redo
from memoryd_server.stores.mongodb.agents import Agents
from memoryd_server.stores.mongodb.clock import Clock
from memoryd_server.stores.mongodb.database import Database
from memoryd_server.stores.mongodb.documents import Document, fields_of_record, lookup_of
from memoryd_server.stores.mongodb.layout import (
    CARRIED_RUNS,
    FIRST_LIFE,
    HISTORY,
    RUNS,
    SESSIONS,
    CarriedRuns,
    Leaving,
    lookup_id,
    run_id_of,
    session_id,
)
from memoryd_server.stores.mongodb.leftovers import Leftovers
from memoryd_server.stores.mongodb.openings import opening_update
from memoryd_server.stores.mongodb.redo import parts_of
from memoryd_server.stores.mongodb.sessions import DeadName, Place, Session, Sessions, Settled
from memoryd_server.stores.records import Lookup, LookupKind, Record, SessionKey

ATTEMPTS: Final = 5
"""How often a change is tried whose session others keep changing between its read and its compare-and-set."""

LIGHT_BYTES: Final = 64 * 1024
"""Of messages, summaries and steps, in bytes: a session's document carries more than that only until it is written out.
"""

MOST_STEP_BYTES: Final = 2 * limits.MAX_STEP_BYTES
"""Of the steps that one compare-and-set makes, which a document must hold however little they can be compressed."""

_MICROSECONDS: Final = 1_000_000
_log: Final = logging.getLogger(__name__)

LookupName = tuple[LookupKind, str]


class _Run(NamedTuple):
    """Changes of one session that one compare-and-set makes, and what comes behind them."""

    changes: Sequence[Change]
    refusal: Known | Conflict | None
    """Of the change behind them, which brings an id again."""


class Commits:
    """Makes changes of sessions."""

    def __init__(
        self, database: Database, sessions: Sessions, agents: Agents, leftovers: Leftovers, clock: Clock
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._agents = agents
        self._leftovers = leftovers
        self._clock = clock

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `HistoryStore.commit`."""
        chains: dict[SessionKey, list[Change]] = {}
        for change in changes:
            chains.setdefault(change.key, []).append(change)
        made: list[list[Outcome] | BaseException] = []
        if any(change.staging for change in changes):
            # One after the other: of two that want the same staging, the first gets it.
            made += [await self._make_chain(chain) for chain in chains.values()]
        else:
            made += await asyncio.gather(*map(self._make_chain, chains.values()), return_exceptions=True)
        for outcomes in made:
            if isinstance(outcomes, BaseException):
                raise outcomes
        left = {key: iter(outcomes) for key, outcomes in zip(chains, made, strict=True)}  # type: ignore[arg-type]
        return [next(left[change.key]) for change in changes]

    async def _make_chain(self, chain: Sequence[Change]) -> list[Outcome]:
        """Makes changes of one session, each of which rests on the one before."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(chain) and all(isinstance(outcome, Committed) for outcome in outcomes):
            outcomes += await self._make_first(_first_run(chain[len(outcomes) :]))
        # What comes behind a refused change is refused too (see `stores.chains`).
        return [*outcomes, *(Conflict() for _ in range(len(chain) - len(outcomes)))]

    async def _make_first(self, run: Sequence[Change]) -> list[Outcome]:
        """Makes changes by one compare-and-set; fewer of them when one brings an id again."""
        first = run[0]
        found: Session | DeadName | None
        for _ in range(ATTEMPTS):
            settled = self._settled_for(first)
            if settled is None:
                found = await self._sessions.find(first.key)
                if isinstance(found, Session):
                    found = await self._sessions.settle(found)
                    settled = Settled(found.incarnation, found.version, found.place)
                    place: Place | None = found.place
                else:
                    place = found.place if found else None
            else:
                found, place = None, settled.place
            known, stored = await asyncio.gather(self._known(place, run), self._stored_runs(settled, run))
            possible = _before_known(run, known, stored)
            if not possible.changes:
                assert possible.refusal is not None
                return [possible.refusal]
            refusals: list[Outcome] = [possible.refusal] if possible.refusal else []
            if first.staging:
                outcome = await self._adopt(first, found, possible.changes)
            elif settled is None:
                outcome = await self._be_born(possible.changes, found if isinstance(found, DeadName) else None)
            elif first.expected is None or (settled.incarnation, settled.version) != (
                first.expected.incarnation,
                first.expected.version,
            ):
                outcome = Conflict(found.record if isinstance(found, Session) else None)
            else:
                outcome = await self._change(possible.changes, settled, found if isinstance(found, Session) else None)
            if isinstance(outcome, Committed):
                return [*(Committed() for _ in possible.changes), *refusals]
            if outcome is not None:
                return [outcome]
            # Another server was faster: what it made decides.
            self._sessions.forget(first.key)
        return [Conflict()]

    def _settled_for(self, change: Change) -> Settled | None:
        """The version that a change rests on, where it is known to be all written out."""
        settled = self._sessions.settled(change.key)
        if settled is None or change.expected is None or change.staging:
            return None
        if (settled.incarnation, settled.version) != (change.expected.incarnation, change.expected.version):
            return None
        # The end of a life needs to know what the document tells of lives that ended before.
        return settled if change.record is not None and change.record.incarnation == settled.incarnation else None

    async def _known(self, place: Place | None, run: Sequence[Change]) -> Mapping[LookupName, Lookup]:
        """Those of the look-ups of some changes that are there."""
        names = [(each.kind, each.id) for change in run for each in change.lookups]
        if place is None or not names:
            return {}
        ids = [lookup_id(place.home, *name) for name in dict.fromkeys(names)]
        found = await self._database.find(HISTORY, {"home": place.home, "_id": {"$in": ids}})
        return {(each.kind, each.id): each for each in map(lookup_of, found)}

    async def _stored_runs(self, settled: Settled | None, run: Sequence[Change]) -> Collection[str]:
        """Those of the runs that begin with some changes of which something is stored in the session's life."""
        begun = {each.run_id for change in run for each in change.changed_runs if each.begins}
        record = run[0].record
        if not begun or settled is None or record is None or record.incarnation != settled.incarnation:
            return ()
        home, life = settled.place
        ids = [run_id_of(home, life, run_id) for run_id in begun]
        found = await self._database.find(RUNS, {"home": home, "_id": {"$in": ids}}, fields=("run", "leaving"))
        # What is deleted whole, and leaves nothing but its trace, makes room.
        return {document["run"] for document in found if document.get("leaving") != Leaving.TRACE}

    async def _change(self, run: Sequence[Change], settled: Settled, found: Session | None) -> Committed | None:
        """Changes a living session. None when it is not in the expected state any more."""
        first, last = run[0], run[-1]
        previous = first.previous
        assert previous is not None
        same = {
            "_id": session_id(first.key),
            "incarnation": settled.incarnation,
            "version": settled.version,
        }
        place = settled.place
        ended: Document = {}
        if last.record is not None and last.record.incarnation == settled.incarnation:
            update = _update(run, {}, opening_update(previous, run))
        else:
            if found is None or found.tells_of_another:
                await self._leftovers.settle(first.key)
            now = await self._clock.now()
            ended = {
                "ended_life": place.life,
                "ended_user": previous.user_id or None,
                "ended_due": now + limits.PURGE_DELAY_SECONDS * _MICROSECONDS + 1,
            }
            if last.record is None:
                update = {"$set": {**_DEAD, **ended, "died_at": now}, "$unset": {"opening": ""}}
            else:
                place = Place(place.home, place.life + 1)
                update = _update(run, {**ended, "life": place.life}, opening_update(None, run))
            same["ended_life"] = None
        if not await self._database.update(SESSIONS, same, update):
            return None
        await self._follow(run, place, ended)
        return Committed()

    async def _be_born(self, run: Sequence[Change], name: DeadName | None) -> Outcome | None:
        """Begins the life of a session that has none. None when others began one meanwhile."""
        first = run[0]
        if first.previous is not None:
            return Conflict()
        if first.record is None:
            return Committed()
        await self._agents.add(first.key.tenant, first.key.agent)
        if name is None:
            return await self._insert(run, secrets.token_hex(16))
        place = Place(name.place.home, name.place.life + 1)
        same = {"_id": session_id(first.key), "incarnation": None, "home": name.place.home, "life": name.place.life}
        update = _update(run, {"life": place.life, "died_at": None}, opening_update(None, run))
        if not await self._database.update(SESSIONS, same, update):
            return None
        await self._follow(run, place)
        return Committed()

    async def _insert(self, run: Sequence[Change], home: str) -> Committed | None:
        """Makes a name that was not there. None when others made it meanwhile."""
        key = run[0].key
        update = _update(run, {}, opening_update(None, run))
        named = {"_id": session_id(key), **key._asdict(), "home": home, "life": FIRST_LIFE, **_NOT_ENDED}
        if not await self._database.insert(SESSIONS, {**named, **update["$set"]}):
            return None
        await self._follow(run, Place(home, FIRST_LIFE))
        return Committed()

    async def _adopt(self, change: Change, found: Session | DeadName | None, run: Sequence[Change]) -> Outcome | None:
        """Makes a session of a staging. None when others made one of its name meanwhile."""
        if isinstance(found, Session):
            return Conflict(found.record)
        if found is not None:
            return Taken()
        known = await self._known(Place(change.staging, FIRST_LIFE), run[:1])
        if known:
            return Known(list(known.values()))
        await self._agents.add(change.key.tenant, change.key.agent)
        if not await self._leftovers.claim(change.staging, change.key):
            return Lost()
        outcome = await self._insert(run, change.staging)
        if outcome is None:
            await self._leftovers.give_back(change.staging)
        else:
            await self._leftovers.forget_adopted(change.staging)
        return outcome

    async def _follow(self, run: Sequence[Change], place: Place, ended: Document | None = None) -> None:
        """What comes behind the compare-and-set, which told of a life that `ended`. It is the commit's end: what fails
        here, the next one makes up for.
        """
        key, record = run[0].key, run[-1].record
        self._sessions.forget(key)
        parts = [] if record is None else parts_of(run)
        try:
            await self._sessions.write_out(key, place, parts)
            if record is not None:
                settled = Settled(record.incarnation, record.version, place)
                self._sessions.remember(key, settled)
                moves_runs = redo.kind_of_carried(run) is CarriedRuns.PLACES
                if moves_runs or sum(part.size for part in parts) > LIGHT_BYTES:
                    await self._sessions.lighten(key, settled)
            if ended:
                await self._leftovers.settle_ended(key, place.home, ended)
        except StoreUnavailable as error:
            _log.info("a change is committed and not yet written out: %s", error)


_DEAD: Final[Document] = dict.fromkeys(
    (
        *("incarnation", "epoch", "activity", "user_id", "removed_at", "expires_at", "fold_at"),
        *("abandon_at", "claimable_at", "record", "redo", CARRIED_RUNS),
    )
)
_NOT_ENDED: Final[Document] = dict.fromkeys(("died_at", "ended_life", "ended_user", "ended_due"))


def _update(run: Sequence[Change], fields: Document, opening: Document) -> Document:
    """The update of a session's document that makes some changes."""
    record: Record | None = run[-1].record
    assert record is not None
    carried: Any = redo.encode(parts_of(run))
    kind = redo.kind_of_carried(run)
    carried_runs = None if kind is None else int(kind)
    update: Document = {"$set": {**fields, **fields_of_record(record), "redo": carried, CARRIED_RUNS: carried_runs}}
    for operator, values in opening.items():
        update.setdefault(operator, {}).update(values)
    return update


def _first_run(chain: Sequence[Change]) -> list[Change]:
    """As many changes from the first on as one compare-and-set may make: those of one life that rest on each other."""
    run = [chain[0]]
    step_bytes = _step_bytes(chain[0])
    for change in chain[1:]:
        before = run[-1].record
        step_bytes += _step_bytes(change)
        if (
            change.staging
            or step_bytes > MOST_STEP_BYTES
            or before is None
            or change.record is None
            or change.expected is None
            or (before.incarnation, before.version) != (change.expected.incarnation, change.expected.version)
            or change.record.incarnation != before.incarnation
        ):
            break
        run.append(change)
    return run


def _step_bytes(change: Change) -> int:
    return sum(len(step.payload) for step in change.new_steps)


def _before_known(run: Sequence[Change], known: Mapping[LookupName, Lookup], stored_runs: Collection[str]) -> _Run:
    """The changes that come before one which brings an id again, be it of a look-up or of a run, and that one's
    refusal.
    """
    seen = dict(known)
    for place, change in enumerate(run):
        names = [(lookup.kind, lookup.id) for lookup in change.lookups]
        again = [seen[name] for name in dict.fromkeys(names) if name in seen]
        if again:
            return _Run(run[:place], Known(again))
        if any(each.begins and each.run_id in stored_runs for each in change.changed_runs):
            return _Run(run[:place], Conflict())
        seen.update(zip(names, change.lookups, strict=True))
    return _Run(run, None)
