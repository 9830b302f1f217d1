"""Runs a sweep by hand: opens each store, shows how it goes on, and sums it up."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import uvloop

from memoryd_server import logs
from memoryd_server.cli.json_lines import print_line
from memoryd_server.cli.named_stores import (
    NamedStore,
    check_file,
    chosen_store,
    configured_stores,
    opened,
    why_not_shared,
)
from memoryd_server.cli.progress import Bar
from memoryd_server.cli.run_retention import length
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import INTERRUPTED, Failure, counted, err, out, tell
from memoryd_server.config import ConfiguredStore, Settings, SettingsError, describe, load_settings
from memoryd_server.engine.outages import without_repetition
from memoryd_server.engine.run_sweeping import COUNTED_RUNS, OverDueRuns
from memoryd_server.engine.runtime import Defaults
from memoryd_server.engine.sweep_preview import SweepPreview, preview
from memoryd_server.engine.sweeping import Sweeper, SweepReport
from memoryd_server.interceptors.authentication import DEFAULT_TENANT
from memoryd_server.stores.base import Deleted, StoreUnavailable

FAILED: Final = 1
WRONG_SETTING: Final = 2
"""The exit statuses when something failed, which is worse, and when an option or a store is wrong."""

_RETENTION: Final = "run_retention"
_SECOND: Final = 1_000_000

_REPEAT: Final = "Repeat the command, and it goes on with what is left; so does a running server by itself."

_KINDS: Final = {
    "runs": ("run", "runs"),
    "steps": ("step", "steps"),
    "messages": ("message", "messages"),
    "summaries": ("summary", "summaries"),
    "events": ("event", "events"),
    "lookups": ("look-up", "look-ups"),
    "sessions": ("name of a session", "names of sessions"),
    "files": ("memory file", "memory files"),
}
"""What is deleted, as people call it, in the order in which it is told."""


def run_sweep(
    store: str | None, *, overrides: Mapping[str, Any], config_file: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Sweeps one store, or each of the settings. Raises: Failure, unless all was done.

    `dry_run`: whether it only tells what is due.
    """
    # Of what the stores say, only what needs attention.
    logs.set_up("warning", "console")
    try:
        settings = load_settings(overrides, config_file, serves=False)
        chosen = configured_stores(settings) if store is None else [chosen_store(store, lambda: settings)]
        source = next(line.source for line in describe(settings, overrides, config_file) if line.name == _RETENTION)
        uvloop.run(_Sweep(settings, source, dry_run=dry_run, as_json=as_json).of(chosen, is_named=store is not None))
    except SettingsError as error:
        raise Failure(str(error), status=WRONG_SETTING) from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted. {_REPEAT}", status=INTERRUPTED) from interrupt


class _Sweep:
    """A round on each of some stores. What is wrong with one stops nothing at the others."""

    def __init__(self, settings: Settings, retention_source: str, *, dry_run: bool, as_json: bool) -> None:
        self._defaults = Defaults(run_retention=settings.run_retention_microseconds)
        self._retention_source = retention_source
        self._dry_run = dry_run
        self._as_json = as_json
        self._swept = 0
        self._wrong: list[str] = []
        self._failed: list[str] = []

    async def of(self, stores: Sequence[NamedStore], *, is_named: bool) -> None:
        """Sweeps them. `is_named`: whether a person named the store, which then is not passed over. Raises: Failure."""
        self._tell_retention()
        for name, store in stores:
            try:
                await self._sweep(name, store, is_named=is_named)
            except SettingsError as error:
                self._wrong.append(str(error))
            except StoreUnavailable as error:
                self._failed.append(f"{without_repetition(str(error))} {_REPEAT}")
        if not self._swept and not self._wrong and not self._failed:
            self._wrong.append(
                "the settings name no store that can be swept from outside: name one there, or give one with --store"
            )
        if self._wrong or self._failed:
            raise Failure("\n".join([*self._wrong, *self._failed]), status=FAILED if self._failed else WRONG_SETTING)

    async def _sweep(self, name: str, store: ConfiguredStore, *, is_named: bool) -> None:
        """Raises: SettingsError, StoreUnavailable."""
        check_file(name, store)
        began = time.monotonic()
        async with opened(name, store, self._defaults) as runtime:
            if reason := why_not_shared(runtime):
                said = f"store {one_line(name)!r} cannot be swept from outside: its server does that. {reason}"
                if is_named:
                    raise SettingsError(said)
                tell(err(), said, "dim")
                return
            if self._dry_run:
                found = await preview(runtime)
                self._swept += 1
                self._tell_preview(name, found)
                self._tell_failures(name, found.failures, "read")
                return
            with _Meter(name) as meter:
                report = await Sweeper(runtime, alone=False, advanced=meter.advanced).sweep()
        assert report is not None  # It waits for no other one.
        self._swept += 1
        self._tell(name, report, time.monotonic() - began)
        self._tell_failures(name, report.failures, "done")

    def _tell_failures(self, name: str, failures: int, what: str) -> None:
        if failures:
            again = "" if self._dry_run else f" {_REPEAT}"
            self._failed.append(
                f"store {one_line(name)}: {counted(failures, 'thing')} could not be {what}, as told above.{again}"
            )

    def _tell_retention(self) -> None:
        """Tells how long runs are kept before any is deleted, whoever reads the answer."""
        kept = self._defaults.run_retention
        how_long = f"for {_length(kept)}" if kept else "for ever"
        tell(
            err(),
            f"Where their agent's settings do not say, runs are kept {how_long} after they ended "
            f"({_RETENTION}: {self._retention_source}).",
            "dim",
        )

    def _retention(self) -> dict[str, Any]:
        kept = self._defaults.run_retention
        return {"seconds": kept // _SECOND, "source": self._retention_source}

    def _tell_preview(self, name: str, found: SweepPreview) -> None:
        if self._as_json:
            print_line(
                {
                    "store": name,
                    "run_retention": self._retention(),
                    "due": {
                        "expired_sessions": found.expired_sessions,
                        "sessions_with_abandoned_runs": found.abandoned_sessions,
                        "sessions_with_removed_messages": found.purged_sessions,
                        "runs": [
                            {
                                "tenant": runs.tenant,
                                "agent": runs.agent,
                                "run_retention_seconds": runs.retention // _SECOND,
                                "count": runs.runs,
                                "is_all": runs.runs < COUNTED_RUNS,
                            }
                            for runs in found.runs
                        ],
                    },
                    "failures": found.failures,
                }
            )
            return
        sessions = [
            f"{counted(count, 'session')} {what}"
            for count, what in (
                (found.expired_sessions, "that expired"),
                (found.abandoned_sessions, "with runs that nobody claimed"),
                (found.purged_sessions, "with messages that were taken away"),
            )
            if count
        ]
        due = ", ".join([*sessions, *map(_over_due, found.runs)])
        told = f"due are {due}. Nothing was changed." if due else "nothing is due."
        tell(out(), f"Store {one_line(name)}: {told}")

    def _tell(self, name: str, report: SweepReport, seconds: float) -> None:
        if self._as_json:
            print_line(
                {
                    "store": name,
                    "run_retention": self._retention(),
                    "expired_sessions": report.expired,
                    "abandoned_runs": report.abandoned,
                    "deleted": asdict(report.deleted),
                    "failures": report.failures,
                }
            )
            return
        ended = [
            *([counted(report.expired, "session that expired", "sessions that expired")] if report.expired else []),
            *(
                [counted(report.abandoned, "run that nobody claimed", "runs that nobody claimed")]
                if report.abandoned
                else []
            ),
        ]
        done = [
            *([f"ended {' and '.join(ended)}"] if ended else []),
            *([f"deleted {_deleted(report.deleted)}"] if report.deleted.total else []),
        ]
        tell(out(), f"Store {one_line(name)}: {'; '.join(done) or 'nothing was due'}, in {seconds:.1f} s.")


def _over_due(runs: OverDueRuns) -> str:
    count = f"{'at least ' if runs.runs >= COUNTED_RUNS else ''}{counted(runs.runs, 'run')}"
    tenant = f" of tenant {one_line(runs.tenant)}" if runs.tenant != DEFAULT_TENANT else ""
    return f"{count} of agent {one_line(runs.agent)}{tenant} that ended more than {_length(runs.retention)} ago"


def _length(microseconds: int) -> str:
    return length(timedelta(microseconds=microseconds))


def _deleted(deleted: Deleted) -> str:
    counts = asdict(deleted)
    told = [counted(counts[kind], *names) for kind, names in _KINDS.items() if counts[kind]]
    return " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))


class _Meter(Bar):
    """Shows the progress of a sweep: nobody knows beforehand how much there is."""

    def __init__(self, name: str) -> None:
        super().__init__(err(), f"sweeping {one_line(name)}")
        self._done = 0

    def advanced(self, count: int) -> None:
        """Something more is done."""
        self._done += count
        self.show(self._done, f"{self._done:,} ended or deleted")
