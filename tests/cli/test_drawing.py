"""Drawings of windows: what a person sees of a history, what the window holds of it, and why."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from memoryd import (
    MemoryClient,
    Message,
    SummaryState,
    ToolResult,
    Window,
    WindowMode,
    assistant,
    call,
    system,
    tool,
    user,
)
from memoryd_server.cli.demonstration import conversation
from memoryd_server.cli.drawing import drawn, footer, legend
from memoryd_server.cli.picture import Fold, Folding, Item, Place, Row, draw, ranges_to_read
from memoryd_server.cli.terminal import line
from tests.cli.test_safe_text import ANY_TEXT, dangerous
from tests.cli.windows import stored, window_of
from tests.servers import ServerProcess


def seen(items: Sequence[Item], width: int = 80) -> str:
    """The lines of a picture as a terminal without colours shows them."""
    output = io.StringIO()
    console = Console(file=output, width=width, markup=False, emoji=False, highlight=False)
    for text in drawn(items):
        line(console, text)
    return "\n".join(text.rstrip() for text in output.getvalue().splitlines())


AS_BY_DEFAULT: Final = Folding.to_rows(60)


def picture(window: Window, history: Sequence[Message], folding: Folding = AS_BY_DEFAULT) -> list[Item]:
    return draw(window, [history], folding)


def pinned_talk(messages: int) -> list[Message]:
    return stored(system("Be brief."), *(user(f"message {number}") for number in range(2, messages + 1)))


def test_a_window_is_marked_in_its_history() -> None:
    history = stored(*conversation())
    window = window_of(history, [1, *range(10, 17)], limit=8, pinned=1, opened=[9])
    items = picture(window, history)
    assert seen(items) == (
        "P  1  system     10    You are a travel assistant. Answer briefly.\n"
        "·  2  user       10    こんにちは! How is the weather in 東京 and in Oslo? 🌤️\n"
        '·  3  assistant  10  ┌ → get_weather({"city":"東京"})  → get_weather({"city":"O…\n'
        "·  4  user       10  │ Take your time.\n"
        '·  5  tool       10  ├ ← get_weather: {"celsius": 9, "sky": "rain"}\n'
        '·  6  tool       10  └ ← get_weather: {"celsius": 24, "sky": "clear"}\n'
        "·  7  assistant  10    東京 has 24 °C and a clear sky ☀️, Oslo 9 °C and rain 🌧️.\n"
        "·  8  user       10    [needs 1, 0 free] Book me the flight to Oslo at 09:40.\n"
        '○  9  assistant  10    [no result of book_flight] One moment.  → book_flight({"…\n'
        "┃ 10  user       10    Hello? Are you still there?\n"
        "┃ 11  assistant  10    I was interrupted, sorry. Shall I try again?\n"
        "┃ 12  user       10    Yes.\n"
        '┃ 13  assistant  10  ┌ → book_flight({"to":"OSL","at":"09:40"})\n'
        '┃ 14  tool       10  └ ← book_flight: {"reference": "KX7PQ2"}\n'
        "┃ 15  assistant  10    Booked: KX7PQ2 ✈️\n"
        "┃ 16  user       10    ありがとう!"
    )
    assert legend(items).plain == "P pinned  ┃ in window  · does not fit  ○ open call"
    assert [text.plain for text in footer(window)] == [
        "Window    8 messages, 80 tokens",
        "Limit     8 messages  ████████████████████ 100 % used",
        "History   16 messages, 160 tokens, last seq 16",
        "Left out  7 messages that do not fit",
        "          1 message of tool groups with an open call (see --open-calls)",
        "Digest    0123456789ab",
    ]


def test_results_that_are_read_behind_their_call_say_so() -> None:
    """Members of a group are read behind its head in the order of the calls (invariant 6)."""
    history = stored(*conversation()[:7])
    window = window_of(history, [1, 2, 3, 6, 5, 4, 7], limit=10, pinned=1)
    lines = seen(picture(window, history)).splitlines()
    assert lines[3] == "┃ 4  user       10  │ Take your time."
    assert lines[4] == '┃ 5  tool       10  ├ [read after 6] ← get_weather: {"celsius": 9, "sky": "rain…'
    assert lines[5] == '┃ 6  tool       10  └ [read after 3] ← get_weather: {"celsius": 24, "sky": "cle…'


def test_what_the_window_makes_up_stands_where_it_is_read() -> None:
    a, b = call("alpha", id="a"), call("beta", id="b")
    history = stored(user("Go."), assistant(tool_calls=[a, b]), tool("a", "done"), user("Well?"))
    made_up = tool("b", "[interrupted]", name="beta", is_error=True)
    window = window_of(history, [1, 2, 3, Message(role=made_up.role, content=made_up.content), 4], limit=9)
    items = picture(window, history)
    assert seen(items) == (
        "┃ 1  user       10    Go.\n"
        "┃ 2  assistant  10  ┌ → alpha({})  → beta({})\n"
        "┃ 3  tool       10  ├ ← alpha: done\n"
        "+ –  tool        0  └ [made up] ← failed: beta: [interrupted]\n"
        "┃ 4  user       10    Well?"
    )
    assert legend(items).plain == "┃ in window  + made up"


def test_orphans_and_members_of_open_groups_say_what_is_missing() -> None:
    history = stored(
        tool("x", "nobody asked"),
        assistant(tool_calls=[call("alpha", id="a"), call("beta", id="b")]),
        tool("a", "half"),
        user("Hm."),
    )
    window = window_of(history, [4], limit=4, orphans=[1], opened=[2, 3])
    assert seen(picture(window, history)) == (
        "✗ 1  tool       10    [no call for this] ← nobody asked\n"
        "○ 2  assistant  10  ┌ [no result of beta] → alpha({})  → beta({})\n"
        "○ 3  tool       10  └ [another call of its group has no result] ← alpha: half\n"
        "┃ 4  user       10    Hm."
    )


def test_a_shortened_message_keeps_its_price_and_says_its_new_one() -> None:
    history = stored(user("long " * 100), tokens=500)
    window = window_of(history, [1], limit=40, mode=WindowMode.TOKENS, shortened={1: 40})
    assert seen(picture(window, history)).startswith("┃ 1  user       500  [shortened to 40 tokens] long long")


def test_a_window_over_its_limit_says_why() -> None:
    calls = [call("f", id=str(number)) for number in range(3)]
    history = stored(user("Go."), assistant(tool_calls=calls), *(tool(one.id, "x") for one in calls))
    window = window_of(history, [2, 3, 4, 5], limit=2, over_limit=True)
    lines = [text.plain for text in footer(window)]
    assert lines[1:3] == [
        "Limit     2 messages  ████████████████████ 200 % used",
        "          over the limit, since the newest group alone is larger",
    ]


def test_a_summary_stands_behind_what_it_covers() -> None:
    history = pinned_talk(7)
    window = window_of(history, [1, 6, 7], limit=4, pinned=1, covered_to=4)
    items = picture(window, history)
    assert seen(items) == (
        "P 1  system     10  Be brief.\n"
        "┆ 2  user       10  message 2\n"
        "┆ 3  user       10  message 3\n"
        "┆ 4  user       10  message 4\n"
        "S –  user       20  [CONVERSATION SUMMARY] Early facts.\n"
        "· 5  user       10  [needs 1, 0 free] message 5\n"
        "┃ 6  user       10  message 6\n"
        "┃ 7  user       10  message 7"
    )
    assert legend(items).plain == "P pinned  ┃ in window  S summary  ┆ in the summary  · does not fit"
    told = [text.plain for text in footer(window)]
    assert "Left out  1 message that does not fit" in told
    assert "Summary   seq 2-4 in 20 tokens" in told


@pytest.mark.parametrize(
    ("state", "failure", "said"),
    [
        (SummaryState.PENDING, "", "the next one is being made, or is left to a client"),
        (SummaryState.FAILED, "timeout", "the next one was not made, and is tried again: timeout"),
    ],
)
def test_a_window_whose_summary_is_not_there_says_so(state: SummaryState, failure: str, said: str) -> None:
    window = window_of(pinned_talk(7), [1, 6, 7], limit=3, pinned=1)
    window = replace(window, stats=replace(window.stats, summary_state=state, summary_failure=failure))
    assert f"Summary   {said}" in [text.plain for text in footer(window)]


@pytest.mark.parametrize(("covered_to", "shown_from"), [(80_000, 80_001), (60_000, 80_001), (99_990, 99_991), (4, 5)])
def test_little_is_read_of_a_long_history_with_a_summary(covered_to: int, shown_from: int) -> None:
    """What is covered, what does not fit and what is shown are counted, whatever of it was read (invariant 17)."""
    history = pinned_talk(100_000)
    window = window_of(history, [1, *range(shown_from, 100_001)], limit=50_000, pinned=1, covered_to=covered_to)
    folding = Folding.to_rows(60)
    ranges = ranges_to_read(window, folding)
    assert sum(last - first + 1 for first, last in ranges) < 200
    items = draw(window, [history[first - 1 : last] for first, last in ranges], folding)
    counts: Counter[Place] = Counter()
    for item in items:
        counts.update(item.counts if isinstance(item, Fold) else (item.place,))
    assert +counts == +Counter(
        {
            Place.PINNED: 1,
            Place.SUMMARY: 1,
            Place.COVERED: covered_to - 1,
            Place.LIMIT: shown_from - covered_to - 1,
            Place.WINDOW: 100_001 - shown_from,
        }
    )


def test_groups_that_overlap_have_brackets_side_by_side() -> None:
    history = stored(
        assistant(tool_calls=[call("a", id="a")]),
        assistant(tool_calls=[call("b", id="b")]),
        user("?"),
        tool("a", "1"),
        tool("b", "2"),
    )
    window = window_of(history, [1, 4, 2, 5, 3], limit=9)
    assert [text[20:22].rstrip() for text in seen(picture(window, history)).splitlines()] == [
        "┌",
        "│┌",
        "││",
        "└│",
        " └",
    ]


def test_long_stretches_are_folded_and_counted() -> None:
    history = pinned_talk(200)
    window = window_of(history, [1, *range(101, 201)], limit=101, pinned=1)
    lines = seen(picture(window, history, Folding((1, 1), (2, 3), (2, 2)))).splitlines()
    assert lines == [
        "P   1  system     10  Be brief.",
        "·   2  user       10  message 2",
        "·   3  user       10  message 3",
        "·                     … 94 messages (940 tokens) do not fit …",
        "·  98  user       10  message 98",
        "·  99  user       10  message 99",
        "· 100  user       10  [needs 1, 0 free] message 100",
        "┃ 101  user       10  message 101",
        "┃ 102  user       10  message 102",
        "┃                     … 96 messages (960 tokens) in the window …",
        "┃ 199  user       10  message 199",
        "┃ 200  user       10  message 200",
    ]


def test_short_stretches_are_not_folded() -> None:
    history = pinned_talk(8)
    window = window_of(history, [1, 8], limit=2, pinned=1)
    assert not any(isinstance(item, Fold) for item in picture(window, history, Folding((1, 1), (2, 2), (1, 1))))


def test_a_bracket_goes_through_a_fold() -> None:
    calls = [call("f", id=str(number)) for number in range(20)]
    history = stored(assistant(tool_calls=calls), *(tool(one.id, "x") for one in calls))
    window = window_of(history, range(1, 22), limit=30)
    lanes = [item.lanes for item in picture(window, history, Folding((1, 1), (1, 1), (2, 2)))]
    assert lanes == ["┌", "├", "│", "├", "└"]


def test_folds_of_several_kinds_count_each() -> None:
    history = stored(*(user("x") for _ in range(40)), tool("a", "y"), user("end"))
    window = window_of(history, [40, 42], limit=2, orphans=[5, 41])
    folded = [item for item in picture(window, history) if isinstance(item, Fold)]
    assert [fold.counts for fold in folded] == [{Place.LIMIT: 29, Place.ORPHAN: 1}]
    assert "… 30 messages (300 tokens): · 29  ✗ 1 …" in seen(picture(window, history))


@given(st.lists(ANY_TEXT, min_size=1, max_size=6), st.integers(40, 120))
def test_no_text_breaks_out_of_its_line(texts: list[str], width: int) -> None:
    """Neither content nor names move the cursor, and no line is wider than the terminal."""
    history = stored(
        *(user(text, name=text[:20] or None) for text in texts),
        assistant(tool_calls=[call(texts[0], texts[0], id="1")]),
        user([ToolResult("1", "", False, tuple(part for text in texts for part in user(text).content or ()))]),  # type: ignore[misc]
    )
    window = window_of(history, range(1, len(history) + 1), limit=10)
    lines = seen(picture(window, history), width).split("\n")
    assert len(lines) == len(history)
    for text in lines:
        assert not dangerous(text)
        assert cell_len(text) <= width


SHAPES = st.lists(st.sampled_from(["plain", "orphan", "open", "group"]), min_size=1, max_size=400)


def shaped(shapes: list[str]) -> tuple[list[Message], list[list[int]], list[int], list[int]]:
    """A history of these shapes: with its units that windows may show, its orphans and its open messages."""
    messages: list[Message] = [system("rules")]
    units: list[list[int]] = []
    orphans: list[int] = []
    opened: list[int] = []
    for shape in shapes:
        seq = len(messages) + 1
        match shape:
            case "plain":
                messages.append(user("plain"))
                units.append([seq])
            case "orphan":
                messages.append(tool("none", "orphan"))
                orphans.append(seq)
            case "open":
                messages.append(assistant(tool_calls=[call("lost", id=f"lost {seq}")]))
                opened.append(seq)
            case _:
                messages += [assistant(tool_calls=[call("f", id=f"{seq}")]), tool(f"{seq}", "x")]
                units.append([seq, seq + 1])
    return stored(*messages), units, orphans, opened


@given(SHAPES, st.data())
def test_every_message_is_drawn_or_counted_once(shapes: list[str], data: st.DataObject) -> None:
    """Whatever is read and folded, rows and folds together hold the history once, and each in its right place."""
    history, units, orphans, opened = shaped(shapes)
    kept = data.draw(st.integers(0, len(units)))
    shown = [seq for unit in units[len(units) - kept :] for seq in unit]
    folding = Folding.to_rows(data.draw(st.integers(10, 80)))
    window = window_of(history, [1, *shown], limit=500, pinned=1, orphans=orphans, opened=opened)
    everything = draw(window, [history], folding)
    read = [history[first - 1 : last] for first, last in ranges_to_read(window, folding)]
    parts = draw(window, read, folding)

    for items in (everything, parts):
        counts = dict.fromkeys(Place, 0)
        for item in items:
            for place, count in item.counts.items() if isinstance(item, Fold) else [(item.place, 1)]:
                counts[place] += count
        left_out = {Place.LIMIT: len(history) - 1 - len(shown) - len(orphans) - len(opened)}
        left_out |= {Place.ORPHAN: len(orphans), Place.OPEN: len(opened)}
        assert counts[Place.PINNED] == 1
        assert counts[Place.WINDOW] == len(shown)
        if not counts[Place.LEFT_OUT]:
            assert {place: counts[place] for place in left_out} == left_out
        assert sum(counts.values()) == len(history)
        seqs = [item.message.seq for item in items if isinstance(item, Row)]
        assert seqs == sorted(seqs)
    if len(orphans) + len(opened) <= 100:
        assert not any(item.counts[Place.LEFT_OUT] for item in parts if isinstance(item, Fold))


def test_little_is_read_of_a_long_history() -> None:
    """What is read depends on what is drawn, not on the history's length (invariant 17)."""
    history = pinned_talk(100_000)
    window = window_of(history, [1, *range(80_001, 100_001)], limit=20_001, pinned=1)
    folding = Folding.to_rows(60)
    ranges = ranges_to_read(window, folding)
    assert sum(last - first + 1 for first, last in ranges) < 150
    items = draw(window, [history[first - 1 : last] for first, last in ranges], folding)
    assert len(items) < 70
    (before, inside) = [item for item in items if isinstance(item, Fold)]
    assert before.counts == {Place.LIMIT: 79_999 - 9}
    assert before.tokens == 10 * before.counts.total()
    assert inside.counts == {Place.WINDOW: 20_000 - 42}


@pytest.mark.parametrize("orphans", [50, 150])
def test_a_tail_of_orphans_is_folded(orphans: int) -> None:
    history = stored(user("Hi."), *(tool("none", "x") for _ in range(orphans)))
    window = window_of(history, [1], limit=1, orphans=range(2, orphans + 2))
    folding = Folding.to_rows(20)
    read = [history[first - 1 : last] for first, last in ranges_to_read(window, folding)]
    items = draw(window, read, folding)
    assert len(items) <= 10
    assert sum(item.counts.total() if isinstance(item, Fold) else 1 for item in items) == len(history)


def test_drawings_of_real_windows_account_for_the_whole_history(server: ServerProcess, agent: str) -> None:
    """The server's own windows of a history with everything in it, over more messages than are read as a whole."""
    from memoryd_server.cli.window_view import READ_WHOLE

    turn = [*conversation()[1:], tool("nobody", "asked")]
    said = [system("Be brief."), *(message for _ in range(60) for message in renewed(turn))]
    assert len(said) > READ_WHOLE
    folding = Folding.to_rows(40)
    with MemoryClient(server.address) as client:
        session = client.session(agent=agent, id="long")
        session.append_all(said)
        everything = list(session.messages(page_size=1_000))
        for options in ({"messages": 10}, {"messages": 700}, {"tokens": 2_000}, {"messages": 90, "open_calls": "keep"}):
            window = session.window(**options, explain=True)
            read = [everything[first - 1 : last] for first, last in ranges_to_read(window, folding)]
            for items in (draw(window, [everything], folding), draw(window, read, folding)):
                shown = sum(
                    item.counts[Place.WINDOW] + item.counts[Place.PINNED]
                    if isinstance(item, Fold)
                    else item.place in (Place.WINDOW, Place.PINNED)
                    for item in items
                )
                assert shown == len(window)
                total = sum(item.counts.total() if isinstance(item, Fold) else 1 for item in items)
                assert total == window.stats.history_message_count


def renewed(messages: Sequence[Message]) -> list[Message]:
    """The same messages once more: each with an id of its own."""
    return [Message(role=message.role, content=message.content) for message in messages]
