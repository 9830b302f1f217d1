"""What the options of a window do, one by one (invariants 6 to 8)."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from tests.service.wire import Stubs, calls, new_key, refused, results, seqs, text

TOKENS = policies.WINDOW_MODE_TOKENS
ESTIMATE = history.SessionSettings(tokenizer=session.TOKENIZER_ESTIMATE)
MESSAGE_TOKENS = 4


def say(tokens: int, role: pb.Role.ValueType = pb.ROLE_USER, letter: str = "x") -> pb.Message:
    """A message that has so many tokens in a session that estimates: four letters a token, and four for the message."""
    return text(letter * 4 * (tokens - MESSAGE_TOKENS), role)


class TestPins:
    def test_stay_in_every_window(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(
            key, text("rules", pb.ROLE_SYSTEM), text("more", pb.ROLE_DEVELOPER), *(text(".") for _ in range(8))
        )

        assert seqs(stubs.load(key, limit=4).messages) == [1, 2, 9, 10]
        assert stubs.load(key, limit=4).stats.pinned_message_count == 2
        assert stubs.load(key, limit=4).stats.first_seq == 9

    def test_take_at_most_half_the_limit(self, stubs: Stubs, agent: str) -> None:
        """The rest of them are ordinary messages (invariant 7)."""
        key = new_key(agent)
        stubs.append(
            key, text("rules", pb.ROLE_SYSTEM), text("more", pb.ROLE_DEVELOPER), *(text(".") for _ in range(8))
        )

        assert seqs(stubs.load(key, limit=3).messages) == [1, 9, 10]
        assert seqs(stubs.load(key, limit=1).messages) == [10]
        assert seqs(stubs.load(key, limit=9).messages) == [1, 2, 4, 5, 6, 7, 8, 9, 10]

    def test_take_at_most_half_the_tokens(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, say(10, pb.ROLE_SYSTEM), say(10, pb.ROLE_SYSTEM), say(10), say(10), say(10), create=ESTIMATE)

        assert seqs(stubs.load(key, mode=TOKENS, limit=20).messages) == [1, 5]
        assert seqs(stubs.load(key, mode=TOKENS, limit=19).messages) == [5]
        assert seqs(stubs.load(key, mode=TOKENS, limit=40).messages) == [1, 2, 4, 5]
        assert seqs(stubs.load(key, mode=TOKENS, limit=39).messages) == [1, 4, 5]

    def test_are_only_what_opens_the_history(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("Hi!"), text("rules", pb.ROLE_SYSTEM), text("one"), text("two"))

        assert seqs(stubs.load(key, limit=2).messages) == [3, 4]
        assert stubs.load(key, limit=2).stats.pinned_message_count == 0

    def test_open_anew_after_a_clear(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("old rules", pb.ROLE_SYSTEM), text("Hi!"))
        stubs.clear(key)
        stubs.append(key, text("new rules", pb.ROLE_SYSTEM), text("one"), text("two"))

        assert seqs(stubs.load(key, limit=2).messages) == [3, 5]

    def test_can_be_left_out(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("rules", pb.ROLE_SYSTEM), text("one"), text("two"))

        assert seqs(stubs.load(key, limit=2, pin_system=False).messages) == [2, 3]
        assert seqs(stubs.load(key, limit=3, pin_system=False).messages) == [1, 2, 3]
        assert stubs.load(key, limit=3, pin_system=False).stats.pinned_message_count == 0

    def test_alone_are_a_window(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("rules", pb.ROLE_SYSTEM))

        assert seqs(stubs.load(key, limit=1).messages) == [1]
        assert seqs(stubs.load(key, limit=2).messages) == [1]


class TestStartWithUser:
    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        """1 user, 2 model, 3 user, 4 calls, 5 result, 6 model, 7 model."""
        key = new_key(agent)
        stubs.append(key, text("first"), text("yes", pb.ROLE_ASSISTANT), text("second"), calls("a"), results("a"))
        stubs.append(key, text("found", pb.ROLE_ASSISTANT), text("really", pb.ROLE_ASSISTANT))
        return key

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            (1, [7]),  # no room: the limit wins
            (2, [3, 7]),
            (3, [3, 6, 7]),
            (4, [3, 6, 7]),  # the group makes room for the user
            (5, [3, 4, 5, 6, 7]),
            (6, [3, 4, 5, 6, 7]),  # begins with a user message by itself once 2 has made room
            (7, [1, 2, 3, 4, 5, 6, 7]),
        ],
    )
    def test_puts_the_newest_user_message_in_front(
        self, stubs: Stubs, key: session.SessionKey, limit: int, expected: list[int]
    ) -> None:
        found = stubs.load(key, limit=limit, start_with_user=True)

        assert seqs(found.messages) == expected
        assert found.stats.left_out.limit_count == 7 - len(expected)

    def test_follows_the_pins(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("rules", pb.ROLE_SYSTEM), text("go"), *(text(".", pb.ROLE_ASSISTANT) for _ in range(5)))

        assert seqs(stubs.load(key, limit=4, start_with_user=True).messages) == [1, 2, 6, 7]

    def test_adds_nothing_without_a_user(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, *(text(".", pb.ROLE_ASSISTANT) for _ in range(5)))

        assert seqs(stubs.load(key, limit=3, start_with_user=True).messages) == [3, 4, 5]

    def test_finds_a_user_far_back(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("go"))
        for _ in range(4):
            stubs.append(key, *(text(".", pb.ROLE_ASSISTANT) for _ in range(250)))

        assert seqs(stubs.load(key, limit=3, start_with_user=True).messages) == [1, 1000, 1001]


class TestOpenCalls:
    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        """1 user, 2 calls a b, 3 result b, 4 user, 5 calls c."""
        key = new_key(agent)
        stubs.append(key, text("go"), calls("a", "b"), results("b"), text("stop"), calls("c"))
        return key

    def test_are_omitted_by_default_and_do_not_end_the_window(self, stubs: Stubs, key: session.SessionKey) -> None:
        for found in (stubs.load(key), stubs.load(key, open_calls=policies.OPEN_CALLS_OMIT)):
            assert seqs(found.messages) == [1, 4]
            assert found.stats.left_out.open_tool_call_count == 3
            assert found.stats.left_out.limit_count == found.stats.uncovered_message_count == 0
        assert seqs(stubs.load(key, limit=2).messages) == [1, 4]

    def test_get_marked_results(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.load(key, open_calls=policies.OPEN_CALLS_SYNTHESIZE)

        assert seqs(found.messages) == [1, 2, 0, 3, 4, 5, 0]
        for place, call_id in ((2, "a"), (6, "c")):
            message = found.messages[place]
            (part,) = message.content.parts
            assert message.role == pb.ROLE_TOOL
            assert not message.id
            assert message.metadata == '{"type":"interrupted_result"}'
            assert (part.tool_result.call_id, part.tool_result.name) == (call_id, "search")
            assert part.tool_result.is_error
            assert "interrupted" in part.tool_result.parts[0].text
            assert message.token_count > 0
        assert found.stats.left_out.open_tool_call_count == 0
        assert found.stats.window_message_count == 7
        assert seqs(stubs.load(key, open_calls=policies.OPEN_CALLS_SYNTHESIZE, limit=5).messages) == [4, 5, 0]

    def test_are_kept_for_those_who_answer_them(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.load(key, open_calls=policies.OPEN_CALLS_KEEP)

        assert seqs(found.messages) == [1, 2, 3, 4, 5]
        assert seqs(stubs.load(key, open_calls=policies.OPEN_CALLS_KEEP, limit=3).messages) == [4, 5]

    def test_show_their_group_once_they_are_answered(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.append(key, results("c"))
        assert seqs(stubs.load(key).messages) == [1, 4, 5, 6]
        stubs.append(key, results("a"))
        assert seqs(stubs.load(key).messages) == [1, 2, 7, 3, 4, 5, 6]
        assert stubs.load(key).stats.left_out.open_tool_call_count == 0


class TestOversize:
    """The newest group alone exceeds the limit (invariant 7)."""

    @pytest.fixture
    def key(self, stubs: Stubs, agent: str) -> session.SessionKey:
        key = new_key(agent)
        stubs.append(key, say(10, pb.ROLE_SYSTEM), say(10), calls("a"), create=ESTIMATE)
        stubs.append(key, results("a", said="begin " + "x" * 4_000 + " end"))
        return key

    def test_shortens_by_default(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.load(key, mode=TOKENS, limit=100)

        assert seqs(found.messages) == [1, 3, 4]
        assert list(found.stats.shortened_seqs) == [4]
        assert found.stats.window_token_count == sum(message.token_count for message in found.messages) <= 100
        assert not found.stats.over_limit
        (part,) = found.messages[-1].content.parts
        said = part.tool_result.parts[0].text
        assert said.startswith("begin ")
        assert said.endswith(" end")
        assert "read message seq 4 in full" in said

    def test_returns_it_whole(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.load(key, mode=TOKENS, limit=100, oversize=policies.OVERSIZE_RETURN)

        assert seqs(found.messages) == [1, 3, 4]
        assert list(found.messages) == [stubs.messages(key)[place] for place in (0, 2, 3)]
        assert found.stats.over_limit
        assert found.stats.limit_used_percent > 100
        assert not found.stats.shortened_seqs

    def test_fails_when_asked_to(self, stubs: Stubs, key: session.SessionKey) -> None:
        refusal = refused(lambda: stubs.load(key, mode=TOKENS, limit=100, oversize=policies.OVERSIZE_FAIL))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WINDOW_TOO_SMALL")
        assert refusal.metadata["limit"] == "100"
        needed = int(refusal.metadata["needed"])
        assert seqs(stubs.load(key, mode=TOKENS, limit=needed, oversize=policies.OVERSIZE_FAIL).messages) == [1, 3, 4]
        again = refused(lambda: stubs.load(key, mode=TOKENS, limit=needed - 1, oversize=policies.OVERSIZE_FAIL))
        assert again.metadata["needed"] == f"{needed}"

    def test_returns_whole_what_shortening_cannot_fit(self, stubs: Stubs, key: session.SessionKey) -> None:
        found = stubs.load(key, mode=TOKENS, limit=10)

        assert seqs(found.messages) == [3, 4]
        assert found.stats.over_limit
        assert not found.stats.shortened_seqs

    @pytest.mark.parametrize("oversize", [None, policies.OVERSIZE_FAIL, policies.OVERSIZE_RETURN])
    def test_returns_it_whole_when_messages_are_counted(
        self, stubs: Stubs, key: session.SessionKey, oversize: policies.Oversize.ValueType | None
    ) -> None:
        found = stubs.load(key, limit=1, oversize=oversize)

        assert seqs(found.messages) == [3, 4]
        assert found.stats.over_limit
        assert found.stats.limit_used_percent == 200

    def test_stored_texts_stay_as_they_are(self, stubs: Stubs, key: session.SessionKey) -> None:
        before = stubs.messages(key)
        stubs.load(key, mode=TOKENS, limit=100)
        assert stubs.messages(key) == before


class TestExplain:
    def test_lists_what_was_left_out_newest_first(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, results("stray"), text("go"), calls("a", "b"), results("a"), results("stray"), text("on"))
        found = stubs.load(key, explain=True)

        assert [(entry.seq, entry.reason) for entry in found.stats.left_out.messages] == [
            (5, window.LEFT_OUT_REASON_ORPHAN_RESULT),
            (4, window.LEFT_OUT_REASON_OPEN_TOOL_CALL),
            (3, window.LEFT_OUT_REASON_OPEN_TOOL_CALL),
            (1, window.LEFT_OUT_REASON_ORPHAN_RESULT),
        ]
        assert not stubs.load(key).stats.left_out.messages

    def test_leaves_out_of_the_list_what_is_shown(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, results("stray"), text("go"), calls("a"))
        found = stubs.load(key, explain=True, open_calls=policies.OPEN_CALLS_KEEP)

        assert [entry.seq for entry in found.stats.left_out.messages] == [1]

    def test_lists_a_hundred_at_most(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("go"), *(results("stray") for _ in range(150)))
        found = stubs.load(key, explain=True)

        assert [entry.seq for entry in found.stats.left_out.messages] == list(range(151, 51, -1))
        assert found.stats.left_out.orphan_result_count == 150

    def test_is_the_same_in_a_stream(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("go"), results("stray"), calls("a"))
        assert stubs.stream(key, explain=True)[-1].stats == stubs.load(key, explain=True).stats


class TestStreams:
    @pytest.mark.parametrize(
        "options",
        [{}, {"limit": 1}, {"limit": 4, "start_with_user": True}, {"mode": TOKENS, "limit": 50}, {"pin_system": False}],
    )
    def test_equal_the_loaded_window(self, stubs: Stubs, agent: str, options: dict[str, Any]) -> None:
        key = new_key(agent)
        stubs.append(key, text("rules", pb.ROLE_SYSTEM), text("go"), calls("a"), results("a", said="x" * 500))
        stubs.append(key, text("done", pb.ROLE_ASSISTANT), text("thanks"), calls("b"), results("b", said="y" * 5_000))
        loaded = stubs.load(key, **options)
        pieces = stubs.stream(key, **options)

        assert [message for piece in pieces for message in piece.messages] == list(loaded.messages)
        assert [piece.HasField("stats") for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert pieces[-1].stats == loaded.stats

    def test_of_an_empty_history_hold_the_stats_alone(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("go"))
        stubs.clear(key)
        (piece,) = stubs.stream(key)

        assert not piece.messages
        assert piece.stats == stubs.load(key).stats
        assert piece.stats.history_message_count == 0


class TestDefaults:
    def test_are_ten_thousand_messages_without_summary(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("one"))
        stats = stubs.load(key).stats

        assert (stats.mode, stats.limit) == (policies.WINDOW_MODE_MESSAGES, 10_000)
        assert stats.summary_state == window.SUMMARY_STATE_NONE

    def test_come_from_the_session_then_the_agent_then_the_server(self, stubs: Stubs, agent: str) -> None:
        """Field by field (design section 3), and a request changes nothing that is stored."""
        key = new_key(agent)
        of_session = policies.Policy(window=policies.WindowOptions(limit=2))
        stubs.append(
            key,
            text("rules", pb.ROLE_SYSTEM),
            calls("a"),
            *(text(".", pb.ROLE_ASSISTANT) for _ in range(4)),
            create=history.SessionSettings(policy=of_session),
        )
        of_agent = policies.Policy(window=policies.WindowOptions(limit=5, pin_system=False))
        stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=agents.Agent(agent=agent, policy=of_agent)))

        assert seqs(stubs.load(key).messages) == [5, 6]
        assert seqs(stubs.load(key, pin_system=True).messages) == [1, 6]
        assert seqs(stubs.load(key, limit=3).messages) == [4, 5, 6]
        assert stubs.session(key).policy == of_session
        assert seqs(stubs.load(key).messages) == [5, 6]


class TestTokens:
    """Token counts are exact, additive, and of the session's vocabulary (invariant 8)."""

    @pytest.mark.parametrize(
        ("tokenizer", "said", "tokens"),
        [
            (session.TOKENIZER_O200K_BASE, "hello world", 2),
            (session.TOKENIZER_CL100K_BASE, "hello world", 2),
            # Plain text, not the marker, which would be one token.
            (session.TOKENIZER_CL100K_BASE, "<|endoftext|>", 7),
            (session.TOKENIZER_ESTIMATE, "hello world", 3),
            (session.TOKENIZER_ESTIMATE, "你好", 2),
            (session.TOKENIZER_O200K_BASE, "", 0),
        ],
    )
    def test_of_a_text(
        self, stubs: Stubs, agent: str, tokenizer: session.Tokenizer.ValueType, said: str, tokens: int
    ) -> None:
        settings = history.SessionSettings(tokenizer=tokenizer)
        (appended,) = stubs.append(new_key(agent), text(said), create=settings)

        assert appended.token_count == MESSAGE_TOKENS + tokens

    def test_cover_names_ids_and_arguments_and_price_media(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        image = pb.Part(media=pb.Media(type="image/png", data=b"\0" * 100_000))
        call = pb.Part(tool_call=pb.ToolCall(id="i" * 4, name="n" * 8, arguments="a" * 12))
        result = pb.Part(
            tool_result=pb.ToolResult(call_id="i" * 4, name="n" * 8, parts=[pb.Part(text="t" * 16), image])
        )
        thinking = pb.Part(reasoning=pb.Reasoning(text="r" * 20, signature="s" * 4_000))
        appended = stubs.append(
            key,
            text("t" * 4, name="n" * 4, metadata='{"not": "counted"}', extra='{"not": "counted"}'),
            pb.Message(role=pb.ROLE_ASSISTANT, content=pb.Content(parts=[thinking, pb.Part(text="t" * 4), call])),
            pb.Message(role=pb.ROLE_TOOL, content=pb.Content(parts=[result])),
            pb.Message(role=pb.ROLE_USER, content=pb.Content(parts=[pb.Part(data="d" * 8), pb.Part(refusal="r" * 4)])),
            pb.Message(role=pb.ROLE_ASSISTANT),
            create=ESTIMATE,
        )

        media = appended[2].token_count - (MESSAGE_TOKENS + 1 + 2 + 4)
        assert [message.token_count for message in appended] == [
            MESSAGE_TOKENS + 1 + 1,
            MESSAGE_TOKENS + 5 + 1 + 1 + 2 + 3,
            MESSAGE_TOKENS + 1 + 2 + 4 + media,
            MESSAGE_TOKENS + 2 + 1,
            MESSAGE_TOKENS,
        ]
        assert 0 < media < 5_000
        stats = stubs.load(key).stats
        assert stats.window_token_count == stats.history_token_count == sum(m.token_count for m in appended)
