"""Stores: the databases that a server keeps its data in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A power that a store may lack."""

    name: str
    """`shared` (several servers may use the store at once) or `durable` (see `StoreInfo.durable`). More may come."""
    supported: bool
    reason: str
    """Why the store lacks it, and what to do instead; empty when it is supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A store of the server."""

    name: str
    """The name in the server's settings."""
    type: str
    """The kind: `in_memory`, `sqlite`, `postgresql`, `mysql` (MariaDB too), `redis` or `mongodb`."""
    reachable: bool
    """Whether it answered just now, within 2 seconds."""
    durable: bool
    """Whether what was acknowledged survives the loss of the server's process and of its machine's power. Where it does
    not, the capability `durable` says why."""
    default: bool
    """Whether requests that name no store use it."""
    capabilities: tuple[Capability, ...]
    """The powers that stores may lack, each with a reason where it is missing."""
