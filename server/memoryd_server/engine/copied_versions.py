"""Versions and fences in copies (invariant 15): what proves a claim in the source proves none in the copy.

A copy has its source's life, since seqs, ids and look-ups are of that life; so a fence tells the one from the other by
its number alone, which is a version of the record. A copy's versions are ahead of its source's by more than that will
ever have changes: each fence that the copy gives out is greater than all that the source has given out or still will,
and whoever orders late writes by fences refuses the source's.

A run that somebody holds is not free in the copy before the lease is over, but held under a fence between those of the
source and those of the copy, which nobody was given. So its holder writes to the source alone, while another worker
goes on in the copy once the lease is over, as after a crash. All other runs are as they are in the source.
"""

from __future__ import annotations

from typing import Final

import msgspec

from memoryd_server.stores.records import Record, RunState, RunStatus

_STRETCH: Final = 1 << 32
"""Versions that a session has room for in one store: at a thousand changes a second, for seven weeks without a pause;
and for more copies of copies than there will be."""


def next_version(source: Record, copy: Record | None) -> int:
    """The version of a copy's next state, `copy` being the one before; None for a birth."""
    first = source.version + 2 * _STRETCH
    return first if copy is None else max(copy.version + 1, first)


def idle_fence(source: Record) -> int:
    """A fence for runs in the copy that nobody holds there."""
    return source.version + _STRETCH


def as_copied(source: Record, state: RunState) -> RunState:
    """A run's state as the copy has it."""
    return msgspec.structs.replace(state, fence=idle_fence(source)) if state.status is RunStatus.RUNNING else state


def is_same_state(state: RunState, other: RunState) -> bool:
    """Whether two stores have the same of a run."""
    return settled_state(state) == settled_state(other)


def settled_state(state: RunState) -> RunState:
    """What a run's state shares with those of its copies."""
    return msgspec.structs.replace(state, fence=0) if state.status is RunStatus.RUNNING else state


def descends(source: Record, copy: Record) -> bool:
    """Whether a session was copied from the source's store, there or further, rather than to it."""
    return copy.version // _STRETCH > source.version // _STRETCH


def was_claimed_there(source: Record, copy: Record, state: RunState) -> bool:
    """Whether a run of the copy was surely claimed, or begun, in a store that its session was copied to."""
    return descends(source, copy) and state.fence // _STRETCH > idle_fence(source) // _STRETCH
