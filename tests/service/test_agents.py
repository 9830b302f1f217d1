"""Agents: the settings that hold for all their sessions."""

from __future__ import annotations

import pytest
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
