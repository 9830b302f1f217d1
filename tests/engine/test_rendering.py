"""Memory is rendered into one bounded block: whole lines, the oldest first to go (design section 7, invariant 13)."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine.memory_escape import escape
from memoryd_server.engine.rendering import Rendered, Source, Style, TierState, TierStatus, render
from memoryd_server.stores.records import Tier
from tests.engine.rendered_blocks import ReadTier, assert_sealed, read_block

BOTH = [Style.ENCLOSED, Style.OPENHANDS]
LONGEST = "/" + "l" * (limits.MAX_MEMORY_LABEL - 1)
USER_HEADER = "# User memory (~/.openhands/memory/MEMORY.md)"
PROJECT_HEADER = "# Project memory (.openhands/memory/MEMORY.md)"
SEPARATORS = len(USER_HEADER) + 1 + len(PROJECT_HEADER) + 1 + 2
"""Code points of two tiers beside their bodies."""
NOTICE = len("[earlier memory truncated: 99 lines]") + 1
"""Code points of a notice of 10 to 99 lines with its line end."""


def sources(user: str | bytes | None = None, project: str | bytes | None = None, label: str = "") -> dict[Tier, Source]:
    """Both tiers; None where there is no file."""
    return {Tier.USER: Source(label, user), Tier.PROJECT: Source(label, project)}


def rendered(
    user: str | bytes | None = None,
    project: str | bytes | None = None,
    budget: int = limits.DEFAULT_MEMORY_BUDGET,
    style: Style = Style.ENCLOSED,
) -> Rendered:
    return render(sources(user, project), budget, style)


def numbered(count: int, size: int = 10) -> list[str]:
    """Lines of `size` code points that tell which they are."""
    return [f"{number:0{size}d}" for number in range(count)]


def text(*lines: str) -> str:
    return "\n".join(lines)


def tiers_of(result: Rendered, style: Style = Style.ENCLOSED) -> tuple[ReadTier, ReadTier]:
    """The user's and the project's tier, which are both in the block."""
    read = read_block(result.block, style)
    return read.tier("User"), read.tier("Project")


def assert_consistent(result: Rendered, style: Style) -> None:
    """The block is valid, and its status tells what stands in it."""
    read = read_block(result.block, style)
    for title, tier in (("User", Tier.USER), ("Project", Tier.PROJECT)):
        status = result.statuses[tier]
        shown = [part for part in read.tiers if part.title == title]
        assert bool(shown) == (status.state in {TierState.LOADED, TierState.TRUNCATED})
        for part in shown:
            assert len(part.lines) == status.kept
            assert (part.notice is not None) == (status.state is TierState.TRUNCATED) == (status.dropped > 0)
            if style is Style.ENCLOSED and part.notice:
                assert part.notice == f"{status.dropped} line{'' if status.dropped == 1 else 's'}"


class TestTiers:
    def test_the_block_is_that_of_the_design(self) -> None:
        result = rendered("- prefers uv over pip for Python tooling\n", "- the API uses cursor-based pagination\n")
        warning = read_block(result.block).warning
        assert result.block == (
            "<MEMORY_CONTEXT>\n<UNTRUSTED_CONTENT>\n"
            f"{warning}\n"
            "# User memory (~/.openhands/memory/MEMORY.md)\n"
            "- prefers uv over pip for Python tooling\n"
            "\n"
            "# Project memory (.openhands/memory/MEMORY.md)\n"
            "- the API uses cursor-based pagination\n"
            "</UNTRUSTED_CONTENT>\n</MEMORY_CONTEXT>"
        )
        assert result.statuses == {
            Tier.USER: TierStatus(TierState.LOADED, 1),
            Tier.PROJECT: TierStatus(TierState.LOADED, 1),
        }
        assert result.warnings == []

    def test_in_the_style_of_openhands_memory_follows_the_untrusted_part(self) -> None:
        result = rendered("- a", "- b", style=Style.OPENHANDS)
        warning = read_block(result.block, Style.OPENHANDS).warning
        assert result.block == (
            f"<MEMORY_CONTEXT>\n<UNTRUSTED_CONTENT>\n{warning}</UNTRUSTED_CONTENT>\n\n"
            f"{USER_HEADER}\n- a\n\n{PROJECT_HEADER}\n- b\n</MEMORY_CONTEXT>"
        )

    def test_the_warning_says_what_memory_is(self) -> None:
        warning = read_block(rendered("- a").block).warning.lower()
        for word in ("memory files", "verified", "instructions", "hints", "authority"):
            assert word in warning

    @pytest.mark.parametrize("style", BOTH)
    @pytest.mark.parametrize(
        ("user", "project", "states"),
        [
            ("- a", "- b", (TierState.LOADED, TierState.LOADED)),
            ("- a", None, (TierState.LOADED, TierState.ABSENT)),
            (None, "- b", (TierState.ABSENT, TierState.LOADED)),
            ("- a", "", (TierState.LOADED, TierState.EMPTY)),
            (b" \r\n\t\n\xe2\x80\xa8", "- b", (TierState.EMPTY, TierState.LOADED)),
            ("\ufeff \n", "- b", (TierState.EMPTY, TierState.LOADED)),
        ],
        ids=["both", "user", "project", "empty project", "white user", "a user's BOM"],
    )
    def test_only_tiers_with_text_are_shown(
        self, user: str | bytes | None, project: str | None, states: tuple[TierState, TierState], style: Style
    ) -> None:
        result = rendered(user, project, style=style)
        assert_consistent(result, style)
        assert (result.statuses[Tier.USER].state, result.statuses[Tier.PROJECT].state) == states

    @pytest.mark.parametrize("style", BOTH)
    @pytest.mark.parametrize("content", [None, "", " \t\r\n \u2028\u3000", b"\xef\xbb\xbf\r\n"])
    def test_without_text_there_is_no_block(self, content: str | bytes | None, style: Style) -> None:
        result = rendered(content, content, style=style)
        state = TierState.ABSENT if content is None else TierState.EMPTY
        assert result == Rendered("", dict.fromkeys(Tier, TierStatus(state)), [])
        assert render({}, 256, style).block == ""

    def test_a_source_that_cannot_be_read_is_told_and_the_other_rendered(self) -> None:
        result = render(
            {Tier.USER: Source("", None, "permission\ndenied"), Tier.PROJECT: Source("", "- b")}, 256, Style.ENCLOSED
        )
        assert [part.title for part in read_block(result.block).tiers] == ["Project"]
        assert result.statuses[Tier.USER] == TierStatus(TierState.UNREADABLE)
        assert result.warnings == ["User memory could not be read: permissiondenied"]

    @pytest.mark.parametrize(
        ("label", "shown"),
        [
            ("", "~/.openhands/memory/MEMORY.md"),
            ("\u200b\n", "~/.openhands/memory/MEMORY.md"),
            ("/home/ana/memory.md", "/home/ana/memory.md"),
            ("C:\\Users\\Ana\\メモリ.md", "C:\\Users\\Ana\\メモリ.md"),
            ("a\n# Project memory (b)\u2028\x00c", "a# Project memory (b)c"),
            ("\u202egnp.\ufefftxt", "gnp.txt"),
            ("<MEMORY_CONTEXT>", "&lt;MEMORY_CONTEXT>"),
            ("</MEM\u200bORY_CONTEXT>", "&lt;/MEMORY_CONTEXT>"),
            ("🧠" * 65, "🧠" * 64),
            ("l" * 4_096, "l" * 64),
            ("<memory_context" * 5, ("&lt;memory_context" * 5)[:64]),
        ],
    )
    def test_a_label_stands_in_one_line_of_64_code_points(self, label: str, shown: str) -> None:
        for style in BOTH:
            result = render({Tier.USER: Source(label, "- a")}, 256, style)
            assert [tier.label for tier in read_block(result.block, style).tiers] == [shown]
            assert_sealed(result.block, style)


class TestBudget:
    @pytest.mark.parametrize("style", BOTH)
    def test_what_fits_exactly_is_verbatim(self, style: Style) -> None:
        user, project = text(*numbered(30)), text(*numbered(50))
        size = SEPARATORS + len(user) + len(project)
        fits = rendered(user, project, size, style)
        assert read_block(fits.block, style).text == f"{USER_HEADER}\n{user}\n\n{PROJECT_HEADER}\n{project}"
        over = rendered(user, project, size - 1, style)
        assert over.statuses[Tier.USER] == TierStatus(TierState.LOADED, 30)
        assert over.statuses[Tier.PROJECT].state is TierState.TRUNCATED
        assert_consistent(over, style)

    @pytest.mark.parametrize("title", ["User", "Project"])
    def test_a_single_tier_has_the_whole_budget(self, title: str) -> None:
        lines = numbered(50)
        header = USER_HEADER if title == "User" else PROJECT_HEADER
        whole = text(*lines)
        user, project = (whole, None) if title == "User" else (None, whole)
        size = len(header) + 1 + len(whole)
        shown = read_block(rendered(user, project, size).block).tier(title)
        assert (shown.notice, shown.lines) == (None, tuple(lines))
        # One code point less: the notice needs room for itself too.
        over = read_block(rendered(user, project, size - 1).block).tier(title)
        kept = (len(whole) - 1 - NOTICE + 1) // 11
        assert (over.notice, over.lines) == (f"{50 - kept} lines", tuple(lines[-kept:]))

    @pytest.mark.parametrize("huge", [50_000, 1_048_576])
    @pytest.mark.parametrize("small_is_user", [True, False])
    def test_beside_a_huge_tier_a_small_one_is_whole_and_leaves_it_the_rest(
        self, huge: int, small_is_user: bool
    ) -> None:
        small, big = "- a\n- b", "\n".join(numbered(huge // 11))
        result = rendered(small, big) if small_is_user else rendered(big, small)
        user, project = tiers_of(result)
        one, other = (user, project) if small_is_user else (project, user)
        assert (one.lines, one.notice) == (("- a", "- b"), None)
        assert other.lines == tuple(numbered(huge // 11)[-len(other.lines) :])
        assert limits.DEFAULT_MEMORY_BUDGET - 11 < len(read_block(result.block).text) <= limits.DEFAULT_MEMORY_BUDGET

    def test_a_tier_that_is_just_its_share_is_whole(self) -> None:
        share = 1_000
        lines = [*numbered(90), "x" * 9]
        whole = text(*lines)
        assert len(whole) == share - 1
        for user, project in ((whole + "x", "y\n" * 2_000), ("y\n" * 2_000, whole + "x")):
            statuses = rendered(user, project, SEPARATORS + 2 * share).statuses
            assert sorted(status.state for status in statuses.values()) == [TierState.LOADED, TierState.TRUNCATED]

    def test_the_odd_code_point_is_the_users(self) -> None:
        """With lines of one code point each, two more are another line."""
        many = "x\n" * 900
        for extra, lines in ((0, (0, 0)), (2, (1, 0)), (3, (1, 0)), (4, (1, 1))):
            # Each share holds its notice and an odd number of code points: whole lines, without a rest.
            share = len("[earlier memory truncated: 900 lines]") + 1 + 201
            user, project = tiers_of(rendered(many, many, SEPARATORS + 2 * share + extra))
            assert (len(user.lines) - 101, len(project.lines) - 101) == lines
        whole = text(*numbered(45), "x" * 7)
        assert len(whole) == 502
        assert rendered(whole, many, SEPARATORS + 1_003).statuses[Tier.USER].state is TierState.LOADED
        assert rendered(many, whole, SEPARATORS + 1_003).statuses[Tier.PROJECT].state is TierState.TRUNCATED

    @pytest.mark.parametrize("style", BOTH)
    def test_both_tiers_lose_lines_from_the_top_only(self, style: Style) -> None:
        lines = [("ab" * 40)[: 1 + number % 37] + str(number) for number in range(400)]
        result = rendered(text(*lines), text(*lines), 2_000, style)
        assert_consistent(result, style)
        for tier in tiers_of(result, style):
            assert tier.notice is not None
            assert 0 < len(tier.lines) < 400
            assert tier.lines == tuple(lines[-len(tier.lines) :])
        assert len(read_block(result.block, style).text) > 2_000 - 80

    def test_of_lines_with_empty_ones_between_all_are_counted(self) -> None:
        lines = [line for number in range(60) for line in (f"paragraph {number}", "")]
        result = rendered(None, text(*lines), 400)
        tier = read_block(result.block).tier("Project")
        assert tier.lines == tuple(lines[:-1][-len(tier.lines) :])
        assert tier.notice == f"{119 - len(tier.lines)} lines"

    @pytest.mark.parametrize("style", BOTH)
    def test_for_every_budget_the_block_is_valid_and_within_it(self, style: Style) -> None:
        """With the longest labels; the lines are as mixed as those of prose and lists, and one tier is small enough to
        be whole in the end."""
        chance = random.Random(6)
        sizes = ([0, 1, 7, 30, 80, 200, 900, 4_000], [0, 1, 7, 30, 80, 300])
        contents = [text("- top", *("x" * chance.choice(of) for _ in range(60)), "- end") for of in sizes]
        both = sources(contents[0], contents[1], LONGEST)
        for budget in range(limits.MIN_MEMORY_BUDGET, 8_001):
            result = render(both, budget, style)
            read = read_block(result.block, style)
            assert len(read.text) <= budget
            assert [(tier.title, tier.label) for tier in read.tiers] == [("User", LONGEST), ("Project", LONGEST)]
            for tier, status in zip(read.tiers, result.statuses.values(), strict=True):
                assert (status.kept, status.kept + status.dropped) == (len(tier.lines), 62)
                assert (tier.notice is None) == (status.dropped == 0)
        statuses = render(both, 8_000, style).statuses
        assert [status.dropped > 0 for status in statuses.values()] == [True, False]

    def test_the_smallest_budget_holds_the_headers_and_notices_of_the_largest_tiers(self) -> None:
        huge = "\n" * (limits.MAX_FILE_BYTES - 2)
        for content in ("a" + huge + "b", "x" * limits.MAX_FILE_BYTES, "xx\n" * (limits.MAX_FILE_BYTES // 3)):
            for style in BOTH:
                result = render(sources(content, content, LONGEST), limits.MIN_MEMORY_BUDGET, style)
                assert_consistent(result, style)
                assert len(read_block(result.block, style).text) <= limits.MIN_MEMORY_BUDGET


class TestOverLongLines:
    """A line that no budget holds costs only itself, and what it would have used goes to the others."""

    @pytest.mark.parametrize("position", [0, 10, 20], ids=["top", "middle", "bottom"])
    @pytest.mark.parametrize("size", [1_001, 1_000_000])
    def test_it_alone_is_left_out(self, position: int, size: int) -> None:
        lines = numbered(20)
        long = [*lines[:position], "x" * size, *lines[position:]]
        result = rendered(text(*long), None, 1_000)
        tier = read_block(result.block).tier("User")
        assert (tier.notice, tier.lines) == ("1 line", tuple(lines))

    def test_one_that_the_share_holds_without_its_notice_alone_is_left_out_too(self) -> None:
        """Design section 7 has "longer than the share". One that is as long as the share fits beside no notice, and
        all above it would go with it."""
        lines = numbered(20)
        room = 1_000 - len(USER_HEADER) - 1
        for over in range(room - NOTICE + 1, room + 2):
            tier = read_block(rendered(text(*lines, "x" * over), None, 1_000).block).tier("User")
            assert (tier.notice, tier.lines) == ("1 line", tuple(lines)), over
        kept = read_block(rendered(text(*lines, "x" * (room - NOTICE)), None, 1_000).block).tier("User")
        assert kept.lines == ("x" * (room - NOTICE),)

    def test_a_tier_of_nothing_else_keeps_its_header_and_notice(self) -> None:
        result = rendered("x" * 5_000, "y" * 5_000 + "\n" + "y" * 6_000, 1_000)
        assert [(tier.notice, tier.lines) for tier in tiers_of(result)] == [("1 line", ()), ("2 lines", ())]
        assert_consistent(result, Style.ENCLOSED)

    @pytest.mark.parametrize("long_is_user", [True, False])
    def test_its_budget_goes_to_the_other_tier(self, long_is_user: bool) -> None:
        lines = numbered(150)
        long = "short\n" + "x" * 5_000
        result = rendered(long, text(*lines), 2_000) if long_is_user else rendered(text(*lines), long, 2_000)
        user, project = tiers_of(result)
        one, other = (user, project) if long_is_user else (project, user)
        assert (one.notice, one.lines) == ("1 line", ("short",))
        assert (other.notice, other.lines) == (None, tuple(lines))

    def test_its_budget_goes_to_the_other_lines_of_its_tier(self) -> None:
        lines = [*numbered(40), "x" * 400, *numbered(40)]
        result = rendered(text(*lines), "y\n" * 2_000, SEPARATORS + 600)
        user, _ = tiers_of(result)
        assert user.lines == tuple([*numbered(40), *numbered(40)][-len(user.lines) :])
        assert len(text(*user.lines)) > 300 - NOTICE - 11


class TestRests:
    """What one tier leaves goes to the other, which continues its walk."""

    @pytest.mark.parametrize("blocked_is_user", [True, False])
    def test_the_other_takes_what_the_next_line_is_too_long_for(self, blocked_is_user: bool) -> None:
        blocked = text("top", "x" * 450, "y" * 450)
        lines = numbered(200)
        contents = (blocked, text(*lines)) if blocked_is_user else (text(*lines), blocked)
        result = rendered(*contents, SEPARATORS + 1_000)
        user, project = tiers_of(result)
        one, other = (user, project) if blocked_is_user else (project, user)
        assert (one.notice, one.lines) == ("2 lines", ("y" * 450,))
        assert other.lines == tuple(lines[-len(other.lines) :])
        assert len(read_block(result.block).text) > SEPARATORS + 1_000 - 12

    def test_a_tier_that_becomes_whole_so_has_no_notice(self) -> None:
        blocked = text("top", "x" * 450, "y" * 420)
        lines = numbered(47)
        assert 500 < len(text(*lines)) < 520
        result = rendered(blocked, text(*lines), SEPARATORS + 1_000)
        assert result.statuses[Tier.PROJECT] == TierStatus(TierState.LOADED, 47)
        assert result.statuses[Tier.USER] == TierStatus(TierState.TRUNCATED, 1, 2)

    def test_the_users_rest_comes_back_with_what_it_could_not_use_of_the_projects(self) -> None:
        """Each share is 500, and 465 beside the notice: the user leaves 65, which are too few for the project's next
        line; the project leaves 34, which are too few for the user's. Together they hold the project's."""
        user = text("u" * 430, "u" * 400)
        project = text("top" * 40, "p" * 80, "p" * 20, "p" * 410)
        result = rendered(user, project, SEPARATORS + 1_000)
        shown_user, shown_project = tiers_of(result)
        assert (len(shown_user.lines), len(shown_project.lines)) == (1, 3)
        assert rendered(user, text("top" * 40, "p" * 99, "p" * 20, "p" * 410), SEPARATORS + 1_000).statuses == {
            Tier.USER: TierStatus(TierState.TRUNCATED, 1, 1),
            Tier.PROJECT: TierStatus(TierState.TRUNCATED, 2, 2),
        }


@dataclass
class _Naive:
    """A tier as design section 7 renders it in pseudo-code, with lists and without any economy."""

    header: str
    lines: list[str]
    style: Style
    share: int = 0
    walk: list[str] | None = None
    """The lines that are still to be taken, when it is not whole."""
    kept: list[str] | None = None

    @property
    def size(self) -> int:
        return len("\n".join(self.lines))

    @property
    def reserve(self) -> int:
        return len(_notice(max(2, len(self.lines)), self.style)) + 1

    @property
    def rest(self) -> int:
        if self.kept is None:
            return self.share - self.size
        return self.share - self.reserve - len("\n".join(self.kept))

    def begin(self) -> None:
        if self.size > self.share:
            # The pseudo-code removes lines that are longer than the share. Those between the share and the share less
            # the notice fit no better, so they are removed as well.
            self.walk = [line for line in self.lines if len(line) <= self.share - self.reserve]
            self.over_long = len(self.walk) < len(self.lines)
            self.kept = []
            self.take()

    def go_on(self, more: int) -> None:
        self.share += more
        if self.kept is not None and not self.over_long and self.size <= self.share:
            self.walk = self.kept = None
        if self.kept is not None:
            self.take()

    def take(self) -> None:
        assert self.walk is not None
        assert self.kept is not None
        while self.walk and len("\n".join([self.walk[-1], *self.kept])) <= self.share - self.reserve:
            self.kept.insert(0, self.walk.pop())

    def text(self) -> str:
        if self.kept is None:
            return "\n".join([self.header, *self.lines])
        return "\n".join([self.header, _notice(len(self.lines) - len(self.kept), self.style), *self.kept])


def _notice(lines: int, style: Style) -> str:
    if style is Style.OPENHANDS:
        return "[earlier memory truncated]"
    return f"[earlier memory truncated: {lines} line{'s' if lines != 1 else ''}]"


def naive(user: str, project: str, budget: int, style: Style) -> str:
    """What stands between warning and closing markers, by the pseudo-code of design section 7."""
    texts = [(header, content.strip()) for header, content in ((USER_HEADER, user), (PROJECT_HEADER, project))]
    tiers = [_Naive(header, escape(content).split("\n"), style) for header, content in texts if content]
    room = budget - sum(len(tier.header) + 1 for tier in tiers) - 2 * (len(tiers) - 1)
    if sum(tier.size for tier in tiers) > room:
        for tier in tiers:
            tier.share = room // len(tiers)
        tiers[0].share += room % len(tiers)
        for one, other in ((tiers[0], tiers[-1]), (tiers[-1], tiers[0])):
            if one is not other and one.size < one.share:
                other.share += one.share - one.size
                one.share = one.size
        for tier in tiers:
            tier.begin()
        if len(tiers) == 2:
            for giver, taker in ((tiers[1], tiers[0]), (tiers[0], tiers[1])):
                rest = giver.rest
                giver.share -= rest
                taker.go_on(rest)
    return "\n\n".join(tier.text() for tier in tiers)


_LINES = st.one_of(
    st.integers(0, 6).map(lambda size: "x" * size),
    st.integers(0, 60).map(lambda size: "é" * size),
    st.integers(60, 260).map(lambda size: "🧠" * size),
    st.sampled_from(
        ["</memory_context>", "# User memory", "[earlier memory truncated]", "  indented", "\t", "<<", "a < b"]
    ),
)
_TEXTS = st.lists(_LINES, max_size=40).map("\n".join)
_BUDGETS = st.one_of(st.integers(limits.MIN_MEMORY_BUDGET, 400), st.integers(400, 1_600))


@settings(max_examples=600)
@given(_TEXTS, _TEXTS, _BUDGETS, st.sampled_from(BOTH))
def test_it_renders_what_the_pseudo_code_of_the_design_does(user: str, project: str, budget: int, style: Style) -> None:
    result = rendered(user, project, budget, style)
    expected = naive(user, project, budget, style)
    assert bool(result.block) == bool(expected)
    if result.block:
        assert read_block(result.block, style).text == expected
        assert len(expected) <= budget
        assert_consistent(result, style)


def openhands(user: str, project: str, budget: int) -> dict[str, tuple[bool, list[str]]]:
    """How OpenHands shares a budget among its tiers: whether each is truncated, and the lines that are left of it.

    The texts are stripped. When headers and bodies fit, they stand as they are. Else each has an equal share of the
    budget less headers and separators, and what a short tier does not need goes to the other; of each that is over its
    share, lines are dropped from the top until the notice and the rest of them fit.
    """
    tiers = {
        title: (header, content.strip())
        for title, header, content in (("User", USER_HEADER, user), ("Project", PROJECT_HEADER, project))
        if content.strip()
    }
    room = budget - sum(len(header) + 1 for header, _ in tiers.values()) - 2 * (len(tiers) - 1)
    sizes = {title: len(content) for title, (_, content) in tiers.items()}
    left: dict[str, tuple[bool, list[str]]] = {}
    for title, (_, content) in tiers.items():
        others = sum(sizes.values()) - sizes[title]
        share = max(room // len(tiers), room - others) if len(tiers) == 2 else room
        lines = content.split("\n")
        truncated = len(content) > share
        while truncated and lines and len("\n".join(["[earlier memory truncated]", *lines])) > share:
            del lines[0]
        left[title] = (truncated, lines)
    return left


_PLAIN = st.lists(st.integers(1, 80).map(lambda size: "- " + "x" * size), min_size=1, max_size=60).map("\n".join)


class TestOpenHands:
    @settings(max_examples=300)
    @given(_TEXTS, _TEXTS, _BUDGETS)
    def test_no_line_is_missing_that_openhands_shows(self, user: str, project: str, budget: int) -> None:
        result = rendered(user, project, budget, Style.OPENHANDS)
        if escape(user) == user and escape(project) == project and result.block:
            read = read_block(result.block, Style.OPENHANDS)
            for title, (truncated, lines) in openhands(user, project, budget).items():
                shown = read.tier(title)
                assert shown.lines[len(shown.lines) - len(lines) :] == tuple(lines)
                assert truncated or shown.notice is None

    @settings(max_examples=300)
    @given(_PLAIN, st.one_of(st.just(""), _PLAIN), st.integers(600, 4_000))
    def test_its_block_is_the_same_but_for_lines_that_there_is_room_for(
        self, user: str, project: str, budget: int
    ) -> None:
        """Outside of the warning, where no line is over-long and nothing is escaped. OpenHands leaves a rest unused
        that one tier has and the other has a line for; with one tier, there is none."""
        read = read_block(rendered(user, project, budget, Style.OPENHANDS).block, Style.OPENHANDS)
        left = openhands(user, project, budget)
        theirs = "\n\n".join(
            "\n".join([header, *(["[earlier memory truncated]"] if left[title][0] else []), *left[title][1]])
            for title, header in (("User", USER_HEADER), ("Project", PROJECT_HEADER))
            if title in left
        )
        if all(len(read.tier(title).lines) == len(lines) for title, (_, lines) in left.items()):
            assert read.text == theirs
        else:
            assert len(left) == 2
            assert len(theirs) < len(read.text) <= budget


class TestEncoding:
    """The same bytes on every store and source kind (issue 6)."""

    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"- caf\xe9 \xff\xfe", ("- caf� ��",)),
            (b"\xf0\x9f\xa7", ("�",)),
            (b"\xed\xa0\x80", ("���",)),
            (b"\xc0\xaf", ("��",)),
        ],
        ids=["Latin 1", "cut off", "surrogate", "overlong"],
    )
    def test_a_bad_byte_is_replaced_with_a_warning(self, data: bytes, lines: tuple[str, ...]) -> None:
        result = rendered(None, data)
        assert read_block(result.block).tier("Project").lines == lines
        assert result.warnings == ["Project memory holds bytes that are not UTF-8: U+FFFD stands for them"]

    @pytest.mark.parametrize(
        ("content", "lines"),
        [
            ("\ufeff- a\n", ("- a",)),
            ("\ufeff\ufeff- a", ("\ufeff- a",)),
            ("- a\r\n- b\r\n", ("- a", "- b")),
            ("- a\r- b\r", ("- a", "- b")),
            ("- a\r\r\n- b\n\r- c", ("- a", "", "- b", "", "- c")),
            ("- a\0b", ("- a\0b",)),
            ("- a\u2028b\u2029c\x85d\x0be\x0cf", ("- a\u2028b\u2029c\x85d\x0be\x0cf",)),
            ("- שלום \u202eעולם\u202c مرحبا", ("- שלום \u202eעולם\u202c مرحبا",)),
            ("- e\u0301 é ﬁ", ("- e\u0301 é ﬁ",)),
            ("   - a\n   - b   ", ("- a", "   - b")),
        ],
        ids=["BOM", "two BOMs", "CRLF", "CR", "mixed", "NUL", "line separators", "right to left", "forms", "indented"],
    )
    def test_str_and_bytes_of_a_text_are_rendered_alike(self, content: str, lines: tuple[str, ...]) -> None:
        for style in BOTH:
            result = rendered(content, content.encode(), style=style)
            user, project = tiers_of(result, style)
            assert user.lines == project.lines == lines
            assert result == rendered(content.encode(), content, style=style)
            assert result.warnings == []

    def test_the_budget_counts_code_points_and_cuts_none(self) -> None:
        for letter in ("x", "é", "日", "🧠"):
            lines = [f"{number:02d}{letter * 50}" for number in range(40)]
            result = rendered(text(*lines).encode(), None, 600)
            assert len(read_block(result.block).tier("User").lines) == (600 - len(USER_HEADER) - 1 - NOTICE + 1) // 53
            assert result.warnings == []

    def test_the_cut_falls_between_lines_of_every_line_end(self) -> None:
        for line_end in ("\n", "\r\n", "\r"):
            assert rendered(line_end.join(numbered(99)), None, 600) == rendered(text(*numbered(99)), None, 600)


BULLETS = text(*(f"- Fact {number}: the build of module {number} needs `make gen` first." for number in range(200)))
HEADINGS = "\n\n".join(
    text(
        f"## Topic {number}",
        "",
        *(f"- `key_{number}_{item}` → value, see 2026-01-{item + 1:02d}.md" for item in range(5)),
    )
    for number in range(50)
)
PROSE = "\n\n".join(
    " ".join(
        f"Sentence {number}.{part} tells at some length what was learned, and why it matters." for part in range(6)
    )
    for number in range(40)
)


class TestShapesInTheWild:
    @pytest.mark.parametrize("content", [BULLETS, HEADINGS, PROSE], ids=["bullets", "headings", "prose"])
    @pytest.mark.parametrize("style", BOTH)
    def test_they_are_shown_as_they_are_and_lose_their_oldest_lines(self, content: str, style: Style) -> None:
        whole = rendered(content, None, limits.MAX_MEMORY_BUDGET, style)
        assert read_block(whole.block, style).tier("User").lines == tuple(content.split("\n"))
        cut = rendered(content, content, style=style)
        for tier in tiers_of(cut, style):
            assert tier.lines == tuple(content.split("\n")[-len(tier.lines) :])
            assert tier.notice is not None
        longest = max(map(len, content.split("\n")))
        size = len(read_block(cut.block, style).text)
        assert limits.DEFAULT_MEMORY_BUDGET - 2 * longest < size <= limits.DEFAULT_MEMORY_BUDGET


class TestPurity:
    def test_the_same_input_gives_the_same_bytes_in_every_process_and_locale(self) -> None:
        program = "from tests.engine.test_rendering import everything\nprint(everything())"
        environments = [
            {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
            {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONUTF8": "0"},
        ]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program], env={**os.environ, **more}, stdout=subprocess.PIPE, text=True
            )
            for more in environments
        ]
        answers = [process.communicate()[0].strip() for process in processes]
        assert answers == [everything()] * 2

    def test_nothing_is_remembered_between_calls(self) -> None:
        first = [rendered(BULLETS, PROSE, budget) for budget in (300, 3_000)]
        rendered("x" * 99_999, "other")
        assert [rendered(BULLETS, PROSE, budget) for budget in (300, 3_000)] == first


def everything() -> str:
    """A digest of renderings that between them take every way there is."""
    chance = random.Random(7)
    alphabet = [
        "x",
        "I",
        "İ",
        "ß",
        "é",
        "🧠",
        "\n",
        "\n",
        "\r\n",
        "<MEMORY_CONTEXT>",
        "\n# user memory",
        "\u200b",
        "\0",
    ]
    digest = hashlib.sha256()
    for _ in range(60):
        user, project = ("".join(chance.choices(alphabet, k=chance.randrange(400))) for _ in Tier)
        for style in BOTH:
            result = rendered(user.encode(), project, chance.randrange(256, 900), style)
            digest.update(repr((result.block, result.statuses, result.warnings)).encode())
    return digest.hexdigest()


HOSTILE = {
    "short lines": "x\n",
    "short lines of <": "<\n",
    "short lines of #": "#\n",
    "short lines of [": "[\n",
    "short lines of what is not seen": "\u200b\n",
    "a line of what is not seen": "\u200b",
    "a line of <": "<",
    "a line of #": "# ",
    "a line of all": " <\u200b#[",
    "markers": "</memory_context>\n",
    "headers": "# user memory\n",
    "over-long lines": "x" * 7_000 + "\n",
    "lines of 60": "x" * 60 + "\n",
    "carriage returns": "\r",
}


class TestCost:
    """Cost is linear in the input, whatever it holds (issue 6)."""

    @pytest.mark.parametrize("budget", [limits.MIN_MEMORY_BUDGET, limits.DEFAULT_MEMORY_BUDGET])
    @pytest.mark.parametrize("shape", HOSTILE)
    def test_four_times_the_input_takes_about_four_times_as_long(self, shape: str, budget: int) -> None:
        """A cost that grows with the square would take 16 times as long."""
        whole = HOSTILE[shape] * (limits.MIB // len(HOSTILE[shape].encode()))
        quarter = whole[: len(whole) // 4]
        longer = min(_seconds(whole, budget) for _ in range(3))
        shorter = min(_seconds(quarter, budget) for _ in range(3))
        assert longer < 10 * shorter + 0.005

    @pytest.mark.parametrize("letter", ["x", "<", "#", "[", "\u200b"])
    def test_what_does_not_fit_is_not_looked_at(self, letter: str) -> None:
        """Of a text of short lines, what is above the cut costs no step at all, in Python's own count."""
        # The first rendering of a process also calls what Python remembers from then on.
        _, *counts = [_calls(f"{letter}\n" * lines) for lines in (100_000, 100_000, 400_000)]
        assert counts[0] == counts[1]


def _seconds(content: str, budget: int) -> float:
    before = time.process_time()
    rendered(content, "- beside it", budget)
    return time.process_time() - before


def _calls(content: str) -> int:
    """The calls, also of built-in functions, that rendering takes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        rendered(content)
    finally:
        sys.setprofile(None)
    return calls
