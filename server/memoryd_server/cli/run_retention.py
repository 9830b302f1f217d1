"""How long the runs of an agent are kept after they ended."""

from datetime import timedelta
from typing import Final

from memoryd import FOREVER, SERVERS_DEFAULT, AgentInfo, MemoryClient
from memoryd_server import limits
from memoryd_server.cli.json_lines import print_line
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import Failure, counted, out, tell
from memoryd_server.durations import parse_duration

_WORDS: Final = {"none": FOREVER, "default": SERVERS_DEFAULT}


def show_retention(client: MemoryClient, agent: str, *, as_json: bool) -> None:
    """Tells how long they are kept."""
    try:
        info = client.agent(agent).info()
    except ValueError as error:  # The SDK's word on what no request can carry.
        raise Failure(str(error), status=2) from error
    _tell(info, as_json=as_json)


def set_retention(client: MemoryClient, agent: str, time: str, *, as_json: bool) -> None:
    """Sets how long they are kept, and tells it."""
    retention = _WORDS.get(time.strip().lower())
    try:
        retention = retention or parse_duration(time, 1, limits.MAX_RUN_RETENTION_SECONDS)
    except ValueError as error:
        raise Failure(
            f"{one_line(time)} is no retention: {error}; none keeps all, default is the servers'", status=2
        ) from error
    try:
        info = client.agent(agent).update(run_retention=retention)
    except ValueError as error:
        raise Failure(str(error), status=2) from error
    _tell(info, as_json=as_json, changed=True)


def _tell(info: AgentInfo, *, as_json: bool, changed: bool = False) -> None:
    retention = info.run_retention
    if as_json:
        seconds = None if retention is None else retention.total_seconds()
        print_line({"agent": info.agent, "run_retention_seconds": seconds})
        return
    if retention is None:
        kept = "as long as the servers' settings say (run_retention, 30 days by default)"
    else:
        kept = f"for {length(retention)}" if retention else "for ever"
    soon = " Servers go by it within 10 minutes." if changed else ""
    tell(out(), f"Runs of agent {one_line(info.agent)} that have ended are kept {kept}.{soon}")


def length(time: timedelta) -> str:
    """A length of time in words, such as `1 day 12 hours`."""
    rest = int(time.total_seconds())
    told = []
    for unit, seconds in (("day", 24 * 3600), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, seconds)
        if count:
            told.append(counted(count, unit))
    return " ".join(told)
