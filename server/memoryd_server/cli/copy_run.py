"""Runs a copy: opens both stores, shows how it goes on, and sums it up."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console

from memoryd_server import logs
from memoryd_server.cli.named_stores import NamedStore, check_file, chosen_store, opened, why_not_shared
from memoryd_server.cli.progress import Bar
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import INTERRUPTED, Failure, counted, err, out, tell
from memoryd_server.config import ConfiguredStore, SettingsError, load_settings
from memoryd_server.engine.copying import Difference, SameStore, Scope, Tally, copy
from memoryd_server.engine.memory_guide import TIER_NAMES
from memoryd_server.engine.outages import without_repetition
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.base import StoreUnavailable

WRONG_SETTING: Final = 2
"""The exit status for a store that cannot be opened, as for a flag that does not exist."""

NOTHING_MATCHED: Final = 3
"""The exit status where what was asked for is not in the source, as after a typing error; all else was copied."""

_REPEAT: Final = "Repeat the command, and it goes on where it stopped."


def run_copy(source: str, target: str, scope: Scope, *, overrides: Mapping[str, Any], config_file: Path | None) -> None:
    """Copies and compares. Raises: Failure, unless both stores hold the same afterwards, of all that was asked for."""
    # Of what the stores say, only what needs attention.
    logs.set_up("warning", "console")
    tally = Tally()
    began = time.monotonic()
    try:
        stores = [
            chosen_store(text, lambda: load_settings(overrides, config_file, serves=False)) for text in (source, target)
        ]
        with _Meter(err(), tally, several_tenants=len(scope.tenants) != 1) as meter:
            uvloop.run(_run(stores[0], stores[1], scope, tally, meter))
    except SettingsError as error:
        raise Failure(str(error), status=WRONG_SETTING) from error
    except SameStore as error:
        raise Failure("--from and --to are the same store: name another one", status=WRONG_SETTING) from error
    except StoreUnavailable as error:
        raise Failure(f"{without_repetition(str(error))}\n{_so_far(tally)} {_REPEAT}") from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted.\n{_so_far(tally)} {_REPEAT}", status=INTERRUPTED) from interrupt
    _summarize(tally, scope, time.monotonic() - began)


async def _run(source: NamedStore, target: NamedStore, scope: Scope, tally: Tally, meter: "_Meter") -> None:
    check_file(*source)
    async with _opened(*source) as here, _opened(*target) as there:
        await copy(here, there, scope, tally, meter)


@asynccontextmanager
async def _opened(name: str, store: ConfiguredStore) -> AsyncIterator[Runtime]:
    """Raises: SettingsError, StoreUnavailable."""
    async with opened(name, store, Defaults()) as runtime:
        if reason := why_not_shared(runtime):
            raise SettingsError(f"store {name!r} cannot be copied. {reason}")
        yield runtime


class _Meter(Bar):
    """Shows the progress of a copy."""

    def __init__(self, console: Console, tally: Tally, *, several_tenants: bool) -> None:
        super().__init__(console, "counting")
        self._tally = tally
        self._several_tenants = several_tenants
        self._phase = "counting"

    def copying(self) -> None:
        """All is counted, and the copy begins."""
        self._phase = "copying"
        self.begin(self._phase, self._tally.messages)

    def comparing(self) -> None:
        """All is copied, and the comparison begins."""
        self._phase = "comparing"
        self.begin(self._phase, self._tally.messages)

    def looking_again(self) -> None:
        """All is compared, and what the source went on with meanwhile is looked at again."""
        self._phase = "looking again"
        self.begin(self._phase, None)

    def advanced(self) -> None:
        """Something more is done."""
        tally = self._tally
        if self._phase == "counting":
            self.show(0, f"{tally.sessions:,} sessions, {tally.messages:,} messages")
        elif self._phase == "copying":
            steps = f", {tally.written_steps:,} steps of runs" if tally.written_steps else ""
            self.show(
                tally.handled, f"{tally.new + tally.updated:,} sessions, {tally.written:,} messages{steps} copied"
            )
        elif self._phase == "comparing":
            steps = f", {tally.steps:,} steps of runs" if tally.steps else ""
            same = f"{tally.same:,} sessions are the same"
            self.show(tally.compared, f"{tally.compared:,} messages{steps} compared, {same}")
        else:
            self.show(0, f"{tally.moving:,} sessions went on meanwhile")

    def differs(self, difference: Difference) -> None:
        """Something is not the same in both stores."""
        tenant = f" in tenant {difference.tenant!r}" if self._several_tenants else ""
        name = f"agent {difference.agent!r}{tenant}"
        if difference.file is not None:
            owner = difference.file.owner
            name = f"memory file {difference.file.name} of {TIER_NAMES[owner.tier]} {owner.id!r}{tenant}"
        elif difference.session_id is not None:
            name = f"session {difference.session_id!r} of {name}"
        what = without_repetition(difference.what).removesuffix(".")
        tell(
            self.console,
            f"{'not copied' if difference.failed else 'different'}: {one_line(name)}: {what}; {difference.advice}",
            "yellow",
        )


def _so_far(tally: Tally) -> str:
    copied = tally.new + tally.updated
    if not tally.written and not tally.written_steps and not copied:
        return "Nothing was copied."
    steps = f" and {counted(tally.written_steps, 'step')} of runs" if tally.written_steps else ""
    return f"{counted(copied, 'session')} copied, {counted(tally.written, 'message')}{steps} stored."


def _summarize(tally: Tally, scope: Scope, seconds: float) -> None:
    """Raises: Failure when something differs, could not be copied, or is not there."""
    if tally.settled:
        tell(out(), f"{_what_happened(tally)}, in {seconds:.1f} s{_rate(tally, seconds)}.")
    elif not tally.unmatched:
        tell(out(), f"The source has no session{' of these names' if scope != Scope() else ''}.")
    if tally.runs:
        tell(out(), f"{counted(tally.runs, 'run')} with {counted(tally.steps, 'step')} compared.")
    if tally.files:
        known = tally.files - tally.new_files
        told = [f"{count:,} {what}" for count, what in ((tally.new_files, "copied"), (known, "there already")) if count]
        tell(out(), f"{counted(tally.files, 'memory file')} compared: {', '.join(told)}.")
    if tally.moving:
        tell(
            out(),
            f"The source is in use: {counted(tally.moving, 'session')} went on during the last look at it. Stop its "
            "servers and repeat the command before you start them with the other store.",
        )
    failures = _failures(tally)
    if tally.unmatched:
        missing = f"nothing in the source matches {' and '.join(tally.unmatched)}: look for a typing error"
        missing += "" if tally.settled or tally.files else "; nothing was copied"
        failures.append(f"{missing}.")
    if failures:
        is_worse = len(failures) > bool(tally.unmatched)
        raise Failure("\n".join(failures), status=1 if is_worse else NOTHING_MATCHED)
    tell(out(), "All are the same in both stores.")


def _what_happened(tally: Tally) -> str:
    """What happened to the sessions, each of which is counted once."""
    outcomes = [
        (tally.new, "copied"),
        (tally.updated, "brought up to date"),
        (tally.known, "there already"),
        (tally.gone, "ended in the source meanwhile"),
        (tally.different, "different"),
        (tally.failed, "not copied"),
    ]
    told = ", ".join(f"{count:,} {what}" for count, what in outcomes if count)
    return f"{counted(tally.settled, 'session')} with {counted(tally.compared, 'message')} compared: {told}"


def _rate(tally: Tally, seconds: float) -> str:
    return f" ({tally.compared / max(seconds, 1e-3):,.0f} messages a second)" if tally.compared else ""


def _failures(tally: Tally) -> list[str]:
    different = [
        *([counted(tally.different, "session")] if tally.different else []),
        *([f"the settings of {counted(tally.agents, 'agent')}"] if tally.agents else []),
        *([counted(tally.different_files, "memory file")] if tally.different_files else []),
    ]
    failures = []
    if different:
        is_one = tally.different + tally.different_files == 1 and not tally.agents
        failures.append(
            f"{' and '.join(different)} {'is' if is_one else 'are'} not the same in both stores, as listed."
        )
    if tally.failed:
        failures.append(f"{counted(tally.failed, 'session')} could not be copied or compared, as listed. {_REPEAT}")
    return failures
