"""The rendering of memory, free of any way to make calls: what is asked, what is read from the disk for it, and what
becomes of the answer.
"""

import logging

from memoryd.arguments import integer, string
from memoryd.decoding import tier_status_from_proto
from memoryd.enums import MEMORY_STYLE
from memoryd.errors import DeadlineExceeded, Unavailable
from memoryd.memories import MemoryStyle
from memoryd.memory_plans import owner
from memoryd.memory_sources import USER, ProjectFiles, SourceReading, StoredMemory, UserFiles, chosen, read_files
from memoryd.methods import RENDER_MEMORY_CONTEXT
from memoryd.plans import Plan, call
from memoryd.v1 import memory_context_service_pb2 as pb

_log = logging.getLogger("memoryd")


class Rendering:
    """One rendering: its request, which is complete once the files are read, and its plan."""

    def __init__(
        self,
        stored: StoredMemory | None,
        user: UserFiles | StoredMemory | None,
        project: ProjectFiles | StoredMemory | None,
        *,
        agent: str,
        budget: int | None,
        style: MemoryStyle | str,
    ) -> None:
        self._tiers = chosen(stored, user, project)
        self._warnings: list[str] = []
        self.agent = string(agent, "agent", "assistant")
        stored_tiers = {name: tier for name, tier in self._tiers.items() if isinstance(tier, str)}
        self.owners = {name: _owner(name, id_) for name, id_ in stored_tiers.items()}
        """Who owns the tiers that the store holds."""
        self.has_files = len(self.owners) < len(self._tiers)
        """Whether there is something to read from the disk."""
        self._request = pb.RenderMemoryContextRequest(
            agent=self.agent,
            budget=0 if budget is None else integer(budget, "budget", "256 to 100,000 characters", bits=32),
            style=MEMORY_STYLE.number(MEMORY_STYLE.chosen(style, "style")),
        )
        for name, id_ in stored_tiers.items():
            getattr(self._request, name).stored = id_

    def read(self) -> None:
        """Reads the files of this machine."""
        readings, self._warnings = read_files(self._tiers)
        for name, reading in readings.items():
            getattr(self._request, name).CopyFrom(_source(reading))

    def plan(self) -> Plan[pb.RenderMemoryContextResponse]:
        """Renders, and logs what went wrong on the way. Without a server there is no memory, but no error either."""
        try:
            response = yield from call(RENDER_MEMORY_CONTEXT, self._request)
        except (Unavailable, DeadlineExceeded) as error:
            response = pb.RenderMemoryContextResponse(
                state=pb.MEMORY_CONTEXT_STATE_DISABLED,
                warnings=[f"Memory could not be rendered, and the agent does without: {error}"],
            )
            for name in self._tiers:
                getattr(response, name).state = pb.MEMORY_TIER_STATE_UNREADABLE
        else:
            if response.state == pb.MEMORY_CONTEXT_STATE_ENABLED:
                response.warnings.extend(self._warnings)
        if response.warnings:
            _log.warning("%s", "; ".join(response.warnings))
        return response


def _owner(tier: str, id: str) -> pb.MemoryOwner:
    return owner(user=id, project=None) if tier == USER else owner(user=None, project=id)


def _source(reading: SourceReading) -> pb.MemorySource:
    source = pb.MemorySource(label=reading.label)
    if reading.unreadable:
        source.unreadable = reading.unreadable
    elif reading.content is not None:
        source.data = reading.content
    return source


class RenderedMemory:
    """What both clients' contexts hold."""

    def __init__(self, response: pb.RenderMemoryContextResponse) -> None:
        self.enabled = response.state == pb.MEMORY_CONTEXT_STATE_ENABLED
        """Whether memory was rendered: the agent uses it, and a server answered. There may be none yet."""
        self.block = response.block
        """The block for the prompt; empty when no tier holds text. It is for a prompt alone: keep it out of logs."""
        self.instructions = response.instructions
        """How to keep the memory, for the prompt; there even when no file exists yet."""
        self.user = tier_status_from_proto(response.user)
        """What became of the user tier."""
        self.project = tier_status_from_proto(response.project)
        """What became of the project tier."""
        self.warnings = tuple(response.warnings)
        """What went wrong on the way, a sentence each. The log `memoryd` has them, too."""

    @property
    def prompt(self) -> str:
        """Block and instructions in one text, an empty line between them; empty when both are."""
        return "\n\n".join(filter(None, (self.block, self.instructions)))

    def __repr__(self) -> str:
        # Without the memory: what is logged of a context holds none.
        return (
            f"{type(self).__name__}(enabled={self.enabled}, user={self.user}, project={self.project}, "
            f"warnings={len(self.warnings)})"
        )
