"""Tool groups as a reader of a history sees them: which result answers which call.

The server has settled this for windows. Here it is only followed for what is on the screen, so that a result can be
shown with the name of its tool and beside its call.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from memoryd import Message


@dataclass(slots=True)
class Placed:
    """Where a message stands among tool groups."""

    head: int | None = None
    """The seq of the message that made the calls: its own, or that of the first call it answers."""
    tools: tuple[str, ...] = ()
    """The name of the tool of each of its results; empty where the call was not seen."""


@dataclass(slots=True)
class _Call:
    head: int
    name: str


@dataclass(slots=True)
class Pairing:
    """Follows a history in the order of its seqs. A call arms its id; the next result with that id consumes it."""

    _armed: defaultdict[str, list[_Call]] = field(default_factory=lambda: defaultdict(list))

    def place(self, message: Message) -> Placed:
        """Places the next message."""
        if message.tool_calls:
            for call in message.tool_calls:
                armed = self._armed[call.id]
                if armed and armed[0].head != message.seq:
                    armed.clear()
                armed.append(_Call(message.seq, call.name))
            return Placed(message.seq)
        placed = Placed()
        tools: list[str] = []
        for result in message.tool_results:
            armed = self._armed[result.call_id]
            name = result.name
            if armed and placed.head in (None, armed[0].head):
                answered = armed.pop(0)
                placed.head = answered.head
                name = name or answered.name
            tools.append(name)
        placed.tools = tuple(tools)
        return placed

    def unanswered(self) -> dict[int, list[str]]:
        """The names of the tools whose calls still wait, by the seq of the message that made them."""
        waiting: dict[int, list[str]] = {}
        for calls in self._armed.values():
            for call in calls:
                waiting.setdefault(call.head, []).append(call.name)
        return waiting
