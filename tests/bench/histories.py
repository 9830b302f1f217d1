"""The messages that histories hold: made up, from a seed, and mixed like the conversations of an agent with tools.

A history is a row of blocks of 100 messages. Of a block's messages, 30 belong to answered tool groups (of one to three
parallel calls), 2 are results without a call, 2 are calls without a result, and the others are plain turns. The very
first message is a SYSTEM message. Blocks are numbered from the end, so that histories of different lengths end alike:
what a window or a page holds is then of one size, and only the length differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain, count, islice
from random import Random
from typing import Final

from memoryd.v1 import message_pb2 as pb

BLOCK: Final = 100
"""Messages of a block: the length of a history is a multiple of it."""

_TOOL_GROUPS: Final = {1: 3, 2: 4, 3: 3}
"""How many tool groups of so many calls a block holds: 3 x 2 + 4 x 3 + 3 x 4 = 30 messages."""
_ORPHANS: Final = 2
_OPEN_CALLS: Final = 2
_DISTINCT_BLOCKS: Final = 64
"""Blocks of different texts and order; beyond that they repeat, with new ids."""

_SEED: Final = "memoryd"
_FIRST_MILLISECOND: Final = 1_780_000_000_000
"""The time in the first message's id."""

_TOOL: Final = "search_orders"
_ARGUMENTS: Final = tuple(
    json.dumps({"customer": f"C-{1000 + number}", "from": "2026-01-01", "limit": 10 + number}) for number in range(16)
)

_VOCABULARY: Final = (
    "the a to of in and for on with that this it we you is are was be can have will not but from at as by or if when "
    "flight seat ticket refund order parcel address account invoice payment booking customer agent please thanks could "
    "would should check change cancel confirm send update find tomorrow morning evening Monday Friday number name date "
    "price total available already still because before after between without question answer problem issue request "
    "project Atlas server database cursor window summary message history latency percent seconds kilometres Reykjavík "
    "München São Paulo Zürich; however, therefore, meanwhile, yes, no, perhaps."
)
_WORDS: Final = _VOCABULARY.split()


class Ending(Enum):
    """What the last messages of a history may be, where windows must step over them."""

    ORPHANS = "orphans"
    """Results without their calls."""
    OPEN_CALLS = "open_calls"
    """Calls without their results."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A message without its ids."""

    role: pb.Role.ValueType
    text: str
    calls: Sequence[int] = ()
    """The calls that it makes, by their numbers in the block."""
    answers: int | None = None
    """The call that it answers, likewise."""


def history(length: int) -> Iterator[pb.Message]:
    """The messages of a history, oldest first. Raises: ValueError when the length is not a multiple of `BLOCK`."""
    if length < BLOCK or length % BLOCK:
        raise ValueError(f"a history of {length} messages cannot be mixed: use a multiple of {BLOCK}")
    blocks = length // BLOCK
    writer = Writer("history")
    for block in range(blocks):
        turns = _block((blocks - 1 - block) % _DISTINCT_BLOCKS)
        if block == 0:
            turns = (_Turn(pb.ROLE_SYSTEM, prose(Random(f"{_SEED}/system"))), *turns[1:])
        yield from writer.messages(turns)


def ending(kind: Ending, length: int) -> Iterator[pb.Message]:
    """Messages of one kind, to come after a history. None of their calls is ever answered."""
    random = Random(f"{_SEED}/ending")
    writer = Writer("ending")
    for _ in range(length):
        if kind is Ending.ORPHANS:
            yield from writer.messages([_Turn(pb.ROLE_TOOL, _result(random), answers=0)])
        else:
            yield from writer.messages([_Turn(pb.ROLE_ASSISTANT, prose(random), calls=(0,))])


class Writer:
    """Makes messages with ids of their own: UUIDs of version 7, as those of the SDKs."""

    def __init__(self, name: str) -> None:
        self._random = Random(f"{_SEED}/ids/{name}")
        self._milliseconds = _FIRST_MILLISECOND

    def plain(self) -> pb.Message:
        """A plain message of a person."""
        return _message(self._new_id(), _Turn(pb.ROLE_USER, prose(self._random)), {})

    def ten(self) -> Sequence[pb.Message]:
        """Ten messages, with two tool groups among them."""
        random = self._random
        return self.messages(
            (
                _Turn(pb.ROLE_USER, prose(random)),
                _Turn(pb.ROLE_ASSISTANT, prose(random), calls=(0, 1)),
                _Turn(pb.ROLE_TOOL, _result(random), answers=0),
                _Turn(pb.ROLE_TOOL, _result(random), answers=1),
                _Turn(pb.ROLE_ASSISTANT, prose(random)),
                _Turn(pb.ROLE_USER, prose(random)),
                _Turn(pb.ROLE_ASSISTANT, "", calls=(2,)),
                _Turn(pb.ROLE_TOOL, _result(random), answers=2),
                _Turn(pb.ROLE_ASSISTANT, prose(random)),
                _Turn(pb.ROLE_USER, prose(random)),
            )
        )

    def messages(self, turns: Sequence[_Turn]) -> Sequence[pb.Message]:
        """The turns as messages. Numbers of calls mean the same call within these turns only."""
        call_ids: dict[int, str] = {}
        for turn in turns:
            for number in turn.calls if turn.answers is None else (turn.answers,):
                if number not in call_ids:
                    call_ids[number] = f"call_{self._random.getrandbits(96):024x}"
        return [_message(self._new_id(), turn, call_ids) for turn in turns]

    def _new_id(self) -> str:
        self._milliseconds += 1
        bits = self._milliseconds << 80 | 0x7 << 76 | 0b10 << 62
        return f"{bits | self._random.getrandbits(12) << 64 | self._random.getrandbits(62):032x}"


def _message(id_: str, turn: _Turn, call_ids: Mapping[int, str]) -> pb.Message:
    parts: list[pb.Part] = []
    if turn.answers is not None:
        content = [pb.Part(text=turn.text)]
        parts.append(pb.Part(tool_result=pb.ToolResult(call_id=call_ids[turn.answers], name=_TOOL, parts=content)))
    elif turn.text:
        parts.append(pb.Part(text=turn.text))
    for number in turn.calls:
        arguments = _ARGUMENTS[number % len(_ARGUMENTS)]
        parts.append(pb.Part(tool_call=pb.ToolCall(id=call_ids[number], name=_TOOL, arguments=arguments)))
    return pb.Message(id=id_, role=turn.role, content=pb.Content(parts=parts))


@cache
def _block(number: int) -> Sequence[_Turn]:
    """A block of the mix; it begins with a plain turn."""
    random = Random(f"{_SEED}/block/{number}")
    numbers = count()
    groups: list[tuple[_Turn, ...]] = []
    for size, times in _TOOL_GROUPS.items():
        for _ in range(times):
            calls = tuple(islice(numbers, size))
            answers = (_Turn(pb.ROLE_TOOL, _result(random), answers=call) for call in calls)
            groups.append((_Turn(pb.ROLE_ASSISTANT, prose(random), calls=calls), *answers))
    groups += [(_Turn(pb.ROLE_TOOL, _result(random), answers=next(numbers)),) for _ in range(_ORPHANS)]
    groups += [(_Turn(pb.ROLE_ASSISTANT, prose(random), calls=(next(numbers),)),) for _ in range(_OPEN_CALLS)]
    plain = BLOCK - sum(map(len, groups))
    roles = (pb.ROLE_USER, pb.ROLE_ASSISTANT)
    first = (_Turn(pb.ROLE_USER, prose(random)),)
    others = groups + [(_Turn(roles[number % 2], prose(random)),) for number in range(1, plain)]
    random.shuffle(others)
    return tuple(chain(first, *others))


def prose(random: Random) -> str:
    """About 200 characters of prose."""
    return " ".join(random.choices(_WORDS, k=random.randint(20, 48)))


def _result(random: Random) -> str:
    """About 200 characters of JSON, as tools answer."""
    rows = [{"id": random.getrandbits(32), "name": random.choice(_WORDS), "price": random.randint(1, 9_999) / 100}]
    return json.dumps({"status": "ok", "rows": rows, "note": " ".join(random.choices(_WORDS, k=18))})


SUMMARY: Final = ". ".join(prose(Random(f"{_SEED}/summary/{sentence}")) for sentence in range(5)) + "."
"""About 1,000 characters: a usual summary."""
