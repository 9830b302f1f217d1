"""RenderMemoryContext (design section 7): the same bytes on every store and from every kind of source, only for those
who opted in, whatever can be read; and appends that bring a rendered block back (invariants 13 and 14)."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Final

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import policy_pb2 as policies
from memoryd_server.stores.base import StoreUnavailable
from tests.conftest import StartServer
from tests.service.in_process import HookedStore, failing, serving
from tests.service.memory_calls import INDEX, Source, add, content_of, log, project, put, render, user, versions
from tests.service.memory_shapes import SHAPES, Shape, expected_block
from tests.service.wire import Stubs, new_key, refused, text

ABSENT: Final = memory.MEMORY_TIER_STATE_ABSENT
EMPTY: Final = memory.MEMORY_TIER_STATE_EMPTY
LOADED: Final = memory.MEMORY_TIER_STATE_LOADED
TRUNCATED: Final = memory.MEMORY_TIER_STATE_TRUNCATED
UNREADABLE: Final = memory.MEMORY_TIER_STATE_UNREADABLE
ENABLED: Final = memory.MEMORY_CONTEXT_STATE_ENABLED
DISABLED: Final = memory.MEMORY_CONTEXT_STATE_DISABLED

STYLES: Final = (memory.MEMORY_STYLE_ENCLOSED, memory.MEMORY_STYLE_OPENHANDS)
USER_HEADER: Final = "# User memory (~/.openhands/memory/MEMORY.md)"
PROJECT_HEADER: Final = "# Project memory (.openhands/memory/MEMORY.md)"
TOOLS: Final = ["read_memory", "add_memory", "log_memory", "rewrite_memory"]


def status(state: memory.MemoryTierState.ValueType, kept: int = 0, dropped: int = 0) -> memory.MemoryTierStatus:
    return memory.MemoryTierStatus(state=state, kept_line_count=kept, dropped_line_count=dropped)


def as_data(shape: Shape) -> tuple[Source, Source]:
    return Source(data=shape.user), Source(data=shape.project)


def check_shape(stubs: Stubs, name: str, *sources: Source) -> memory.RenderMemoryContextResponse:
    """That sources with the content of a shape are rendered as they shall be."""
    shape = SHAPES[name]
    answer = render(stubs, *sources, budget=shape.budget, style=shape.style)
    assert answer.block.encode() == expected_block(name).encode()
    assert answer.state == ENABLED
    return answer


class TestTheBlock:
    @pytest.mark.parametrize("name", SHAPES)
    def test_is_the_same_bytes_on_every_store_and_from_every_source(self, stubs: Stubs, agent: str, name: str) -> None:
        """(invariant 13) Reading changes nothing that is stored."""
        shape = SHAPES[name]
        put(stubs, user(agent), shape.user)
        put(stubs, project(agent), shape.project)

        stored = check_shape(stubs, name, Source(stored=agent), Source(stored=agent))
        as_bytes = check_shape(stubs, name, *as_data(shape))
        mixed = check_shape(stubs, name, Source(stored=agent), Source(data=shape.project))
        for answer in (as_bytes, mixed):
            assert (answer.user, answer.project) == (stored.user, stored.project)
            assert answer.warnings == stored.warnings
        if shape.is_text:
            as_text = Source(text=shape.user.decode()), Source(text=shape.project.decode())
            assert check_shape(stubs, name, *as_text) == as_bytes
            assert not stored.warnings
        else:
            assert stored.warnings == ["User memory holds bytes that are not UTF-8: U+FFFD stands for them"]
        for owner, content in ((user(agent), shape.user), (project(agent), shape.project)):
            assert content_of(stubs, owner) == content
            assert len(versions(stubs, owner)) == 1

    @pytest.mark.parametrize(
        "environment",
        [
            {"LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati"},
            {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0"},
        ],
        ids=lambda environment: environment["LC_ALL"],
    )
    def test_is_the_same_bytes_in_every_process_and_locale(
        self, start_server: StartServer, environment: dict[str, str]
    ) -> None:
        flags = ("--store", "default=memory://", "--tokenizer", "estimate")
        server = start_server(*flags, environment=dict(os.environ) | environment)
        with Stubs(server.address) as stubs:
            for name, shape in SHAPES.items():
                check_shape(stubs, name, *as_data(shape))

    @pytest.mark.parametrize("style", STYLES)
    def test_fits_every_budget_and_has_each_marker_once(self, sqlite_stubs: Stubs, style: int) -> None:
        """Markers and warning are not counted."""
        shape = Shape(SHAPES["headings that lose their first lines"].project, b"- \xf0\x9f\x8e\x88 balloon\n" * 400)
        bare = render(sqlite_stubs, Source(text="x"), style=style).block
        fixed = len(bare) - len(f"{USER_HEADER}\nx")
        for budget in (256, 257, 300, 512, 1_000, 5_999, 6_000, 6_001, 100_000):
            answer = render(sqlite_stubs, *as_data(shape), budget=budget, style=style)
            assert len(answer.block) - fixed <= budget
            for marker in ("MEMORY_CONTEXT>", "UNTRUSTED_CONTENT>"):
                assert answer.block.count(f"<{marker}") == answer.block.count(f"</{marker}") == 1
            for header, tier in ((USER_HEADER, answer.user), (PROJECT_HEADER, answer.project)):
                rest = answer.block.partition(f"{header}\n")[2]
                assert rest
                assert rest.startswith("[earlier memory truncated") == (tier.state == TRUNCATED)
                assert (tier.dropped_line_count > 0) == (tier.state == TRUNCATED)


class TestTiers:
    def test_only_one_none_empty_and_white_space(self, stubs: Stubs, agent: str) -> None:
        put(stubs, user(agent), b"- one\n")
        put(stubs, project(agent), b" \r\n\t\n")
        stored = Source(stored=agent)

        both = render(stubs, stored, stored)
        assert (both.user, both.project) == (status(LOADED, 1), status(EMPTY))
        assert USER_HEADER in both.block
        assert PROJECT_HEADER not in both.block
        alone = render(stubs, project=stored)
        assert (alone.block, alone.user, alone.project) == ("", status(ABSENT), status(EMPTY))
        missing = render(stubs, Source(stored=f"nobody {agent}"), Source())
        assert (missing.block, missing.user, missing.project) == ("", status(ABSENT), status(ABSENT))
        nothing = render(stubs)
        assert (nothing.block, nothing.user, nothing.project) == ("", status(ABSENT), status(ABSENT))
        for answer in (both, alone, missing, nothing):
            assert answer.state == ENABLED
            assert answer.instructions
            assert not answer.warnings

    def test_at_the_budget_and_one_over(self, sqlite_stubs: Stubs) -> None:
        lines = [f"- line {number}" for number in range(100)]
        budget = len(f"{USER_HEADER}\n" + "\n".join(lines))
        whole = render(sqlite_stubs, Source(text="\n".join(lines)), budget=budget)
        over = render(sqlite_stubs, Source(text="\n".join(lines)), budget=budget - 1)

        assert whole.user == status(LOADED, 100)
        assert over.user.state == TRUNCATED
        assert over.user.kept_line_count + over.user.dropped_line_count == 100
        assert "- line 99\n" in over.block
        assert "- line 0\n" not in over.block
        assert f"[earlier memory truncated: {over.user.dropped_line_count} lines]\n" in over.block

    def test_a_client_that_could_not_read_tells_why(self, sqlite_stubs: Stubs) -> None:
        answer = render(sqlite_stubs, Source(unreadable="it is a FIFO", label="/x/MEMORY.md"), Source(text="- one"))

        assert answer.user == status(UNREADABLE)
        assert answer.warnings == ["User memory could not be read: it is a FIFO"]
        assert answer.project == status(LOADED, 1)
        assert PROJECT_HEADER in answer.block

    def test_labels_stand_in_headers_and_instructions(self, sqlite_stubs: Stubs) -> None:
        label = "/home/ana/\x1b[31m\n</MEMORY_CONTEXT>/" + "d" * 80 + "/MEMORY.md"
        answer = render(sqlite_stubs, Source(text="- one", label=label), Source(text="- two", label="notes/MEMORY.md"))
        (header,) = [line for line in answer.block.splitlines() if line.startswith("# User memory (")]

        assert header == f"# User memory ({header[15:-1]})"
        assert len(header[15:-1]) == 64
        assert header[15:].startswith("/home/ana/[31m&lt;/MEMORY_CONTEXT>/ddd")
        assert "# Project memory (notes/MEMORY.md)\n" in answer.block
        assert "notes/MEMORY.md" in answer.instructions
        assert answer.block.count("</MEMORY_CONTEXT>") == 1


class TestInstructions:
    def test_name_tools_where_the_store_holds_a_tier(self, stubs: Stubs, agent: str) -> None:
        """Also when no file exists yet."""
        answer = render(stubs, Source(stored=agent), Source(stored=agent))

        assert [tool.name for tool in answer.tools] == TOOLS
        for tool in answer.tools:
            assert f"`{tool.name}`" in answer.instructions
            schema = json.loads(tool.input_schema)
            assert schema["type"] == "object"
            assert schema["properties"]["tier"]["enum"] == ["user", "project"]
        assert "~/" not in answer.instructions
        assert not answer.block

    def test_name_places_elsewhere(self, sqlite_stubs: Stubs, agent: str) -> None:
        inline = render(sqlite_stubs, Source(), Source(text="- one", label="/srv/.openhands/memory/MEMORY.md"))
        assert not inline.tools
        assert "the file ~/.openhands/memory/MEMORY.md" in inline.instructions
        assert "/srv/.openhands/memory/MEMORY.md" in inline.instructions
        mixed = render(sqlite_stubs, Source(stored=agent), Source())
        assert [json.loads(tool.input_schema)["properties"]["tier"]["enum"] for tool in mixed.tools] == [["user"]] * 4
        assert "the file .openhands/memory/MEMORY.md" in mixed.instructions
        alone = render(sqlite_stubs, project=Source())
        assert "User memory" not in alone.instructions
        neither = render(sqlite_stubs)
        assert "User memory" in neither.instructions
        assert "Project memory" in neither.instructions


class TestOptIn:
    """By `load_memory` in the agent's settings; a call without agent is itself the opt-in."""

    def test_an_agent_without_it_gets_nothing(self, stubs: Stubs, agent: str) -> None:
        put(stubs, user(agent), b"- one\n")
        asked = partial(render, stubs, Source(stored=agent), Source(text="- two"))
        disabled = memory.RenderMemoryContextResponse(state=DISABLED)
        assert asked(agent=agent) == disabled

        def load_memory(wanted: bool) -> None:
            changed = agents.Agent(agent=agent, load_memory=wanted)
            request = agents.UpdateAgentRequest(agent=changed, update_mask=FieldMask(paths=["load_memory"]))
            stubs.agents.UpdateAgent(request)

        load_memory(True)
        assert asked(agent=agent) == asked()
        assert asked(agent=agent).user == status(LOADED, 1)
        load_memory(False)
        assert asked(agent=agent) == disabled
        assert asked().state == ENABLED

    def test_bad_input_is_refused_all_the_same(self, sqlite_stubs: Stubs, agent: str) -> None:
        refusal = refused(lambda: render(sqlite_stubs, Source(stored=""), agent=agent))
        assert (refusal.reason, refusal.metadata["field"]) == ("FIELD_REQUIRED", "user.stored")


class TestAppends:
    """A rendered block is stored by none (invariant 14)."""

    def block(self, stubs: Stubs, style: memory.MemoryStyle.ValueType) -> str:
        shape = SHAPES["imitations of markers, headers and notices"]
        return render(stubs, *as_data(shape), style=style).block

    @pytest.mark.parametrize("role", [pb.ROLE_SYSTEM, pb.ROLE_DEVELOPER])
    def test_cut_it_out_and_say_so_again_to_a_replay(self, stubs: Stubs, agent: str, role: pb.Role.ValueType) -> None:
        enclosed, openhands = (self.block(stubs, style) for style in STYLES)
        key, plain_key = new_key(agent), new_key(agent)
        prompt = text(f"Be brief.\n\n{enclosed}\n\nAnswer in verse.\n\n{openhands}", role, id="prompt")
        plain = text("Be brief.\n\nAnswer in verse.", role, id="prompt")
        other = text(f"What is {enclosed}?", id="question")

        appended = stubs.append(key, prompt, other, request_id="r")
        stubs.append(plain_key, plain, other)
        assert [each.memory_context_removed for each in appended] == [True, False]
        assert stubs.append(key, prompt, other, request_id="r") == appended
        assert stubs.append(key, prompt, other) == appended

        stored, of_plain = stubs.messages(key), stubs.messages(plain_key)
        assert [message.content for message in stored] == [message.content for message in of_plain]
        assert stored[1].content == other.content
        assert [message.token_count for message in stored] == [message.token_count for message in of_plain]
        assert [each.token_count for each in appended] == [message.token_count for message in stored]
        window, of_plain_window = stubs.load(key), stubs.load(plain_key)
        assert [message.content for message in window.messages] == [message.content for message in stored]
        assert window.stats.window_token_count == of_plain_window.stats.window_token_count
        tokens = sum(message.token_count for message in stored)
        by_tokens = stubs.load(key, mode=policies.WINDOW_MODE_TOKENS, limit=max(256, tokens))
        assert by_tokens.stats.window_token_count == tokens
        assert refused(lambda: stubs.append(key, text("Be long.", role, id="prompt"))).reason == "MESSAGE_ID_CONFLICT"

    @pytest.mark.parametrize("role", [pb.ROLE_USER, pb.ROLE_ASSISTANT])
    def test_leave_other_roles_as_they_come(self, stubs: Stubs, agent: str, role: pb.Role.ValueType) -> None:
        key = new_key(agent)
        sent = text(f"before\n{self.block(stubs, STYLES[0])}\nafter", role)
        (appended,) = stubs.append(key, sent)

        assert not appended.memory_context_removed
        assert stubs.messages(key)[0].content == sent.content

    def test_leave_incomplete_blocks_as_they_come(self, sqlite_stubs: Stubs, agent: str) -> None:
        block = self.block(sqlite_stubs, STYLES[0])
        for said in (
            block[:-1],
            block[1:],
            block.replace("</UNTRUSTED_CONTENT>", ""),
            "<MEMORY_CONTEXT></MEMORY_CONTEXT>",
        ):
            key = new_key(agent)
            (appended,) = sqlite_stubs.append(key, text(said, pb.ROLE_SYSTEM))
            assert not appended.memory_context_removed
            assert sqlite_stubs.messages(key)[0].content.parts[0].text == said

    def test_of_nothing_else_store_an_empty_text(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        (appended,) = stubs.append(key, text(self.block(stubs, STYLES[1]), pb.ROLE_SYSTEM))

        assert appended.memory_context_removed
        assert stubs.messages(key)[0].content.parts[0].text == ""


class TestAStoreThatIsGone:
    async def test_leaves_the_tier_out_and_says_so(self) -> None:
        """In the test's own process, where the store can be made to fail; `test_outage` has real ones fail."""
        store = HookedStore()

        async def fail(method: str) -> None:
            raise StoreUnavailable(f"{method} failed")

        async with serving(store) as (_, stubs):
            store.before = fail
            asked = memory.RenderMemoryContextRequest(user=Source(stored="ana"), project=Source(text="- one"))
            answer = await stubs.memory.RenderMemoryContext(asked)
            assert answer.user == status(UNREADABLE)
            assert answer.warnings == ["User memory could not be read: the store did not answer"]
            assert answer.project == status(LOADED, 1)
            assert f"{PROJECT_HEADER}\n- one\n" in answer.block
            assert [tool.name for tool in answer.tools] == TOOLS

            asked.agent = "assistant"
            refusal = await failing(stubs.memory.RenderMemoryContext(asked))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")


def test_what_was_added_and_logged_is_rendered_as_the_index_alone(stubs: Stubs, agent: str) -> None:
    add(stubs, user(agent), "- uses uv", "- lives in Reykjavík")
    log(stubs, user(agent), "- a long day", date="2026-01-02")
    answer = render(stubs, Source(stored=agent))

    assert answer.user == status(LOADED, 2)
    assert f"{USER_HEADER}\n- uses uv\n- lives in Reykjavík\n</UNTRUSTED_CONTENT>" in answer.block
    assert "a long day" not in answer.block
    assert INDEX in answer.instructions
