"""Whether a server keeps what it has confirmed, by its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SAFE: Final = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
SETTINGS: Final = tuple(_SAFE)
"""The settings that it depends on."""

CLUSTER_RISK: Final = (
    "A change is answered when one replica has it, too. It can still be lost when its node fails and another replica "
    "than that one takes its place: give each node one replica, or the store's URL as many `replicas` as a node has. "
    "For a moment a read may answer what was before, when a node does not know yet that it was replaced."
)

UNREPLICATED_RISK: Final = (
    "A change is answered before any replica has it, since the store's URL says replicas=0: it can be lost when its "
    "node fails and a replica takes its place. Give each node one replica, and leave the option out."
)


def risk_of(settings: Mapping[str, str | None]) -> str:
    """Why a server with these settings may lose what it has confirmed, and what to do; "" when it does not.

    `settings`: None where the server does not tell.
    """
    hidden = [name for name in SETTINGS if settings.get(name) is None]
    unsafe = [name for name in SETTINGS if settings.get(name) not in (None, _SAFE[name])]
    texts = []
    if unsafe:
        now = ", ".join(f"{name} {settings[name]}" for name in unsafe)
        wanted = ", ".join(f"{name} {_SAFE[name]}" for name in unsafe)
        texts.append(
            f"Redis runs with {now}: what was answered may be lost when it fails or runs out of memory. Set {wanted}."
        )
    if hidden:
        texts.append(
            f"Redis does not tell its settings {', '.join(hidden)}, so it is not known whether what was answered may "
            "be lost. Let the store's user run CONFIG GET and INFO, or see to it that they are "
            f"{', '.join(_SAFE[name] for name in hidden)}."
        )
    return " ".join(texts)
