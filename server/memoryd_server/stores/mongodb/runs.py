"""Reads of runs and of their steps.

A run is what its document says, or what its session carries of it, whichever a later version of the record brought. The
session is read before the run's document: so nothing that was committed by then is missed.

Which of an agent's runs can be claimed is looked for among the sessions, whose documents know the earliest time of all
their unfinished runs. The other lists of an agent are those of the runs' documents, behind what sessions carry that
moves runs between them (`CarriedRuns.PLACES`), which is written out first. What a list leads to is verified against the
life that the session's name has now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from memoryd_server.stores.base import RunName, RunPage, RunQuery, StepPage, StoreUnavailable
from memoryd_server.stores.mongodb.database import DESCENDING, Database
from memoryd_server.stores.mongodb.documents import RUN_FIELDS, Document, run_of, step_of
from memoryd_server.stores.mongodb.layout import RUNS, STEPS, behind, place_at, run_id_of, session_id, step_id
from memoryd_server.stores.mongodb.redo import CarriedRun, carried_runs
from memoryd_server.stores.mongodb.sessions import Outline, Place, Session, Sessions
from memoryd_server.stores.records import Record, SessionKey, StoredRun, StoredStep

ATTEMPTS: Final = 10
"""How often a run is read that others keep taking from."""

_PLACE_FIELDS: Final = ("_id", "home", "life", "session", "run")
_CLAIM_FIELDS: Final = ("home", "life", "run", "claimable_at", "written")
_SIZE_FIELDS: Final = ("number", "written", "size")
_NEWEST_FIRST: Final = (("begun", DESCENDING),)
_LONGEST_ENDED_FIRST: Final = (("ended", 1),)
_LONGEST_WAITING_FIRST: Final = (("claimable_at", 1), ("home", 1))
_BY_NUMBER: Final = (("number", 1),)
_CHANGING: Final = "The run changed again and again while it was read. Repeat the call."


class _Current(NamedTuple):
    """A run as it is."""

    run: StoredRun
    born: int
    """The version of the record that began it: what is older is not its own."""
    written: int
    """The one that changed it last."""


class Runs:
    """Reads runs, steps and lists of runs."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions

    async def load(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        """See `RunStore.load_run`. Takes two commands, and a third when there is no such run."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key)
            if session is None:
                return None
            document = await self._find(session, run_id)
            if document is not None and document["written"] > session.version:
                continue
            current = _current_of(session, run_id, document)
            # A run that is deleted leaves a trace, unless its life is.
            if current is not None or document is not None or await self._sessions.is_alive(session):
                return session.record, current and current.run
        raise StoreUnavailable(_CHANGING)

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        """See `RunStore.list_steps`. Takes up to four commands."""
        for _ in range(ATTEMPTS):
            session = await self._sessions.read(key)
            if session is None or session.incarnation != incarnation:
                return None
            current = _current_of(session, run_id, await self._find(session, run_id))
            if current is None:
                return None
            page = await self._read_steps(session, current, after, limit, bytes)
            if page is not None:
                return page
        raise StoreUnavailable(_CHANGING)

    async def _read_steps(
        self, session: Session, current: _Current, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        """None when some of them were deleted meanwhile."""
        run_id = current.run.id
        carried = _carried_steps(session, run_id, after)
        behind_it = {
            **session.place._asdict(),
            "run": run_id,
            "number": {"$gt": after},
            "written": {"$gte": current.born},
        }
        found = await self._database.find(STEPS, behind_it, fields=_SIZE_FIELDS, order=_BY_NUMBER, limit=limit + 1)
        stored = {each["number"]: each for each in found}
        sizes = {number: each["size"] for number, each in stored.items()}
        sizes |= {number: len(step.payload) for number, step in carried.items()}
        numbers, more = _take(sizes, limit, bytes)
        # They are deleted from the first on.
        begins_late = numbers[0] > after + 1 if numbers else current.run.state.steps > after
        if begins_late and not await self._has_kept(session, run_id):
            return None
        ids = [
            step_id(*session.place, run_id, number, stored[number]["written"])
            for number in numbers
            if number not in carried
        ]
        if ids:
            named = {"home": session.place.home, "_id": {"$in": ids}}
            bodies = map(step_of, await self._database.find(STEPS, named))
            carried |= {step.number: step for step in bodies}
        if not all(number in carried for number in numbers):
            return None
        return StepPage([carried[number] for number in numbers], more)

    async def _has_kept(self, session: Session, run_id: str) -> bool:
        """Whether the run of a session is still there."""
        document = await self._find(session, run_id)
        return _current_of(session, run_id, document) is not None and await self._sessions.is_alive(session)

    async def list_runs(self, query: RunQuery) -> RunPage:
        """See `RunStore.list_runs`. Of a session it takes two commands; of an agent, up to five a page when none of
        those that it passes over fill it.
        """
        if query.session_id is not None:
            session = await self._sessions.read(SessionKey(query.tenant, query.agent, query.session_id))
            if session is None:
                return RunPage([], "")
            session = await self._sessions.settle(session)
            wanted: Document = session.place._asdict()
        else:
            await self._sessions.enlist_runs(query.tenant, query.agent)
            wanted = {"tenant": query.tenant, "agent": query.agent}
        if query.statuses:
            wanted["status"] = {"$in": sorted(map(int, query.statuses))}
        found: list[tuple[SessionKey, StoredRun]] = []
        after, walked = "", query.after
        while True:
            asked = query.limit + 1 - len(found)
            # What is hidden has no place.
            in_order = {**wanted, "begun": {"$lt": walked} if walked else {"$gt": ""}}
            if query.session_id is not None:
                places = await self._newest(in_order, ("session", *RUN_FIELDS), asked)
                runs = {place["_id"]: run_of(place) for place in places}
            else:
                places = await self._newest(in_order, _PLACE_FIELDS, asked)
                runs = await self._read_listed(query.tenant, query.agent, places)
            for place in places:
                walked = place["begun"]
                run = runs.get(place["_id"])
                if run is None or (query.statuses and run.state.status not in query.statuses):
                    continue
                if len(found) == query.limit:
                    return RunPage(found, after)
                found.append((SessionKey(query.tenant, query.agent, place["session"]), run))
                after = walked
            if len(places) < asked:
                return RunPage(found, "")

    async def _newest(self, filter: Document, fields: Sequence[str], limit: int) -> list[Document]:
        fields = ("begun", *fields)
        return await self._database.find(RUNS, filter, fields=fields, order=_NEWEST_FIRST, limit=limit)

    async def _read_listed(self, tenant: str, agent: str, places: Sequence[Document]) -> dict[str, StoredRun]:
        """The runs of living sessions that lists lead to, by `_id`."""
        outlines = await self._outlines(tenant, agent, places)
        carried = await self._sessions.carried_runs(outlines.values())
        ids = [place["_id"] for place in places if _place_of(place) in outlines]
        if not ids:
            return {}
        homes = sorted({place.home for place in outlines})
        named = {"_id": {"$in": ids}, "home": {"$in": homes}}
        documents = await self._database.find(RUNS, named, fields=("home", "life", *RUN_FIELDS))
        currents = {
            document["_id"]: _current(document["run"], document, carried.get(_place_of(document), {}))
            for document in documents
        }
        return {id_: current.run for id_, current in currents.items() if current is not None}

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        """See `RunStore.list_claimable`. Takes two commands, and a third when sessions carry what may not be written
        out. Each session has at least one such run, so that those of the first sessions are the first.
        """
        waiting: list[tuple[int, str, RunName]] = []
        wanted: Document = {"tenant": tenant, "agent": agent, "claimable_at": {"$lt": before}}
        while True:
            found = await self._sessions.outlines(wanted, _LONGEST_WAITING_FIRST, limit)
            for outline, times in await self._claimable(before, [outline for _, outline in found]):
                for run_id, time in times.items():
                    name = RunName(outline.key, outline.incarnation, run_id)
                    waiting.append((time, outline.key.session_id, name))
            if len(waiting) >= limit or len(found) < limit:
                waiting.sort(key=lambda each: (each[0], each[1], each[2].run_id))
                return [name for _, _, name in waiting[:limit]]
            last, outline = found[-1]
            wanted |= behind("claimable_at", last["claimable_at"], "home", outline.place.home)
            wanted["claimable_at"]["$lt"] = before

    async def _claimable(self, before: int, outlines: Sequence[Outline]) -> list[tuple[Outline, dict[str, int]]]:
        """Which runs of living sessions can be claimed before a time, and since when."""
        if not outlines:
            return []
        carried = await self._sessions.carried_runs(outlines)
        homes = [outline.place.home for outline in outlines]
        wanted = {"home": {"$in": homes}, "claimable_at": {"$lt": before}}
        stored: dict[Place, dict[str, Document]] = {}
        for document in await self._database.find(RUNS, wanted, fields=_CLAIM_FIELDS):
            stored.setdefault(_place_of(document), {})[document["run"]] = document
        return [
            (outline, _claimable_times(before, stored.get(outline.place, {}), carried.get(outline.place, {})))
            for outline in outlines
        ]

    async def list_ended(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        """See `RunStore.list_ended_runs`. Takes three commands when none of those that it passes over fill the answer:
        what has ended does not change.
        """
        await self._sessions.enlist_runs(tenant, agent)
        names: list[RunName] = []
        wanted: Document = {"tenant": tenant, "agent": agent, "ended": {"$lt": place_at(before)}}
        while True:
            asked = limit - len(names)
            fields = ("ended", *_PLACE_FIELDS)
            places = await self._database.find(RUNS, wanted, fields=fields, order=_LONGEST_ENDED_FIRST, limit=asked)
            outlines = await self._outlines(tenant, agent, places)
            for place in places:
                outline = outlines.get(_place_of(place))
                if outline is not None:
                    names.append(RunName(outline.key, outline.incarnation, place["run"]))
            if len(names) == limit or len(places) < asked:
                return names
            wanted["ended"] = {"$gt": places[-1]["ended"], "$lt": place_at(before)}

    async def _outlines(self, tenant: str, agent: str, places: Sequence[Document]) -> dict[Place, Outline]:
        """The living sessions that some places in lists are of, by the places of their lives."""
        ids = [session_id(SessionKey(tenant, agent, id_)) for id_ in dict.fromkeys(each["session"] for each in places)]
        if not ids:
            return {}
        return {outline.place: outline for _, outline in await self._sessions.outlines({"_id": {"$in": ids}})}

    async def _find(self, session: Session, run_id: str) -> Document | None:
        named = {"_id": run_id_of(*session.place, run_id), "home": session.place.home}
        return await self._database.find_one(RUNS, named, fields=RUN_FIELDS)


def _place_of(document: Document) -> Place:
    return Place(document["home"], document["life"])


def _current_of(session: Session, run_id: str, document: Document | None) -> _Current | None:
    """The run of a session, with what this carries; None when there is none."""
    return _current(run_id, document, carried_runs(session.pending))


def _current(run_id: str, document: Document | None, carried: Mapping[str, CarriedRun]) -> _Current | None:
    stored = None
    if document is not None and document.get("leaving") is None:
        stored = _Current(run_of(document), document["born"], document["written"])
    later = carried.get(run_id)
    if later is None or (document is not None and document["written"] >= later.version):
        return stored
    if later.born is not None:
        assert later.head is not None
        return _Current(StoredRun(run_id, later.head, later.state), later.born, later.version)
    # What is deleted is not there any more, whoever changed it last.
    if stored is None:
        return None
    run = StoredRun(run_id, later.head or stored.run.head, later.state)
    return _Current(run, stored.born, later.version)


def _carried_steps(session: Session, run_id: str, after: int) -> dict[int, StoredStep]:
    steps = (step for part in session.pending for step in part.new_steps)
    return {step.number: step for step in steps if step.run_id == run_id and step.number > after}


def _take(sizes: Mapping[int, int], limit: int, bytes: int) -> tuple[list[int], bool]:
    """The numbers of the steps that a page holds, and whether there are more."""
    numbers: list[int] = []
    left = bytes
    for number in sorted(sizes):
        left -= sizes[number]
        if len(numbers) == limit or (numbers and left < 0):
            return numbers, True
        numbers.append(number)
    return numbers, False


def _claimable_times(before: int, stored: Mapping[str, Document], carried: Mapping[str, CarriedRun]) -> dict[str, int]:
    """Since when those runs of a session can be claimed that can be before a time."""
    times: dict[str, int | None] = {run_id: document["claimable_at"] for run_id, document in stored.items()}
    for run_id, run in carried.items():
        document = stored.get(run_id)
        if document is None or document["written"] < run.version:
            times[run_id] = run.state.claimable_at
    return {run_id: time for run_id, time in times.items() if time is not None and time < before}
