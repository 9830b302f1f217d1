"""Summaries on the screen: the chain, what a fold did, and taking one back."""

from typing import Final

from rich.console import Console
from rich.text import Text as Line

from memoryd import EtagMismatch, MemoryClient, Session, Summary, SummaryNotFound
from memoryd_server.cli.alterations import name_of
from memoryd_server.cli.connecting import found_session
from memoryd_server.cli.drawing import heading
from memoryd_server.cli.json_lines import print_line, summary_json
from memoryd_server.cli.safe_text import many_lines, one_line
from memoryd_server.cli.terminal import Failure, confirm, counted, err, indented, line, out, tell

FOLD_SECONDS: Final = 300.0
"""What a fold may take: a long history is folded in several calls of a model."""


def show_summaries(client: MemoryClient, session_id: str, agent: str | None, *, as_json: bool) -> None:
    """Prints the chain of summaries, the current one last; as JSON, the current one first, as the API has them."""
    session, _ = found_session(client, session_id, agent)
    chain = session.summaries()
    if as_json:
        for summary in chain:
            print_line(summary_json(summary))
        return
    if not chain:
        tell(err(), f"{name_of(session)} has no summary", "dim")
        return
    console = out()
    line(console, heading(session.agent, session.id))
    for summary in reversed(chain):
        console.print()
        print_summary(console, summary)


def print_summary(console: Console, summary: Summary) -> None:
    """Prints a summary: what it stands for, how it was made, and its text."""
    took_in = f"seq {summary.from_seq}-{summary.to_seq}, {counted(summary.message_count, 'message')}"
    if summary.previous_id:
        took_in += f" and the summary before it: {counted(summary.covered_message_count, 'message')} in all"
    line(
        console,
        Line.assemble(
            ("● " if summary.current else "○ ", "green" if summary.current else "dim"),
            (one_line(summary.id), "bold"),
            (" current" if summary.current else "", "green"),
        ),
    )
    with_model = f" with {one_line(summary.model)}" if summary.model else ""
    seconds = summary.duration.total_seconds()
    for label, text in (
        ("Takes in", took_in),
        ("Made by", f"{one_line(summary.summarizer)}{with_model}, in {seconds:.{1 if seconds >= 1 else 3}f} s"),
        ("When", f"{summary.create_time.astimezone():%Y-%m-%d %H:%M:%S}"),
        ("Tokens", f"{summary.input_token_count:,} before, {summary.output_token_count:,} after"),
        ("Originals", "removed" if summary.originals_removed else "kept"),
    ):
        indented(console, Line.assemble((f"{label:<11}", "dim"), text))
    console.print()
    indented(console, Line(many_lines(summary.text)))


def summarize_session(client: MemoryClient, session_id: str, agent: str | None, *, as_json: bool) -> None:
    """Folds what the stored policy does not keep, and tells what was done."""
    session, _ = found_session(client, session_id, agent)
    summarized = session.summarize(timeout=FOLD_SECONDS)
    summary = summarized.summary
    if as_json:
        print_line(
            {
                "folded_message_count": summarized.message_count,
                "summary": None if summary is None else summary_json(summary),
            }
        )
        return
    if not summarized.message_count:
        tell(out(), f"{name_of(session)} has no more messages than its policy keeps as they are. Nothing was done.")
        return
    tell(out(), f"Summarized {counted(summarized.message_count, 'message')} of {name_of(session)}:")
    if summary is not None:
        out().print()
        print_summary(out(), summary)


def revert_current_summary(client: MemoryClient, session_id: str, agent: str | None, *, yes: bool) -> None:
    """Takes the current summary back."""
    session, _ = found_session(client, session_id, agent)
    try:
        current = session.summary()
    except SummaryNotFound as error:
        raise Failure(f"{name_of(session)} has no summary") from error
    shown = counted(current.message_count, "message")
    tell(err(), f"This takes back the current summary of {name_of(session)}; {shown} that it took in are shown again:")
    print_summary(err(), current)
    confirm("Take it back?", yes=yes)
    try:
        before = session.revert_summary(current.id)
    except (EtagMismatch, SummaryNotFound) as error:
        raise Failure(
            f"{name_of(session)} was summarized, or its summary taken back, meanwhile. Nothing was changed; repeat the "
            f"command to see what is there now"
        ) from error
    tell(out(), _reverted(session, before))


def _reverted(session: Session, before: Summary | None) -> str:
    now = "it has none now" if before is None else f"{one_line(before.id)} is current now"
    return f"Took back the summary of {name_of(session)}: {now}. Nothing is summarized before its next message."
