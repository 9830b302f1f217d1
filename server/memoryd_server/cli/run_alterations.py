"""Approving, cancelling and deleting runs: telling what it is about, asking, doing it, and telling what was done."""

from typing import Final

from memoryd import EtagMismatch, MemoryClient, RunEnded, RunInfo, RunNotFound, RunStatus, RunUnfinished
from memoryd_server.cli.json_lines import print_line, run_json
from memoryd_server.cli.memory_options import author_of
from memoryd_server.cli.run_view import WAITING, found_run, name_of_run, place_of, print_run, words
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import Failure, confirm, counted, err, out, tell

_CANCELS: Final = 20
"""How often a run is cancelled anew whose holder commits steps and renews its lease meanwhile."""


def approve_run(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    run_id: str,
    *,
    note: str,
    metadata: str | None,
    as_json: bool,
) -> None:
    """Lets a run go on that waits for somebody: any worker may claim it from then on."""
    _, run = found_run(client, session_id, agent, run_id)
    if run.status is RunStatus.INTERRUPTED:
        raise Failure(f"{name_of_run(run)} needs no approval: any worker may claim it already. Nothing was changed")
    if run.status not in WAITING:
        raise Failure(f"{name_of_run(run)} does not wait for approval: {_stands(run)}. Nothing was changed")
    try:
        approved = client.update_run(
            run, status=RunStatus.INTERRUPTED, reason=_said("approved by", note), metadata=metadata
        )
    except (EtagMismatch, RunEnded) as error:
        raise Failure(
            f"{name_of_run(run)} was changed meanwhile. Nothing was changed by this command; `memoryd runs show "
            f"{place_of(run)}` shows how it stands now"
        ) from error
    if as_json:
        print_line(run_json(approved))
        return
    tell(out(), f"Approved {name_of_run(run)}: any worker may claim it now, and goes on behind {_behind(run)}.")


def _behind(run: RunInfo) -> str:
    return f"step {run.steps:,}" if run.steps else "its beginning"


def cancel_run(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    run_id: str,
    *,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Ends a run, however it stands."""
    session, run = found_run(client, session_id, agent, run_id)
    _check_unfinished(run)
    tell(err(), "This ends, for good:")
    print_run(err(), run)
    confirm("Cancel it?", yes=yes)
    for _ in range(_CANCELS):
        try:
            cancelled = client.update_run(run, status=RunStatus.CANCELLED, reason=_said("by", reason))
            break
        except (EtagMismatch, RunEnded):  # It went on, or ended by itself.
            run = client.get_run(session, run_id)
            _check_unfinished(run)
    else:
        raise Failure(f"{name_of_run(run)} changes all the time. Nothing was changed; repeat the command")
    if as_json:
        print_line(run_json(cancelled))
        return
    tell(out(), f"Cancelled {name_of_run(run)}. Its {counted(cancelled.steps, 'step')} and its messages stay.")


def _check_unfinished(run: RunInfo) -> None:
    if run.ended is not None:
        raise Failure(f"{name_of_run(run)} has ended already: {_stands(run)}. Nothing was changed")


def delete_run(client: MemoryClient, session_id: str, agent: str | None, run_id: str, *, yes: bool) -> None:
    """Deletes a run that has ended."""
    session, run = found_run(client, session_id, agent, run_id)
    if run.ended is None:
        raise Failure(
            f"{name_of_run(run)} has not ended: {_stands(run)}. Nothing was deleted; `memoryd runs cancel "
            f"{place_of(run)}` ends it"
        )
    tell(err(), f"This deletes, with {counted(run.steps, 'step')}, for good:")
    print_run(err(), run)
    confirm("Delete it?", yes=yes)
    try:
        deleted = client.delete_run(session, run_id)
    except (RunNotFound, RunUnfinished):  # Another run has its id, or none.
        deleted = False
    if not deleted:
        raise Failure(f"{name_of_run(run)} was deleted by somebody else meanwhile. Nothing was deleted by this command")
    tell(out(), f"Deleted {name_of_run(run)} with {counted(run.steps, 'step')}. Its messages stay.")


def _said(did_by: str, note: str) -> str:
    """The reason of a status that a person sets: who did it, and their words."""
    author = author_of(None)
    return ": ".join(filter(None, (f"{did_by} {author}" if author else "", note)))


def _stands(run: RunInfo) -> str:
    return f"it is {words(run.status)}{f' ({one_line(run.reason)})' if run.reason else ''}"
