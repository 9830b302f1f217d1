"""One server of several on a new database: `python -m tests.stores.contender URL NAME`.

It opens the store, appends to a session that the others append to as well, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from memoryd_server.stores.base import Committed, Conflict
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.stores.builders import birth, change_of, lookup, message

SESSION = SessionKey("tenant", "agent", "contended")
APPENDS = 25


async def contend(url: str, name: str) -> dict[str, object]:
    """Appends as the engine does: read, plan, commit, and again on a conflict."""
    store = create_store("test", None, url)
    info = await store.open()
    conflicts = 0
    for number in range(APPENDS):
        id_ = f"{name}-{number}"
        while True:
            loaded = await store.load(SESSION)
            if loaded is None:
                change = birth(SESSION, message(1, id=id_), lookups=[lookup(id_)])
            else:
                appended = message(loaded.record.last_seq + 1, id=id_)
                change = change_of(SESSION, loaded.record, appended, lookups=[lookup(id_)])
            [outcome] = await store.commit([change])
            if outcome == Committed():
                break
            assert isinstance(outcome, Conflict)
            conflicts += 1
    await store.close()
    return {"secret": info.secret.hex(), "conflicts": conflicts}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(contend(*sys.argv[1:]))))
