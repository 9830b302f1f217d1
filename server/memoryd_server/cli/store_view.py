"""The stores of a server, for people and for programs."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text as Line

from memoryd import MemoryClient, StoreInfo
from memoryd_server.cli.json_lines import print_line, store_json
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import err, out, tell

_ADJECTIVES: Final = ("shared", "durable")
"""The powers that say how a store is; the others name what it has."""


def show_stores(client: MemoryClient, *, chosen: str | None, as_json: bool) -> None:
    """Prints the stores, the default first. `chosen` is the name of the one that commands are told to use."""
    stores = client.stores()
    if as_json:
        for store in stores:
            print_line(store_json(store))
        return
    console = out()
    console.print(_table(stores, chosen))
    lacking = [(store, power) for store in stores for power in store.capabilities if not power.supported]
    if lacking:
        console.print()
    for store, power in lacking:
        lacks = "is not" if power.name in _ADJECTIVES else "has no"
        tell(console, f"{one_line(store.name)} {lacks} {_words(power.name)}: {one_line(power.reason)}")
    if chosen is not None and all(store.name != chosen for store in stores):
        tell(err(), f"there is no store {one_line(chosen)}, which --store or MEMORYD_STORE names", "yellow")


def _table(stores: Sequence[StoreInfo], chosen: str | None) -> Table:
    powers = list(dict.fromkeys(power.name for store in stores for power in store.capabilities))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Store", overflow="fold", style="bold")
    table.add_column("Type", no_wrap=True)
    table.add_column("Answers", no_wrap=True)
    for name in powers:
        table.add_column(_words(name).capitalize(), no_wrap=True)
    table.add_column("Used", no_wrap=True)
    for store in stores:
        has = {power.name: power.supported for power in store.capabilities}
        table.add_row(
            one_line(store.name),
            one_line(store.type),
            _yes(store.reachable),
            *(_yes(has[name]) if name in has else "" for name in powers),
            ", ".join(filter(None, ("by default" if store.default else "", "by you" if store.name == chosen else ""))),
        )
    return table


def _words(power: str) -> str:
    """The name of a power as people write it."""
    return one_line(power).replace("_", " ")


def _yes(holds: bool) -> Line:
    return Line("yes", "green") if holds else Line("no", "yellow")
