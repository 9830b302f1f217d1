"""Changes of one commit that rest on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memoryd_server.stores.base import Change, Committed, Conflict, Outcome
from memoryd_server.stores.records import SessionKey


def apply_chains(changes: Sequence[Change], apply: Callable[[Change], Outcome]) -> list[Outcome]:
    """Applies changes in their order. What comes behind a refused change of its session is refused too: another server
    may have brought the session to the very version that it expects, with another record than the one it rests on.
    """
    refused: set[SessionKey] = set()
    outcomes: list[Outcome] = []
    for change in changes:
        outcome = Conflict() if change.key in refused else apply(change)
        if not isinstance(outcome, Committed):
            refused.add(change.key)
        outcomes.append(outcome)
    return outcomes
