"""The server that is measured, in a process of its own.

    python -m tests.bench.server STORE PLANS URL [CROWDED_URL]

It is built as `memoryd serve` builds it, with the floor as one handler more. A store in memory is filled before the
server starts, with the sessions in PLANS; others are expected to be filled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop

from memoryd_server import logs
from memoryd_server.app import build, drain, open_stores
from memoryd_server.engine import tokens
from tests.bench.child import announce, until_stopped
from tests.bench.floor import floor_handler
from tests.bench.load import load
from tests.bench.sessions import read_plans
from tests.bench.settings import server_settings


async def main(store: str, plans: Path, *urls: str) -> None:
    settings = server_settings(store, *urls)
    logs.set_up(settings.log_level, settings.log_format)
    async with open_stores(settings) as stores:
        tokens.counter(settings.tokenizer)
        if store == "in_memory":
            await load(stores.pick(""), read_plans(plans), lambda loaded: announce(loaded=loaded))
        app = build(settings, stores, extra_handlers=(floor_handler(),))
        await app.server.start()
        announce(serving=app.address)
        await until_stopped()
        await drain(app, settings.drain_seconds)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
