"""A rendered block in an appended instruction is cut out, and the answer says so (invariant 14)."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import histories, tokens
from memoryd_server.engine.content import Data, Media, Part, Reasoning, Refusal, Text, ToolResult, decode_parts
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import Append
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.memory_blocks import without_memory
from memoryd_server.engine.rendering import Source, Style, render
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Role, Tier
from tests.engine.messages import KEY, assistant, developer, results, spoken, system, user
from tests.engine.sessions import Conversation, runtime_on
from tests.engine.test_memory_escape import HOSTILE


def block_of(memory: str = "- prefers uv\n\n- and more", style: Style = Style.ENCLOSED) -> str:
    return render({Tier.USER: Source("", memory), Tier.PROJECT: Source("", "- b")}, 6_000, style).block


BLOCK = block_of()
OPENING, INNER_OPENING = "<MEMORY_CONTEXT>", "<UNTRUSTED_CONTENT>"
INNER_CLOSING, CLOSING = "</UNTRUSTED_CONTENT>", "</MEMORY_CONTEXT>"


def cut(text: str) -> str:
    """The text of a system message as it is stored."""
    message = without_memory(system(text))
    assert message.memory_removed == (message.parts != (Text(text),))
    (part,) = message.parts or ()
    assert isinstance(part, Text)
    return part.text


@pytest.mark.parametrize("block", [BLOCK, block_of(style=Style.OPENHANDS)], ids=["enclosed", "openhands"])
class TestPlaces:
    @pytest.mark.parametrize(
        ("prompt", "stored"),
        [
            ("@", ""),
            ("@\n\nYou help.", "You help."),
            ("@\nYou help.\n", "You help.\n"),
            ("You help.\n\n@", "You help."),
            ("You help.\n\n@\n", "You help."),
            ("\n You help.\n@", "\n You help."),
            ("You help.\n\n@\n\nBe brief.", "You help.\n\nBe brief."),
            ("You help.\n@\nBe brief.", "You help.\nBe brief."),
            ("You help.\n\n\n@\nBe brief.", "You help.\n\n\nBe brief."),
            ("You help.\n@\n\n\nBe brief.", "You help.\n\n\nBe brief."),
            ("You help.\r\n\r\n@\r\n\r\nBe brief.", "You help.\r\n\r\nBe brief."),
            ("Memory: @, as it is.", "Memory: , as it is."),
            ("  @  ", "    "),
            ("You help.\n\n@\n\n@\n\nBe brief.", "You help.\n\nBe brief."),
            ("@@", ""),
            ("@\n\na\n\n@\nb\n@", "a\n\nb"),
            ("a\n\n@\n\n\n\n@\nb", "a\n\n\n\nb"),
        ],
    )
    def test_a_block_goes_with_the_line_ends_that_set_it_apart(self, prompt: str, stored: str, block: str) -> None:
        assert cut(prompt.replace("@", block)) == stored
        assert without_memory(developer(prompt.replace("@", block))).parts == (Text(stored),)

    def test_a_block_with_other_line_ends_is_cut_out_too(self, block: str) -> None:
        prompt = f"You help.\n\n{block}\n\nBe brief."
        assert cut(prompt.replace("\n", "\r\n")) == "You help.\r\n\r\nBe brief."
        assert cut(prompt.replace("\n", "\r")) == "You help.\r\rBe brief."
        assert cut(f"You help. {block.replace(chr(10), ' ')} Be brief.") == "You help.  Be brief."

    def test_an_opening_before_it_stays(self, block: str) -> None:
        """Its block is not complete, and what stands behind it is no memory."""
        for opening in (OPENING, f"{OPENING}\n{INNER_OPENING}", f"{OPENING}\n{INNER_OPENING}\n- a\n{INNER_CLOSING}\n"):
            assert cut(f"{opening}\nYou help.\n\n{block}\n\nBe brief.") == f"{opening}\nYou help.\n\nBe brief."

    def test_closings_around_it_stay(self, block: str) -> None:
        prompt = f"{INNER_CLOSING}{CLOSING}\n\n@\n\n{INNER_CLOSING}{CLOSING} {CLOSING}\n{OPENING}"
        assert cut(prompt.replace("@", block)) == prompt.replace("@\n\n", "")


@given(
    HOSTILE,
    HOSTILE,
    st.sampled_from([Style.ENCLOSED, Style.OPENHANDS]),
    st.sampled_from(["", "You help.", f"{OPENING} {CLOSING}", f"{OPENING}{INNER_OPENING}"]),
    st.sampled_from(["", "Be brief.", CLOSING, f"{INNER_CLOSING}\n{CLOSING}", OPENING]),
    st.sampled_from(["\n\n", "\n", "\r\n", " "]),
)
def test_whatever_memory_holds_its_block_is_cut_out_as_a_whole(
    memory: str, label: str, style: Style, before: str, after: str, gap: str
) -> None:
    block = render({Tier.USER: Source(label, f"{memory}."), Tier.PROJECT: Source("", memory)}, 2_000, style).block
    stored = cut(f"{before}{gap if before else ''}{block}{gap if after else ''}{after}")
    if gap == " ":
        assert stored == f"{before}{gap if before else ''}{gap if after else ''}{after}"
    else:
        assert stored == gap.join(text for text in (before, after) if text)


@pytest.mark.parametrize(
    "text",
    [
        "You help.",
        f"{OPENING}\n{INNER_OPENING}\n- a\n{INNER_CLOSING}\n",
        f"{OPENING}\n{INNER_OPENING}\n- a\n{CLOSING}",
        f"{OPENING}\n- a\n{INNER_CLOSING}\n{CLOSING}",
        f"{OPENING}\n- a\n{INNER_OPENING}\n- a\n{INNER_CLOSING}\n{CLOSING}",
        f"{INNER_OPENING}\n- a\n{INNER_CLOSING}\n{CLOSING}",
        f"{CLOSING}\n{INNER_CLOSING}\n{INNER_OPENING}\n{OPENING}",
        BLOCK[:-1],
        BLOCK[1:],
        BLOCK.lower(),
        BLOCK.replace("<", "&lt;"),
        "",
    ],
)
def test_what_is_no_complete_block_is_stored_as_it_came(text: str) -> None:
    message = system(text)
    assert without_memory(message) is message


class TestMessages:
    @pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT, Role.TOOL])
    def test_other_roles_are_stored_as_they_come(self, role: Role) -> None:
        message = spoken(role, Text(BLOCK))
        assert without_memory(message) is message

    @pytest.mark.parametrize("message", [spoken(Role.SYSTEM), spoken(Role.SYSTEM, absent=True)])
    def test_a_message_without_content_is_stored_as_it_came(self, message: IncomingMessage) -> None:
        assert without_memory(message) is message

    def test_parts_that_are_no_text_are_untouched(self) -> None:
        others: list[Part] = [
            Refusal(BLOCK),
            Data(msgspec.json.encode(BLOCK).decode()),
            Media("text/plain", data=BLOCK.encode()),
            Reasoning(BLOCK, "signature"),
            ToolResult("call", parts=(Text(BLOCK),)),
        ]
        untouched = spoken(Role.SYSTEM, *others, Text("You help."))
        assert without_memory(untouched) is untouched
        message = without_memory(spoken(Role.SYSTEM, Text(f"a\n\n{BLOCK}"), *others, Text(BLOCK), Text("b")))
        assert message.parts == (Text("a"), *others, Text(""), Text("b"))
        assert message.memory_removed

    def test_a_block_does_not_reach_over_two_parts(self) -> None:
        half = len(BLOCK) // 2
        message = spoken(Role.SYSTEM, Text(BLOCK[:half]), Text(BLOCK[half:]))
        assert without_memory(message) is message

    def test_the_size_follows_in_bytes(self) -> None:
        block = block_of("- 日本語 🧠 é")
        message = system(f"Über\n\n{block}\n\nende")
        stored = without_memory(message)
        assert message.size - stored.size == len(f"{block}\n\n".encode())
        assert msgspec.structs.replace(stored, parts=message.parts, size=message.size, memory_removed=False) == message


class TestAppends:
    """What the history, its tokens and replays make of it."""

    async def test_the_history_holds_no_memory_and_counts_the_tokens_of_what_it_holds(self) -> None:
        runtime = runtime_on(InMemoryStore())
        sent = [
            system(f"You help.\n\n{BLOCK}\n\nBe brief.", id="a"),
            user(BLOCK, id="b"),
            assistant(BLOCK, id="c"),
            developer("Go on.", id="d"),
            spoken(Role.DEVELOPER, Text(block_of(style=Style.OPENHANDS)), id="e"),
        ]
        answers = await histories.append(runtime, Append(KEY, sent))
        assert [answer.memory_removed for answer in answers] == [True, False, False, False, True]
        stored = (await histories.list_messages(runtime, histories.MessageList(KEY)))[0]
        assert [decode_parts(message.content or "") for message in stored] == [
            (Text("You help.\n\nBe brief."),),
            (Text(BLOCK),),
            (Text(BLOCK),),
            (Text("Go on."),),
            (Text(""),),
        ]
        count = tokens.counter(tokens.ESTIMATE)
        assert answers[0].tokens == tokens.message_tokens(count, None, (Text("You help.\n\nBe brief."),))
        assert answers[4].tokens == tokens.message_tokens(count, None, (Text(""),))

    async def test_a_tool_message_keeps_it(self) -> None:
        """Nothing that a tool says is an instruction, and a transcript may quote a prompt."""
        session = Conversation()
        await session.append(results("call", text=BLOCK))
        (stored,) = await session.stored()
        assert decode_parts(stored.content or "") == (ToolResult("call", "tool", parts=(Text(BLOCK),)),)

    @pytest.mark.parametrize("request_id", ["", "request"])
    async def test_a_replay_gets_the_first_answer(self, request_id: str) -> None:
        """(invariant 2) It is the message as received that is told from others."""
        runtime = runtime_on(InMemoryStore())
        sent = Append(KEY, [system(f"You help.\n\n{BLOCK}", id="a"), user("hello", id="b")], request_id)
        first = await histories.append(runtime, sent)
        assert [answer.memory_removed for answer in first] == [True, False]
        assert list(await histories.append(runtime, sent)) == list(first)
        for other in ("You help.", f"You help.\n\n{block_of('- other')}"):
            with pytest.raises(RequestError) as refused:
                await histories.append(runtime, Append(KEY, [system(other, id="a"), user("hello", id="b")], request_id))
            assert refused.value.reason in {Reason.MESSAGE_ID_CONFLICT, Reason.REQUEST_ID_CONFLICT}
        assert len((await histories.list_messages(runtime, histories.MessageList(KEY)))[0]) == 2


SHAPES: dict[str, Callable[[int], str]] = {
    "closings": lambda size: CLOSING * (size // len(CLOSING)),
    "openings": lambda size: (OPENING + INNER_OPENING) * (size // 35) + INNER_CLOSING + CLOSING,
    "openings apart": lambda size: f"{OPENING}\n\n" * (size // 18) + CLOSING,
    "inner closings": lambda size: OPENING + INNER_OPENING + INNER_CLOSING * (size // 20) + CLOSING,
    "opened closings": lambda size: (OPENING + INNER_OPENING + CLOSING) * (size // 52),
    "blocks": lambda size: f"{BLOCK}\n\n" * (size // len(BLOCK)),
    "small blocks": lambda size: (OPENING + INNER_OPENING + INNER_CLOSING + CLOSING + "\n") * (size // 75),
    "line ends": lambda size: OPENING + "\n" * size + CLOSING + "\n" * size + BLOCK,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_is_linear(shape: str) -> None:
    """Four times the text takes about four times as long, and not sixteen times."""
    whole, quarter = (SHAPES[shape](size) for size in (limits.MAX_MESSAGE_BYTES, limits.MAX_MESSAGE_BYTES // 4))
    assert min(_seconds(whole) for _ in range(3)) < 10 * min(_seconds(quarter) for _ in range(3)) + 0.005


def _seconds(text: str) -> float:
    message = system(text)
    before = time.process_time()
    without_memory(message)
    return time.process_time() - before
