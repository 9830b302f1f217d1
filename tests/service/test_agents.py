"""Agents: the settings that hold for all their sessions."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import policy_pb2 as policies
from tests.service.wire import Stubs, new_key, refused, seqs, text


def limit(messages: int, **options: bool) -> policies.Policy:
    return policies.Policy(window=policies.WindowOptions(limit=messages, **options))  # type: ignore[arg-type]


def get(stubs: Stubs, agent: str) -> agents.Agent:
    return stubs.agents.GetAgent(agents.GetAgentRequest(agent=agent)).agent


def update(stubs: Stubs, changed: agents.Agent, *paths: str) -> agents.Agent:
    return stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=changed, update_mask=FieldMask(paths=paths))).agent


def listed(stubs: Stubs, page_size: int = 1_000) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        answer = stubs.agents.ListAgents(agents.ListAgentsRequest(page_size=page_size, page_token=token))
        found += [agent.agent for agent in answer.agents]
        token = answer.next_page_token
        if not token:
            return found


def test_an_agent_exists_by_being_named(stubs: Stubs, agent: str) -> None:
    found = get(stubs, agent)

    assert found.agent == agent
    assert found.policy == policies.Policy()
    assert not found.HasField("update_time")
    assert agent not in listed(stubs)


def test_an_update_is_read_back(stubs: Stubs, agent: str) -> None:
    changed = update(stubs, agents.Agent(agent=agent, policy=limit(3, pin_system=False)))

    assert changed.policy == limit(3, pin_system=False)
    assert changed.update_time.seconds > 1_700_000_000
    assert get(stubs, agent) == changed


def test_a_mask_reaches_single_fields(stubs: Stubs, agent: str) -> None:
    update(stubs, agents.Agent(agent=agent, policy=limit(3, pin_system=False)))

    assert update(stubs, agents.Agent(agent=agent, policy=limit(9)), "policy.window.limit").policy == limit(
        9, pin_system=False
    )
    assert update(stubs, agents.Agent(agent=agent), "policy.window.limit").policy == policies.Policy(
        window=policies.WindowOptions(pin_system=False)
    )
    assert update(stubs, agents.Agent(agent=agent, policy=limit(4)), "policy.window").policy == limit(4)
    assert update(stubs, agents.Agent(agent=agent), "*").policy == policies.Policy()


def test_an_etag_guards_an_update(stubs: Stubs, agent: str) -> None:
    before = get(stubs, agent)
    changed = update(stubs, agents.Agent(agent=agent, policy=limit(3), etag=before.etag), "policy")
    refusal = refused(lambda: update(stubs, agents.Agent(agent=agent, policy=limit(4), etag=before.etag), "policy"))

    assert refusal.reason == "ETAG_MISMATCH"
    assert refusal.metadata["etag"] == changed.etag
    assert get(stubs, agent).policy == limit(3)
    assert update(stubs, agents.Agent(agent=agent, policy=limit(4), etag=changed.etag), "policy").policy == limit(4)


class TestLoadMemory:
    """The opt-in to memory (design section 7)."""

    def test_is_off_and_is_set_by_a_mask_or_without_one(self, stubs: Stubs, agent: str) -> None:
        assert not get(stubs, agent).load_memory
        assert update(stubs, agents.Agent(agent=agent, load_memory=True), "load_memory").load_memory
        assert get(stubs, agent).load_memory
        # Without a mask, what is set is changed: false, too.
        assert update(stubs, agents.Agent(agent=agent, policy=limit(3))).load_memory
        assert not update(stubs, agents.Agent(agent=agent, load_memory=False)).load_memory
        changed = update(stubs, agents.Agent(agent=agent, load_memory=True))
        assert (changed.load_memory, changed.policy) == (True, limit(3))
        assert get(stubs, agent) == changed

    def test_is_left_alone_by_a_mask_that_does_not_name_it(self, stubs: Stubs, agent: str) -> None:
        update(stubs, agents.Agent(agent=agent, load_memory=True, policy=limit(3)))

        assert update(stubs, agents.Agent(agent=agent, policy=limit(4), load_memory=False), "policy").load_memory
        off = update(stubs, agents.Agent(agent=agent, policy=limit(5)), "load_memory")
        assert (off.load_memory, off.policy) == (False, limit(4))
        update(stubs, agents.Agent(agent=agent, load_memory=True), "load_memory")
        everything = update(stubs, agents.Agent(agent=agent), "*")
        assert (everything.load_memory, everything.policy) == (False, policies.Policy())

    def test_is_guarded_by_the_etag(self, stubs: Stubs, agent: str) -> None:
        before = get(stubs, agent)
        changed = update(stubs, agents.Agent(agent=agent, load_memory=True, etag=before.etag), "load_memory")
        stale = agents.Agent(agent=agent, load_memory=False, etag=before.etag)

        assert refused(lambda: update(stubs, stale, "load_memory")).reason == "ETAG_MISMATCH"
        assert get(stubs, agent) == changed
        again = update(stubs, agents.Agent(agent=agent, load_memory=True, etag=changed.etag), "load_memory")
        assert again == changed


class TestRunRetention:
    """How long runs are kept after their end (invariant 15): unset it is as the server says, and 0 keeps all."""

    def test_is_set_and_goes_back_to_the_servers(self, stubs: Stubs, agent: str) -> None:
        assert not get(stubs, agent).HasField("run_retention")
        for retention in (
            Duration(seconds=7 * 86_400),
            Duration(),
            Duration(nanos=1_000),
            Duration(seconds=3_162_240_000),
        ):
            changed = update(stubs, agents.Agent(agent=agent, run_retention=retention))
            assert changed.HasField("run_retention")
            assert changed.run_retention == retention
            assert get(stubs, agent) == changed
        assert agent in listed(stubs)
        # A mask that names it, without a value, takes it back; so does `*`.
        for path in ("run_retention", "*"):
            update(stubs, agents.Agent(agent=agent, run_retention=Duration()), "run_retention")
            assert get(stubs, agent).HasField("run_retention")
            assert not update(stubs, agents.Agent(agent=agent), path).HasField("run_retention")
            assert not get(stubs, agent).HasField("run_retention")

    def test_is_left_alone_by_what_does_not_name_it(self, stubs: Stubs, agent: str) -> None:
        retention = Duration(seconds=60)
        update(stubs, agents.Agent(agent=agent, run_retention=retention, load_memory=True))
        assert update(stubs, agents.Agent(agent=agent, policy=limit(3))).run_retention == retention
        assert update(stubs, agents.Agent(agent=agent, run_retention=Duration()), "policy").run_retention == retention
        found = update(stubs, agents.Agent(agent=agent), "run_retention")
        assert (found.load_memory, found.HasField("run_retention")) == (True, False)

    @pytest.mark.parametrize(
        "retention",
        [
            Duration(seconds=-1),
            Duration(seconds=3_162_240_001),
            Duration(nanos=999),
            Duration(nanos=1_000_000_000),
            Duration(seconds=1, nanos=-1),
        ],
        ids=str,
    )
    def test_has_its_bounds(self, sqlite_stubs: Stubs, agent: str, retention: Duration) -> None:
        before = update(sqlite_stubs, agents.Agent(agent=agent, run_retention=Duration(seconds=60)))
        refusal = refused(lambda: update(sqlite_stubs, agents.Agent(agent=agent, run_retention=retention)))
        assert (refusal.reason, refusal.metadata["field"]) == ("FIELD_INVALID", "agent.run_retention")
        assert get(sqlite_stubs, agent) == before


def test_a_policy_holds_for_the_agents_sessions(stubs: Stubs, agent: str) -> None:
    """Request, then session, then agent, then server, field by field (design section 3)."""
    key = new_key(agent)
    stubs.append(key, text("rules"), text("two"), text("three"), text("four"))
    assert len(stubs.load(key).messages) == 4
    update(stubs, agents.Agent(agent=agent, policy=limit(3)))

    assert seqs(stubs.load(key).messages) == [2, 3, 4]
    assert stubs.load(key).stats.limit == 3
    assert seqs(stubs.load(key, limit=1).messages) == [4]
    assert stubs.load(key, mode=policies.WINDOW_MODE_TOKENS).stats.limit == 3


@pytest.mark.parametrize("page_size", [1, 2, 1_000])
def test_agents_are_listed_by_name_in_byte_order(stubs: Stubs, agent: str, page_size: int) -> None:
    """Agents with settings or with sessions, in the order of their UTF-8 bytes, each once (invariant 5)."""
    names = [f"{agent}{rest}" for rest in ("", " ", "!", "A", "Z", "a", "z", "é", "ﬁ", "\U0001f600")]
    for number, name in enumerate(reversed(names)):
        if number % 2:
            stubs.append(new_key(name), text("one"))
        else:
            update(stubs, agents.Agent(agent=name, policy=limit(3)))

    found = [name for name in listed(stubs, page_size) if name.startswith(agent)]
    assert found == sorted(names, key=str.encode)
    assert found == names
