"""The lines of a drawn window: pure, from the picture to text for a terminal."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.text import Text as Line

from memoryd import Role, SummaryState, Window, WindowMode, WindowStats
from memoryd_server.cli.picture import Fold, Item, Place, Row, covered_seqs, shown_summary
from memoryd_server.cli.previews import preview
from memoryd_server.cli.safe_text import one_line

ROLE_STYLES: Final = {
    Role.SYSTEM: "cyan",
    Role.DEVELOPER: "cyan",
    Role.USER: "bold",
    Role.ASSISTANT: "",
    Role.TOOL: "",
}
ROLE_WIDTH: Final = max(len(role) for role in Role)
_BAR_WIDTH: Final = 20
_DIGEST_DIGITS: Final = 12

_FOLDED: Final = {
    Place.PINNED: "pinned",
    Place.WINDOW: "in the window",
    Place.MADE_UP: "made up for the window",
    Place.SUMMARY: "the summary",
    Place.COVERED: "in the summary",
    Place.LIMIT: "do not fit",
    Place.ORPHAN: "answer no call",
    Place.OPEN: "with open calls",
    Place.LEFT_OUT: "left out",
}


def drawn(items: Sequence[Item]) -> list[Line]:
    """The lines of a picture: mark, seq, role, tokens, brackets, message. Each is to be cut at the terminal's width."""
    rows = [item for item in items if isinstance(item, Row)]
    seq_width = max((len(str(row.message.seq)) for row in rows), default=1)
    token_width = max((len(f"{row.message.token_count:,}") for row in rows), default=1)
    return [
        _row(item, seq_width, token_width) if isinstance(item, Row) else _fold(item, seq_width, token_width)
        for item in items
    ]


def _row(row: Row, seq_width: int, token_width: int) -> Line:
    message, place = row.message, row.place
    left_out = place in (Place.LIMIT, Place.LEFT_OUT, Place.COVERED)
    line = Line.assemble(
        (place.mark, place.style),
        (f" {message.seq or '–':>{seq_width}}", "dim" if left_out else ""),
        (f"  {message.role:<{ROLE_WIDTH}}", "dim" if left_out else ROLE_STYLES[message.role]),
        (f"  {message.token_count:>{token_width},}", "dim"),
        (f"  {row.lanes}" if row.lanes else "", place.style),
        "  " if not row.lanes else " ",
    )
    for note in row.notes:
        line.append(f"[{note}] ", "magenta" if place in (Place.WINDOW, Place.PINNED) else place.style)
    text = preview(message, row.placed.tools)
    if left_out:
        text.stylize("dim")
    return line.append_text(text)


def _fold(fold: Fold, seq_width: int, token_width: int) -> Line:
    margin = " " * (1 + seq_width + 2 + ROLE_WIDTH + 2 + token_width)
    return Line.assemble(
        (fold.place.mark, fold.place.style),
        margin,
        (f"  {fold.lanes} " if fold.lanes else "  ", fold.place.style),
        (f"… {_counted(fold.counts, fold.tokens)} …", "dim italic"),
    )


def _counted(counts: Counter[Place], tokens: int | None) -> str:
    total = f"{_messages(counts.total())}" + (f" ({tokens:,} tokens)" if tokens is not None else "")
    if counts == Counter({Place.LIMIT: 1}):
        return f"{total} does not fit"
    if len(counts) == 1:
        return f"{total} {_FOLDED[next(iter(counts))]}"
    return f"{total}: " + "  ".join(f"{place.mark} {count:,}" for place, count in counts.most_common())


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def legend(items: Sequence[Item]) -> Line:
    """What the marks that occur in a picture mean."""
    occurring = {place for item in items for place in (item.counts if isinstance(item, Fold) else (item.place,))}
    line = Line()
    for place in Place:
        if place in occurring and not (place is Place.LEFT_OUT and Place.LIMIT in occurring):
            line.append("  " if line else "").append(place.mark, place.style).append(f" {place.meaning}", "dim")
    return line


def footer(window: Window) -> list[Line]:
    """The window's stats, for a person."""
    stats = window.stats
    lines = [
        _entry("Window", Line(f"{_messages(stats.window_message_count)}, {stats.window_token_count:,} tokens")),
        _entry("Limit", _used(stats)),
    ]
    if stats.over_limit:
        lines.append(_entry("", Line("over the limit, since the newest group alone is larger", "yellow")))
    lines.append(
        _entry(
            "History",
            Line(
                f"{_messages(stats.history_message_count)}, {stats.history_token_count:,} tokens, "
                f"last seq {stats.last_seq}"
            ),
        )
    )
    for index, text in enumerate(_left_out(stats) or ["nothing"]):
        lines.append(_entry("" if index else "Left out", Line(text)))
    lines += [_entry("" if index else "Summary", text) for index, text in enumerate(_summary(window))]
    lines.append(_entry("Digest", Line(f"{stats.prefix_digest.hex()[:_DIGEST_DIGITS]}")))
    return lines


_STATES: Final = {
    SummaryState.PENDING: "the next one is being made, or is left to a client",
    SummaryState.FAILED: "the next one was not made, and is tried again",
}


def _summary(window: Window) -> list[Line]:
    stats = window.stats
    lines = []
    if (summary := shown_summary(window)) is not None:
        first, last = covered_seqs(window)
        lines.append(Line(f"seq {first}-{last} in {summary.token_count:,} tokens"))
    if (state := _STATES.get(stats.summary_state)) is not None:
        lines.append(Line(f"{state}: {stats.summary_failure}" if stats.summary_failure else state, "yellow"))
    return lines


def _entry(label: str, text: Line) -> Line:
    return Line.assemble((f"{label:<10}", "dim"), text)


def _used(stats: WindowStats) -> Line:
    limit = f"{stats.limit:,} tokens" if stats.mode is WindowMode.TOKENS else _messages(stats.limit)
    full = max(0, min(_BAR_WIDTH, round(stats.limit_used_percent / 100 * _BAR_WIDTH)))
    return Line.assemble(
        f"{limit}  ",
        ("█" * full, "yellow" if stats.over_limit else "green"),
        ("░" * (_BAR_WIDTH - full), "dim"),
        f" {stats.limit_used_percent:.0f} % used",
    )


def _left_out(stats: WindowStats) -> list[str]:
    left_out = stats.left_out
    reasons = []
    if left_out.limit_count:
        verb = "does" if left_out.limit_count == 1 else "do"
        reasons.append(f"{_messages(left_out.limit_count)} that {verb} not fit")
    if left_out.orphan_result_count:
        verb = "answers" if left_out.orphan_result_count == 1 else "answer"
        reasons.append(f"{_messages(left_out.orphan_result_count)} that {verb} no call")
    if left_out.open_tool_call_count:
        reasons.append(
            f"{_messages(left_out.open_tool_call_count)} of tool groups with an open call (see --open-calls)"
        )
    return reasons


def heading(agent: str, session_id: str) -> Line:
    """Which session this is."""
    return Line.assemble(("Session ", "dim"), (one_line(session_id), "bold"), (" of agent ", "dim"), one_line(agent))
