"""`memoryd import`: transcripts from files into a server."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memoryd_server.cli.options import NO_VALUE, Format, Server, Ttl, talks_to_a_server
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.terminal import INTERRUPTED, Failure, counted, err, out, tell

if TYPE_CHECKING:
    from memoryd import SessionSettings
    from memoryd_server.cli.transcripts import Source
    from memoryd_server.cli.transfer import Tally


@talks_to_a_server
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="JSON Lines files; - is standard input.", show_default=False)
    ],
    format: Annotated[Format, typer.Option(help="What the messages are.")] = Format.OPENAI_CHAT,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="Whose sessions they become; without it, the file's name.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str, typer.Option(metavar="ID", help="The user who owns the new sessions.", show_default=False)
    ] = "",
    ttl: Ttl = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            metavar=NO_VALUE,
            help="Pass over bad lines, and count them, instead of stopping at the first.",
        ),
    ] = False,
    *,
    server: Server,
) -> None:
    """Bring transcripts into a server, each exactly once.

    A line is {"session_id": …, "messages": […]} with the messages of one session, or only the array of messages; then
    the session is named after file and line. With --format anthropic a line may have "system", too. Other keys are
    passed over. Of system and developer messages, memory that was rendered into them is not stored.

    You can repeat an import at any time: after an interruption it goes on where it stopped, and of files or transcripts
    that grew it stores what is new. Nothing is stored twice.

    For example:

    `memoryd import --agent support transcripts.jsonl`
    """
    from memoryd import SessionSettings
    from memoryd_server.cli.transcripts import STDIN, Source

    if agent is None and STDIN in files:
        raise Failure("standard input has no name: say whose sessions these are, with --agent NAME", status=2)
    sources = [Source(path, format, path.stem if agent is None else agent) for path in files]
    _run(sources, server, SessionSettings(user_id=user, ttl=ttl), skip_bad=skip_bad)


def _run(sources: "list[Source]", server: Server, create: "SessionSettings", *, skip_bad: bool) -> None:
    import asyncio

    from memoryd import MemorydError
    from memoryd_server.cli.connecting import async_client, failure
    from memoryd_server.cli.progress import Meter
    from memoryd_server.cli.transcripts import BadLine
    from memoryd_server.cli.transfer import Tally, transfer

    tally = Tally()
    began = time.monotonic()

    async def run(meter: Meter) -> None:
        async with async_client(server) as client:
            await transfer(client, sources, tally, meter, create=create, skip_bad=skip_bad)

    try:
        sizes = [source.size for source in sources]
        with Meter(err(), None if None in sizes else sum(size or 0 for size in sizes)) as meter:
            asyncio.run(run(meter))
    except BadLine as bad:
        raise Failure(
            f"{bad}\n{_so_far(tally)} Mend the line and repeat the command, or pass over bad lines with --skip-bad."
        ) from bad
    except OSError as error:
        raise Failure(f"{one_line(str(error.filename))} cannot be read: {error.strerror}.\n{_so_far(tally)}") from error
    except MemorydError as error:
        raise Failure(f"{failure(error, server.address)}.\n{_so_far(tally)} {_REPEAT}") from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted.\n{_so_far(tally)} {_REPEAT}", status=INTERRUPTED) from interrupt
    _summarize(tally, time.monotonic() - began)


_REPEAT = "Repeat the command, and it goes on where it stopped."


def _so_far(tally: "Tally") -> str:
    if not tally.sessions and not tally.new:
        return "Nothing was stored."
    stored = f"{counted(tally.sessions, 'session')} done, {counted(tally.new, 'new message')} stored."
    return f"{stored} {_cut(tally)}" if tally.cut else stored


def _cut(tally: "Tally") -> str:
    return f"Memory that had been rendered into prompts was cut out of {counted(tally.cut, 'message')}."


def _summarize(tally: "Tally", seconds: float) -> None:
    already = f", {tally.known:,} were there already" if tally.known else ""
    rate = f" ({tally.new / max(seconds, 1e-3):,.0f} messages a second)" if tally.new else ""
    lines = [
        f"{counted(tally.sessions, 'session')}: {counted(tally.new, 'message')} stored{already}, in {seconds:.1f} s"
        f"{rate}."
    ]
    if tally.cut:
        lines.append(_cut(tally))
    if tally.empty:
        lines.append(f"{counted(tally.empty, 'line')} without messages passed over.")
    if tally.bad:
        lines.append(f"{counted(tally.bad, 'bad line')} skipped.")
    if tally.example:
        agent, session = tally.example
        options = f"{quoted(session)} --agent {quoted(agent)}"
        lines.append(f"Look at one of them: memoryd window {options} --limit 8")
    for text in lines:
        tell(out(), text)
