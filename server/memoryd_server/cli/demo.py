"""`memoryd demo`: what memoryd does, on a real server of its own."""


def demo() -> None:
    """Show what memoryd does, on a server of its own that is gone afterwards.

    Starts a server on a temporary file and a free port of this machine, has a conversation with parallel and
    interrupted tool calls, draws windows of it, repeats an append, summarizes what leaves a window, begins a run in one
    process and ends it in another, and in between ends the server with kill -9 to see what is left. Takes a few
    seconds, and leaves nothing behind.

    For example:

    `memoryd demo`
    """
    from memoryd_server.cli.demonstration import demonstrate

    demonstrate()
