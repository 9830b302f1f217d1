"""What belongs to the whole of the data, and the leases of background work."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from bson import Binary

from memoryd_server.stores.base import StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.mongodb.clock import Clock
from memoryd_server.stores.mongodb.database import Database
from memoryd_server.stores.mongodb.errors import GONE
from memoryd_server.stores.mongodb.layout import FORMAT, LEASES, META

SECRET_BYTES: Final = 32

_FORMAT: Final = "format"
_SECRET: Final = "secret"
_ADOPTED: Final = "adopted:"
_BEHIND_ADOPTED: Final = "adopted;"
_MICROSECONDS: Final = 1_000_000


class Meta:
    """Reads and writes it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def check_format(self) -> None:
        """Raises: StoreMisconfigured when a server of a later format has written the data."""
        await self._database.keep(META, {"_id": _FORMAT}, {"value": FORMAT})
        document = await self._database.find_one(META, {"_id": _FORMAT})
        if document is not None and document["value"] > FORMAT:
            raise StoreMisconfigured(
                f"a newer version of memoryd has written the database, in format {document['value']}, while this one "
                f"knows format {FORMAT}. Install that version or a newer one."
            )

    async def make_secret(self) -> None:
        """Makes the secret of the data, unless there is one."""
        await self._database.keep(META, {"_id": _SECRET}, {"value": Binary(secrets.token_bytes(SECRET_BYTES))})

    async def secret(self) -> bytes:
        """See `StoreInfo.secret`. Raises: StoreUnavailable, also when it is gone."""
        document = await self._database.find_one(META, {"_id": _SECRET})
        if document is None:
            raise StoreUnavailable(GONE)
        return bytes(document["value"])

    async def adopt_secret(self, secret: bytes) -> None:
        """See `Store.adopt_secret`."""
        await self._database.keep(META, {"_id": _ADOPTED + secret.hex()}, {"value": Binary(secret)})

    async def adopted_secrets(self) -> Sequence[bytes]:
        """See `Store.adopted_secrets`."""
        adopted = {"_id": {"$gt": _ADOPTED, "$lt": _BEHIND_ADOPTED}}
        return [bytes(document["value"]) for document in await self._database.find(META, adopted)]

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """See `Store.lease`."""
        now = await self._clock.now()
        taken = {"holder": holder, "ends_at": now + int(seconds * _MICROSECONDS)}
        document = await self._database.find_one(LEASES, {"_id": name})
        if document is None:
            return await self._database.insert(LEASES, {"_id": name, **taken})
        if document["holder"] != holder and document["ends_at"] > now:
            return False
        return bool(await self._database.update(LEASES, document, {"$set": taken}))
