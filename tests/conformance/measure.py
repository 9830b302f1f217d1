"""`python -m tests.conformance.measure`: what each SDK's layer costs beside the bare stubs of its language.

Both take turns in one process, on the in-memory store. The table is for clients/README.md.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
from google.protobuf.duration_pb2 import Duration
from rich.console import Console
from rich.progress import track

from memoryd.v1 import history_service_pb2, message_pb2
from memoryd.v1.session_pb2 import SessionKey
from tests.conformance import conformance_pb2 as pb
from tests.conformance.drivers import LANGUAGES, REPLY_SECONDS, Driver, Language
from tests.servers import ServerProcess

CALLERS: Final = (1, 32)
OPERATIONS: Final = {pb.MEASURED_APPEND: "append", pb.MEASURED_LOAD_WINDOW: "LoadWindow(20)"}
HISTORY: Final = 100
"""Messages of the session that windows are loaded from."""
AGENT: Final = "measured"


@dataclass
class Side:
    """What was measured of the SDK, or of the bare stubs."""

    nanoseconds: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, measurement: pb.Measurement) -> None:
        self.nanoseconds += measurement.nanoseconds
        self.seconds += measurement.elapsed.ToNanoseconds() / 1e9

    @property
    def p50(self) -> float:
        """Milliseconds."""
        return median(self.nanoseconds) / 1e6

    @property
    def rate(self) -> float:
        """Calls per second, of all callers together."""
        return len(self.nanoseconds) / self.seconds


def main(
    language: Annotated[
        list[str] | None, typer.Option(help="Some of: " + ", ".join(each.name for each in LANGUAGES) + ".")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often SDK and stubs take turns.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.05, help="How long a turn lasts.")] = 1.0,
) -> None:
    """Print what each SDK's layer costs, as a table in Markdown."""
    chosen = [each for each in LANGUAGES if not language or each.name in language]
    console = Console(stderr=True)
    for missing in (each for each in chosen if each.missing):
        console.print(f"{missing.title} is left out: {missing.missing}")
    lines = [
        "| language | call | callers | p50, SDK | p50, bare | layer | calls/s, SDK | calls/s, bare |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for each in chosen:
            if not each.missing:
                lines += _rows(each, rounds, seconds, Path(folder), console)
    typer.echo("\n".join(lines))


def _rows(language: Language, rounds: int, seconds: float, folder: Path, console: Console) -> Iterable[str]:
    server = ServerProcess("--store", "default=memory://", log=folder / f"{language.name}-server.log")
    driver = Driver(language, folder / f"{language.name}.log")
    try:
        driver.connect(server.address)
        _fill(driver)
        for operation, callers in itertools.product(OPERATIONS, CALLERS):
            sides = {False: Side(), True: Side()}
            told = f"{language.title}: {OPERATIONS[operation]}, {callers} at once"
            for turn in track(range(rounds + 1), told, console=console, transient=True):
                # Who begins changes, so that neither always has the warmer machine.
                for bare in sorted(sides, reverse=turn % 2 == 1):
                    measured = _measured(driver, operation, callers, bare=bare, seconds=seconds)
                    # In the first round compilers are still at work, in Java and JavaScript.
                    if turn:
                        sides[bare].add(measured)
            sdk, bare_stubs = sides[False], sides[True]
            cells = [
                language.title,
                OPERATIONS[operation],
                str(callers),
                f"{sdk.p50:.3f} ms",
                f"{bare_stubs.p50:.3f} ms",
                f"{sdk.p50 / bare_stubs.p50 - 1:+.1%}",
                f"{sdk.rate:,.0f}",
                f"{bare_stubs.rate:,.0f}",
            ]
            yield f"| {' | '.join(cells)} |"
    finally:
        driver.close()
        server.close()


def _fill(driver: Driver) -> None:
    messages = [
        message_pb2.Message(
            role=message_pb2.ROLE_USER if number % 2 == 0 else message_pb2.ROLE_ASSISTANT,
            content=message_pb2.Content(parts=[message_pb2.Part(text="x" * 200)]),
        )
        for number in range(HISTORY)
    ]
    key = SessionKey(agent=AGENT, session_id=OPERATIONS[pb.MEASURED_LOAD_WINDOW])
    driver.call(pb.Command(append=history_service_pb2.AppendMessagesRequest(session=key, messages=messages)))


def _measured(
    driver: Driver, operation: pb.Measured.ValueType, callers: int, *, bare: bool, seconds: float
) -> pb.Measurement:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    key = SessionKey(agent=AGENT, session_id=OPERATIONS[operation])
    measure = pb.Measure(operation=operation, bare=bare, callers=callers, duration=duration, session=key)
    return driver.call(pb.Command(measure=measure), REPLY_SECONDS + seconds).measurement


if __name__ == "__main__":
    typer.run(main)
