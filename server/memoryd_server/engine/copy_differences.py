"""What a copy tells of a session that the target holds otherwise, and leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime

from memoryd_server.stores.records import Record


class Differs(Exception):
    """What the target has is not the source's, and is not to be changed. Says what differs and what to do."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


def changed_there(copy: Record) -> Differs:
    """Others than the copy changed the target's session."""
    return Differs("it was changed in the target since it was copied", way_around(copy))


def way_around(copy: Record) -> str:
    """What to do where the target has a session that is not to be changed."""
    if copy.expires_at is None:
        return (
            "copy into another store; or, if the target's session is of no use (it has no ttl, so it stays for ever), "
            "give it a ttl with UpdateSession, and copy again a day after it has expired"
        )
    expires = datetime.fromtimestamp(copy.expires_at / 1_000_000, UTC)
    return (
        "copy into another store, or copy again a day after the target's session has expired, which is at "
        f"{expires:%Y-%m-%d %H:%M} UTC unless it goes on"
    )
