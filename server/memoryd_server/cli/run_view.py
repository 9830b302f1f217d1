"""Runs on the screen: lists of them, and one with its steps."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text as Line

from memoryd import MemoryClient, RunInfo, RunNotFound, RunStatus, RunStep, Session
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.json_lines import print_line, run_json, run_step_json
from memoryd_server.cli.safe_text import many_lines, one_line, quoted
from memoryd_server.cli.terminal import Failure, counted, err, indented, line, out, tell, whole

_PAGE: Final = 1_000

STYLES: Final = {
    RunStatus.RUNNING: "green",
    RunStatus.INTERRUPTED: "cyan",
    RunStatus.AWAITING_APPROVAL: "yellow",
    RunStatus.AWAITING_BUDGET: "yellow",
    RunStatus.COMPLETED: "",
    RunStatus.BLOCKED: "red",
    RunStatus.FAILED: "red",
    RunStatus.CANCELLED: "dim",
    RunStatus.TIMEOUT: "red",
    RunStatus.ABANDONED: "dim",
}
WAITING: Final = (RunStatus.AWAITING_APPROVAL, RunStatus.AWAITING_BUDGET)
"""Runs that somebody is to let go on."""


def show_runs(
    client: MemoryClient,
    agent: str | None,
    session_id: str | None,
    statuses: Sequence[str],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Prints runs, the newest first."""
    page = min(limit + 1, _PAGE)
    if session_id is None:
        listed = client.runs(agent=agent, statuses=statuses, page_size=page)
        whose = f"agent {one_line(agent or '')}"
    else:
        session, _ = found_session(client, session_id, agent)
        listed = client.runs(session=session, statuses=statuses, page_size=page)
        whose = f"session {one_line(session_id)} of agent {one_line(session.agent)}"
    found = list(islice(listed, limit + 1))
    if as_json:
        for run in found[:limit]:
            print_line(run_json(run))
        return
    if not found:
        which = f" that are {' or '.join(map(words, statuses))}" if statuses else ""
        tell(err(), f"no runs of {whose}{which}. A worker begins one with `memory.run(session)` of the SDK")
        return
    whole(out(), _table(found[:limit], with_sessions=session_id is None))
    if len(found) > limit:
        tell(err(), f"there are more than these {limit:,}; --limit {limit * 5} shows more of them", "dim")


def _table(runs: Sequence[RunInfo], *, with_sessions: bool) -> Table:
    now = datetime.now(UTC)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Run", no_wrap=True, style="bold")
    if with_sessions:
        table.add_column("Session", no_wrap=True)
    table.add_column("Status", no_wrap=True)
    table.add_column("Steps", justify="right", no_wrap=True)
    table.add_column("Holder", no_wrap=True)
    table.add_column("Lease", justify="right", no_wrap=True)
    table.add_column("Age", justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            one_line(run.id),
            *([one_line(run.session_id)] if with_sessions else []),
            Line(words(run.status), STYLES.get(run.status, "")),
            f"{run.steps:,}",
            one_line(run.holder),
            _left(run, now),
            age((now - run.created).total_seconds()),
        )
    return table


def _left(run: RunInfo, now: datetime) -> Line:
    """How long the lease lasts, about: it counts by the store's clock, and this is another one."""
    if run.lease_expires is None:
        return Line("")
    seconds = (run.lease_expires - now).total_seconds()
    return Line(age(seconds)) if seconds > 0 else Line("over", "yellow")


def age(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("d", 24 * 3600), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0, int(seconds))} s"


def words(status: str) -> str:
    """A status as people write it."""
    return status.replace("_", " ")


def found_run(client: MemoryClient, session_id: str, agent: str | None, run_id: str) -> tuple[Session, RunInfo]:
    """The run of this id, and its session. Raises: Failure, saying what to do."""
    session, _ = found_session(client, session_id, agent)
    try:
        return session, client.get_run(session, run_id)
    except RunNotFound as error:
        raise Failure(
            f"session {one_line(session_id)} of agent {one_line(session.agent)} has no run {one_line(run_id)}; "
            f"`memoryd runs list --session {quoted(session_id)} --agent {quoted(session.agent)}` lists what there is"
        ) from error


def name_of_run(run: RunInfo) -> str:
    """A run in a sentence."""
    return f"run {one_line(run.id)} of session {one_line(run.session_id)} of agent {one_line(run.agent)}"


def place_of(run: RunInfo) -> str:
    """What names a run on a command line."""
    return f"{quoted(run.session_id)} {quoted(run.id)} --agent {quoted(run.agent)}"


def show_run(
    client: MemoryClient,
    session_id: str,
    agent: str | None,
    run_id: str,
    *,
    limit: int | None,
    full: bool,
    as_json: bool,
) -> None:
    """Prints a run and its last steps."""
    session, run = found_run(client, session_id, agent, run_id)
    after = 0 if limit is None else max(0, run.steps - limit)
    steps = islice(client.run_steps(session, run_id, after=after), run.steps - after)
    if as_json:
        print_line({"run": run_json(run), "steps": [run_step_json(step) for step in steps]})
        return
    console = out()
    print_run(console, run)
    if run.steps:
        console.print()
    if after:
        line(console, Line(f"… {counted(after, 'earlier step', 'earlier steps')}: --all shows every one", "dim"))
    for step in steps:
        _print_step(console, step, width=len(str(run.steps)), full=full)
    if run.status in WAITING:
        tell(err(), f"`memoryd runs approve {place_of(run)}` lets it go on", "dim")


def print_run(console: Console, run: RunInfo) -> None:
    """Prints how a run stands."""
    line(
        console,
        Line.assemble(
            ("Run ", "dim"),
            (one_line(run.id), "bold"),
            (" of session ", "dim"),
            one_line(run.session_id),
            (" of agent ", "dim"),
            one_line(run.agent),
        ),
    )
    now = datetime.now(UTC)
    status = Line(words(run.status), STYLES.get(run.status, ""))
    if run.reason:
        status.append(f": {one_line(run.reason)}", "")
    rows = [
        ("Status", status),
        ("Held by", Line(one_line(run.holder) if run.lease_expires is not None else "")),
        ("Lease", Line.assemble(_left(run, now), _moment(run.lease_expires, ", until "))),
        ("Last held", Line(one_line(run.holder) if run.lease_expires is None else "")),
        ("Recovered", Line(counted(run.recoveries, "time") if run.recoveries else "")),
        ("Began", _moment(run.created)),
        ("Changed", _moment(run.updated)),
        ("Ended", _moment(run.ended)),
        ("Metadata", Line(one_line(run.metadata))),
        ("Steps", Line(f"{run.steps:,}")),
    ]
    for label, text in rows:
        if text:
            indented(console, Line.assemble((f"{label:<11}", "dim"), text))


def _moment(moment: datetime | None, before: str = "") -> Line:
    return Line("" if moment is None else f"{before}{moment.astimezone():%Y-%m-%d %H:%M:%S}")


def _print_step(console: Console, step: RunStep, *, width: int, full: bool) -> None:
    margin = Line.assemble(
        (f"{step.number:>{width}}", "bold"),
        (f"  {step.create_time.astimezone():%Y-%m-%d %H:%M:%S}", "dim"),
        (f"  {decimal(len(step.payload)):>10}  ", "dim"),
    )
    if step.message_count:
        last = step.first_seq + step.message_count - 1
        margin.append(f"seq {step.first_seq}{f'-{last}' if last != step.first_seq else ''}  ", "cyan")
    text = _text(step.payload)
    if not full:
        line(console, margin.append_text(_no_text(step) if text is None else Line(one_line(text))))
        return
    line(console, margin.append(one_line(step.content_type), "dim"))
    indented(console, _no_text(step) if text is None else Line(many_lines(text)))
    console.print()


def _text(payload: bytes) -> str | None:
    """A payload that is text; None for others, and for an empty one."""
    try:
        return payload.decode() or None
    except UnicodeDecodeError:
        return None


def _no_text(step: RunStep) -> Line:
    return Line(f"({one_line(step.content_type) or 'bytes'})" if step.payload else "(empty)", "dim")
