"""Memory for a prompt: reads the tiers that the store holds, and renders them beside those that the client read itself
(design section 7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from memoryd_server import limits
from memoryd_server.engine import memory_guide
from memoryd_server.engine.errors import field_invalid, field_too_large
from memoryd_server.engine.incoming import check_text
from memoryd_server.engine.memory_files import check_owner
from memoryd_server.engine.memory_guide import INDEX, TIER_NAMES, Place, Tool
from memoryd_server.engine.rendering import Source, Style, TierState, TierStatus, render, shown_label
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.records import FileKey, FileOwner, Tier

_INLINE_BYTES: Final = 64 * limits.KIB
"""Memory up to so many bytes is rendered on the event loop: that takes less than a millisecond."""

_ABSENT: Final = TierStatus(TierState.ABSENT)
_EVERYWHERE: Final = {tier: Place(shown_label(tier, ""), is_stored=False) for tier in Tier}

_log: Final = structlog.stdlib.get_logger("memoryd.memory")


@dataclass(frozen=True, slots=True)
class TierSource:
    """Where a tier's index is: in the store, or as the client read it."""

    stored: str | None = None
    """The owner's id; None for what the client read."""
    label: str = ""
    content: str | bytes | None = None
    """None when there is no file."""
    unreadable: str = ""
    """Why the client could not read it."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A request for rendered memory."""

    agent: str = ""
    """Empty when no agent's settings are asked."""
    sources: Mapping[Tier, TierSource] = field(default_factory=dict)
    """The tiers that are used."""
    budget: int = 0
    """Code points; 0 for `limits.DEFAULT_MEMORY_BUDGET`."""
    style: int = 0
    """A value of `Style`; 0 for ENCLOSED."""


@dataclass(frozen=True, slots=True)
class Context:
    """Rendered memory."""

    block: str
    instructions: str
    statuses: Mapping[Tier, TierStatus]
    warnings: Sequence[str]
    tools: Sequence[Tool]


async def render_context(runtime: Runtime, tenant: str, request: ContextRequest) -> Context | None:
    """Renders an agent's memory. None when the agent has not opted in.

    Raises: RequestError (field errors), StoreUnavailable when the agent's settings cannot be read; a tier that cannot
    be read is UNREADABLE, with a warning.
    """
    style = _check(tenant, request)
    if request.agent and not (await runtime.agents.get(tenant, request.agent)).settings.load_memory:
        return None
    sources = await _read(runtime, tenant, request.sources)
    budget = request.budget or limits.DEFAULT_MEMORY_BUDGET
    arguments = (sources, budget, style)
    if sum(len(source.content or "") for source in sources.values()) <= _INLINE_BYTES:
        rendered = render(*arguments)
    else:
        rendered = await asyncio.to_thread(render, *arguments)
    for tier, status in rendered.statuses.items():
        if status.state is TierState.UNREADABLE:
            _log.warning("memory unreadable", tier=TIER_NAMES[tier], stored=request.sources[tier].stored is not None)
    places = {
        tier: Place(shown_label(tier, source.label), source.stored is not None)
        for tier, source in sorted(request.sources.items())
    }
    return Context(
        rendered.block,
        memory_guide.instructions(places or _EVERYWHERE, budget),
        rendered.statuses,
        rendered.warnings,
        memory_guide.tools([tier for tier, place in places.items() if place.is_stored]),
    )


def _check(tenant: str, request: ContextRequest) -> Style:
    check_text("agent", request.agent, limits.MAX_ID_BYTES)
    for tier, source in request.sources.items():
        name = TIER_NAMES[tier]
        if source.stored is not None:
            check_owner(FileOwner(tenant, tier, source.stored), f"{name}.stored")
        content = source.content
        if (
            content
            and (size := len(content if isinstance(content, bytes) else content.encode())) > limits.MAX_FILE_BYTES
        ):
            kind = "data" if isinstance(content, bytes) else "text"
            raise field_too_large(f"{name}.{kind}", size, limits.MAX_FILE_BYTES, "bytes", "prune the file")
        for part, text, limit in (
            ("label", source.label, limits.MAX_MEMORY_LABEL_BYTES),
            ("unreadable", source.unreadable, limits.MAX_REASON_BYTES),
        ):
            if (size := len(text.encode())) > limit:
                raise field_too_large(f"{name}.{part}", size, limit, "bytes", "use a shorter one")
    least, most = limits.MIN_MEMORY_BUDGET, limits.MAX_MEMORY_BUDGET
    if request.budget and not least <= request.budget <= most:
        raise field_invalid("budget", f"a budget is {least} to {most:,} characters, or 0 for the default")
    try:
        return Style(request.style or Style.ENCLOSED)
    except ValueError:
        names = ", ".join(style.name for style in Style)
        raise field_invalid("style", f"{request.style} is none of {names}") from None


async def _read(runtime: Runtime, tenant: str, given: Mapping[Tier, TierSource]) -> dict[Tier, Source]:
    """The sources with what the store holds of them, in one read."""
    sources = {tier: Source(source.label, source.content, source.unreadable) for tier, source in given.items()}
    keys = {
        FileKey(FileOwner(tenant, tier, source.stored), INDEX): tier
        for tier, source in given.items()
        if source.stored is not None
    }
    if keys:
        try:
            for file in await runtime.store.load_files(list(keys)):
                tier = keys[file.key]
                sources[tier] = Source(given[tier].label, file.content)
        except StoreUnavailable:
            for tier in keys.values():
                sources[tier] = Source(given[tier].label, unreadable="the store did not answer")
    return sources
