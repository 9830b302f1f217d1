"""Requests for summaries, as tests need them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from memoryd_server.engine.tokens import estimate
from memoryd_server.stores.records import Role
from memoryd_server.summarizers.base import PartKind, SourceMessage, SourcePart, SummaryRequest

PATIENCE_SECONDS: Final = 60


def said(seq: int, text: str, role: Role = Role.USER, name: str = "") -> SourceMessage:
    return SourceMessage(seq, role, (SourcePart(PartKind.TEXT, text),), name)


def request(
    messages: Sequence[SourceMessage],
    *,
    previous: str | None = None,
    target: int = 1_000,
    limit: int | None = None,
    patience: float = PATIENCE_SECONDS,
) -> SummaryRequest:
    """Tokens are counted by the estimate: a quarter of the characters, one for each that is not ASCII."""
    return SummaryRequest(
        tuple(messages),
        target_tokens=target,
        max_tokens=limit or target,
        count=estimate,
        deadline=time.monotonic() + patience,
        previous=previous,
    )
