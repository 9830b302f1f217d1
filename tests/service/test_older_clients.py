"""Clients with an older API on this server (design section 3): what is new does not disturb them, and when they send
back what they know, nothing else is reset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import run_service_pb2 as runs
from memoryd.v1.session_pb2 import SessionKey
from tests.servers import ServerProcess
from tests.service.api_images import before_runs, generate, methods, released, run_older
from tests.service.wire import Stubs, text

PROGRAM = str(Path(__file__).with_name("older_client.py"))


@pytest.mark.parametrize("api", [released, before_runs], ids=["the release's", "one before runs"])
def test_a_client_of_an_older_api_still_works(
    api: Callable[[], FileDescriptorSet], server: ServerProcess, sqlite_stubs: Stubs, tmp_path: Path, agent: str
) -> None:
    """With bare stubs of that API, on the oldest gRPC and protobuf, it calls each of its methods."""
    image = api()
    generate(image, tmp_path)
    shared = share(sqlite_stubs, agent)

    called = run_older(tmp_path, PROGRAM, server.address, agent).split()

    assert set(called) == methods(image)
    session = sqlite_stubs.session(shared)
    assert session.user_id == "eve"
    assert session.ttl == Duration(seconds=86_400)
    assert session.labels == {"team": "search"}
    assert session.policy.summary == policies.SummaryPolicy(
        enabled=True, summarizer="client", retention=policies.RETENTION_DELETE, wait=True
    )
    assert session.unfinished_run_count == 1
    settings = sqlite_stubs.agents.GetAgent(agents.GetAgentRequest(agent=agent), timeout=30).agent
    assert settings.run_retention == Duration(seconds=3_600)
    assert settings.policy.window == policies.WindowOptions(limit=8, pin_system=True)
    assert settings.load_memory


def share(stubs: Stubs, agent: str) -> SessionKey:
    """An agent with settings, and a session of it with all that an older API may not know."""
    settings = agents.Agent(agent=agent, load_memory=True, run_retention=Duration(seconds=3_600))
    settings.policy.window.pin_system = True
    stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=settings), timeout=30)
    key = SessionKey(agent=agent, session_id="shared")
    create = history.SessionSettings(user_id="ann", labels={"team": "search"}, ttl=Duration(seconds=86_400))
    create.policy.summary.enabled = True
    create.policy.summary.summarizer = "client"
    create.policy.summary.retention = policies.RETENTION_DELETE
    stubs.append(key, text("one"), create=create)
    stubs.runs.CreateRun(runs.CreateRunRequest(run=runs.RunKey(session=key, run_id="r"), holder="me"), timeout=30)
    return key
