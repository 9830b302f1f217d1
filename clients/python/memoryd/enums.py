"""The SDK's enums and the numbers that the API has for them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from memoryd.arguments import kind_of
from memoryd.events import WatchEventKind
from memoryd.histories import ListOrder, MessageView
from memoryd.memories import MemoryStyle, TierState
from memoryd.messages import Role
from memoryd.policies import OpenCalls, Oversize, Retention, Tokenizer, WindowMode
from memoryd.runs import RunStatus
from memoryd.v1 import (
    history_service_pb2,
    memory_context_service_pb2,
    message_pb2,
    policy_pb2,
    run_service_pb2,
    session_pb2,
    window_service_pb2,
)
from memoryd.windows import LeftOutReason, SummaryState

Member = TypeVar("Member", bound=StrEnum)


class Numbers(Generic[Member]):
    """An enum of the SDK beside one of the API: `ROLE_USER` there is `Role.USER` here."""

    def __init__(self, kind: type[Member], api: Any, prefix: str) -> None:
        self._kind = kind
        self._numbers: dict[Member, Any] = {member: api.Value(f"{prefix}_{member.name}") for member in kind}
        self._members = {number: member for member, number in self._numbers.items()}

    def number(self, member: Member) -> Any:
        """The API's number of a member, as the type that the generated code wants."""
        return self._numbers[member]

    def member(self, number: int) -> Member | None:
        """The member of a number; None for one that this SDK does not know."""
        return self._members.get(number)

    def member_or_unspecified(self, number: int) -> Member:
        """The member of a number; UNSPECIFIED for one that this SDK does not know."""
        return self._members.get(number) or self._kind["UNSPECIFIED"]

    def chosen(self, value: Member | str, argument: str) -> Member:
        """The member that a caller named, also by its text. ValueError says which there are."""
        try:
            return self._kind(value)
        except ValueError:
            allowed = ", ".join(map(repr, self._named()))
            raise ValueError(f"{argument} is {value!r}; it can be one of {allowed}") from None

    def numbers(self, values: Iterable[Member | str], argument: str) -> list[Any]:
        """The API's numbers of the members that a caller named: one by its text, or any number of them. Errors as of
        `chosen`; TypeError for what is no list.
        """
        if not isinstance(values, Iterable):
            raise TypeError(f"{argument} is {kind_of(values)}; give a list, for example [{self._named()[0]!r}]")
        several = (values,) if isinstance(values, str) else values
        return [self.number(self.chosen(value, argument)) for value in several]

    def _named(self) -> list[str]:
        """What a caller can name."""
        return [member.value for member in self._kind if member.name != "UNSPECIFIED"]


ROLE = Numbers(Role, message_pb2.Role, "ROLE")
LIST_ORDER = Numbers(ListOrder, history_service_pb2.ListOrder, "LIST_ORDER")
MESSAGE_VIEW = Numbers(MessageView, history_service_pb2.MessageView, "MESSAGE_VIEW")
WATCH_EVENT_KIND = Numbers(WatchEventKind, history_service_pb2.WatchEventKind, "WATCH_EVENT_KIND")
TOKENIZER = Numbers(Tokenizer, session_pb2.Tokenizer, "TOKENIZER")
WINDOW_MODE = Numbers(WindowMode, policy_pb2.WindowMode, "WINDOW_MODE")
OPEN_CALLS = Numbers(OpenCalls, policy_pb2.OpenCalls, "OPEN_CALLS")
OVERSIZE = Numbers(Oversize, policy_pb2.Oversize, "OVERSIZE")
RETENTION = Numbers(Retention, policy_pb2.Retention, "RETENTION")
SUMMARY_STATE = Numbers(SummaryState, window_service_pb2.SummaryState, "SUMMARY_STATE")
LEFT_OUT_REASON = Numbers(LeftOutReason, window_service_pb2.LeftOutReason, "LEFT_OUT_REASON")
MEMORY_STYLE = Numbers(MemoryStyle, memory_context_service_pb2.MemoryStyle, "MEMORY_STYLE")
TIER_STATE = Numbers(TierState, memory_context_service_pb2.MemoryTierState, "MEMORY_TIER_STATE")
RUN_STATUS = Numbers(RunStatus, run_service_pb2.RunStatus, "RUN_STATUS")
