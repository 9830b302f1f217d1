"""Runs a copy: opens both stores, shows how it goes on, and sums it up."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from sqlalchemy import make_url

from memoryd_server import logs
from memoryd_server.cli.progress import Bar
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import INTERRUPTED, Failure, counted, err, out, tell
from memoryd_server.config import ConfiguredStore, SettingsError, load_settings
from memoryd_server.engine.copying import Difference, SameStore, Scope, Tally, copy
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.opening import make_data_directory, open_store
from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.urls import masked

WRONG_SETTING: Final = 2
"""The exit status for a store that cannot be opened, as for a flag that does not exist."""

_REPEAT: Final = "Repeat the command, and it goes on where it stopped."


def run_copy(source: str, target: str, scope: Scope, *, overrides: Mapping[str, Any], config_file: Path | None) -> None:
    """Copies and compares. Raises: Failure, unless both stores hold the same afterwards."""
    # Of what the stores say, only what needs attention.
    logs.set_up("warning", "console")
    tally = Tally()
    began = time.monotonic()
    try:
        stores = [_configured(text, overrides, config_file) for text in (source, target)]
        with _Meter(err(), tally, several_tenants=len(scope.tenants) != 1) as meter:
            uvloop.run(_run(stores[0], stores[1], scope, tally, meter))
    except SettingsError as error:
        raise Failure(str(error), status=WRONG_SETTING) from error
    except SameStore as error:
        raise Failure("--from and --to are the same store: name another one", status=WRONG_SETTING) from error
    except StoreUnavailable as error:
        raise Failure(f"{error}\n{_so_far(tally)} {_REPEAT}") from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted.\n{_so_far(tally)} {_REPEAT}", status=INTERRUPTED) from interrupt
    _summarize(tally, time.monotonic() - began)


_Named = tuple[str, ConfiguredStore]


def _configured(text: str, overrides: Mapping[str, Any], config_file: Path | None) -> _Named:
    """The store that a name or a URL stands for. Raises: SettingsError."""
    if ":" in text:
        return masked(text), ConfiguredStore(None, text)
    settings = load_settings(overrides, config_file, serves=False)
    stores = settings.effective_stores
    if text not in stores:
        raise SettingsError(
            f"there is no store {one_line(masked(text))!r} in the settings, which name {', '.join(sorted(stores))}: "
            "add it to them, or give its URL"
        )
    if not settings.stores:
        make_data_directory(settings.data_dir.expanduser())
    return text, stores[text]


async def _run(source: _Named, target: _Named, scope: Scope, tally: Tally, meter: "_Meter") -> None:
    _check_file(*source)
    async with _opened(*source) as here, _opened(*target) as there:
        await copy(here, there, scope, tally, meter)


def _check_file(name: str, store: ConfiguredStore) -> None:
    """Opening a SQLite file would make one. Raises: SettingsError when there is none."""
    if store.url is None or not store.url.lower().startswith("sqlite:"):
        return
    try:
        path = make_url(store.url).database
    except ValueError:
        return  # Opening it says what is wrong.
    if path and not Path(path).exists():
        raise SettingsError(f"store {name!r} is empty: there is no file {path}")


@asynccontextmanager
async def _opened(name: str, store: ConfiguredStore) -> AsyncIterator[Runtime]:
    """Raises: SettingsError, StoreUnavailable."""
    runtime = await open_store(name, store, Defaults())
    try:
        for capability in runtime.info.capabilities:
            if capability.name == "shared" and not capability.supported:
                raise SettingsError(f"store {name!r} cannot be copied. {capability.reason}")
        yield runtime
    finally:
        await runtime.close()


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

    def advanced(self) -> None:
        """Something more is done."""
        tally = self._tally
        if self._phase == "counting":
            self.show(0, f"{tally.sessions:,} sessions, {tally.messages:,} messages")
        elif self._phase == "copying":
            self.show(tally.handled, f"{tally.new + tally.updated:,} sessions, {tally.written:,} messages copied")
        else:
            self.show(tally.compared, f"{tally.same:,} sessions are the same")

    def differs(self, difference: Difference) -> None:
        """Something is not the same in both stores."""
        tenant = f" in tenant {difference.tenant!r}" if self._several_tenants else ""
        name = f"agent {difference.agent!r}{tenant}"
        if difference.session_id is not None:
            name = f"session {difference.session_id!r} of {name}"
        tell(self.console, f"different: {one_line(name)}: {difference.what}; {difference.advice}", "yellow")


def _so_far(tally: Tally) -> str:
    copied = tally.new + tally.updated
    if not tally.written and not copied:
        return "Nothing was copied."
    return f"{counted(copied, 'session')} copied, {counted(tally.written, 'message')} stored."


def _summarize(tally: Tally, seconds: float) -> None:
    """Raises: Failure when something differs."""
    known = tally.sessions - tally.new - tally.updated
    already = f", {known:,} were there already" if known > 0 else ""
    updated = f", {tally.updated:,} brought up to date" if tally.updated else ""
    rate = f" ({tally.messages / max(seconds, 1e-3):,.0f} messages a second)" if tally.messages else ""
    tell(
        out(),
        f"{counted(tally.sessions, 'session')} with {counted(tally.messages, 'message')}: {tally.new:,} copied{updated}"
        f"{already}, and all compared, in {seconds:.1f} s{rate}.",
    )
    if tally.moving:
        tell(
            out(),
            f"The source is in use: {counted(tally.moving, 'session')} went on during the last look at it. Stop its "
            "servers and repeat the command before you start them with the other store.",
        )
    if tally.different:
        raise Failure(f"{counted(tally.different, 'is', 'are')} not the same in both stores, as listed.")
    tell(out(), "All are the same in both stores.")
