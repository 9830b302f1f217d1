"""`memoryd summaries`, `summarize` and `revert-summary`: what stands for the messages that left the windows."""

from memoryd_server.cli.changing import Yes
from memoryd_server.cli.options import AgentOfSession, AsJson, Server, SessionId, talks_to_a_server


@talks_to_a_server
def summaries(
    session: SessionId,
    agent: AgentOfSession = None,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Show a session's summaries, the current one last: what each took in, who made it, and what it says.

    A summary has the one before it and all messages since as its input, so the current one stands for all that they
    took in. At most 16 are kept.

    For example:

    `memoryd summaries user_123 --agent assistant`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.summary_view import show_summaries

    with connected(server) as client:
        show_summaries(client, session, agent, as_json=as_json)


@talks_to_a_server
def summarize(
    session: SessionId,
    agent: AgentOfSession = None,
    as_json: AsJson = False,
    *,
    server: Server,
) -> None:
    """Summarize now what a session's stored policy does not keep as it is, although the window may not be full yet.

    The policy of the session or of its agent must have summaries, made by the server. Windows do this by themselves;
    no message is lost by it, unless the policy says DELETE.

    For example:

    `memoryd summarize user_123 --agent assistant`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.summary_view import summarize_session

    with connected(server) as client:
        summarize_session(client, session, agent, as_json=as_json)


@talks_to_a_server
def revert_summary(
    session: SessionId,
    agent: AgentOfSession = None,
    yes: Yes = False,
    *,
    server: Server,
) -> None:
    """Take a session's current summary back: the one before it is current then, and its messages are shown again.

    Says first which summary it is, and asks. Nothing is summarized anew before the session's next message. A summary
    whose messages are removed cannot be taken back.

    For example:

    `memoryd revert-summary user_123 --agent assistant`
    """
    from memoryd_server.cli.connecting import connected
    from memoryd_server.cli.summary_view import revert_current_summary

    with connected(server) as client:
        revert_current_summary(client, session, agent, yes=yes)
