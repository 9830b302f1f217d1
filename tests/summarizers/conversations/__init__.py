"""Conversations with what a summary of them should still know.

A file has a line for each thing that is said (`user: …`), done (`call <tool>: …`) or answered (`result <tool>: …`,
`error <tool>: …`), then its facts. `fact <kind>: a | b / c` is known where the summary holds `a` and one of `b` and
`c`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memoryd_server.stores.records import Role
from memoryd_server.summarizers.base import PartKind, SourceMessage, SourcePart

TRANSCRIPTS: Final = Path(__file__).parents[4] / "shared" / "data" / "airline_transcripts.jsonl"
"""Fifty conversations of an airline's agent, one a line; measured where they are."""

_PARTS: Final = {"call": PartKind.CALL, "result": PartKind.RESULT, "error": PartKind.ERROR}
_LINE: Final = re.compile(r"(\w+)(?: (\S+))?: (.*)")

_VALUES: Final = re.compile(
    r"""
    \b[a-z]+_[a-z]+_\d{3,5}\b                   # users
    | \b(?:credit_card|gift_card|certificate)_\d+
    | \b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{6}\b   # reservations and flights
    | \b\d{4}-\d{2}-\d{2}\b
    | \b(?:January|February|March|April|May|June|July|August|September|October|November|December)\ \d{1,2}\b
    | \$\d[\d,]*
    | \b[\w.]+@[\w.]+\.\w+
    """,
    re.VERBOSE,
)
"""Ids, dates, amounts and addresses in the airline's conversations."""

_NAMES: Final = re.compile(r'"(?:first_name|last_name)": "([^"]+)"')


@dataclass(frozen=True)
class Fact:
    kind: str
    needles: tuple[tuple[str, ...], ...]
    """It is known where one of each is found."""

    def is_in(self, text: str) -> bool:
        return all(any(needle in text for needle in either) for either in self.needles)


@dataclass(frozen=True)
class Conversation:
    name: str
    messages: tuple[SourceMessage, ...]
    """What is covered by the summary."""
    facts: tuple[Fact, ...]


def own() -> list[Conversation]:
    return [_read(path) for path in sorted(Path(__file__).parent.glob("*.txt"))]


def _read(path: Path) -> Conversation:
    messages: list[SourceMessage] = []
    facts: list[Fact] = []
    for line in path.read_text().splitlines():
        if not line:
            continue
        match = _LINE.fullmatch(line)
        assert match, f"{path.name}: {line}"
        what, name, text = match.groups(default="")
        if what == "fact":
            needles = tuple(tuple(either.strip() for either in one.split(" / ")) for one in text.split(" | "))
            facts.append(Fact(name, needles))
        elif what in _PARTS:
            role = Role.ASSISTANT if what == "call" else Role.TOOL
            messages.append(SourceMessage(len(messages) + 1, role, (SourcePart(_PARTS[what], text, name),)))
        else:
            part = SourcePart(PartKind.TEXT, text)
            messages.append(SourceMessage(len(messages) + 1, Role[what.upper()], (part,)))
    conversation = Conversation(path.stem, tuple(messages), tuple(facts))
    whole = plain_text(conversation.messages)
    unknown = [fact for fact in facts if not fact.is_in(whole)]
    assert not unknown, f"{path.name} does not say: {unknown}"
    return conversation


def airline_stated() -> Iterator[Conversation]:
    """Whole transcripts, with the values that user and agent said or used."""
    for number, messages in enumerate(_airline()):
        yield Conversation(f"airline-{number}", messages, _facts(messages, messages))


def airline_needed() -> Iterator[Conversation]:
    """The first three fifths of transcripts, with those of their values that user and agent say or use afterwards."""
    for number, messages in enumerate(_airline()):
        covered = messages[: len(messages) * 3 // 5]
        yield Conversation(f"airline-{number}", covered, _facts(covered, messages[len(covered) :]))


def _facts(covered: tuple[SourceMessage, ...], used: tuple[SourceMessage, ...]) -> tuple[Fact, ...]:
    whole = plain_text(covered)
    spoken = "\n".join(
        part.text
        for message in used
        for part in message.parts
        if part.kind in (PartKind.TEXT, PartKind.CALL)
        if message.role in (Role.USER, Role.ASSISTANT)
    )
    names = {name for name in _NAMES.findall(whole) if name in spoken}
    values = {value for value in _VALUES.findall(spoken) if value in whole}
    return tuple(Fact("value", ((value,),)) for value in sorted(names | values))


def _airline() -> Iterator[tuple[SourceMessage, ...]]:
    if TRANSCRIPTS.exists():
        for line in TRANSCRIPTS.read_text().splitlines():
            yield tuple(
                SourceMessage(seq, Role[message["role"].upper()], tuple(_parts(message)))
                for seq, message in enumerate(json.loads(line)["messages"], start=1)
            )


def _parts(message: dict[str, Any]) -> Iterator[SourcePart]:
    if message["role"] == "tool":
        text = message["content"]
        yield SourcePart(PartKind.ERROR if text.startswith("Error") else PartKind.RESULT, text, message["name"])
    elif message["content"]:
        yield SourcePart(PartKind.TEXT, message["content"])
    for call in message.get("tool_calls") or ():
        yield SourcePart(PartKind.CALL, call["function"]["arguments"], call["function"]["name"])


def plain_text(messages: Iterable[SourceMessage]) -> str:
    """All that messages say, a line for each part."""
    return "\n".join(part.text for message in messages for part in message.parts)
