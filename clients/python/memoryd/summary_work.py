"""Summary tasks, free of any way to make calls: what one holds, and how a worker asks for the next one."""

import random
from typing import Final

from memoryd.arguments import string
from memoryd.decoding import messages_from_proto, moment
from memoryd.encoding import duration
from memoryd.errors import MemorydError
from memoryd.messages import Message
from memoryd.outages import Outage
from memoryd.v1.session_pb2 import SessionKey
from memoryd.v1.summary_service_pb2 import LeaseSummaryTaskRequest
from memoryd.v1.summary_service_pb2 import SummaryTask as ProtoSummaryTask

FIRST_PAUSE: Final = 0.2
"""Seconds, at most, before a worker that got no task asks again for the first time; doubled with each time in vain."""
LONGEST_PAUSE: Final = 5.0
"""Seconds that no pause exceeds."""
_MOST_DOUBLINGS: Final = 10
"""More than it takes to get from the first pause to the longest."""
RELEASE_SECONDS: Final = 2.0
"""What giving tasks back may take when a client is closed; otherwise their leases end by themselves."""


class LeasedTask:
    """What both clients' tasks hold."""

    def __init__(self, task: ProtoSummaryTask) -> None:
        self.agent = task.session.agent
        """The agent of the session that is summarized."""
        self.session_id = task.session.session_id
        """The id of the session that is summarized."""
        self.previous = task.previous_summary
        """The text of the summary so far, which has to be part of the new one; empty for none."""
        self.messages: tuple[Message, ...] = tuple(messages_from_proto(task.messages))
        """The messages to fold, oldest first. Empty where they are one group larger than 3 MiB: `input` has it,
        with its longest texts shortened."""
        self.instructions = task.instructions
        """What a model is to do and to keep: its system prompt."""
        self.input = task.input
        """The previous summary and the messages, fenced and escaped, for a model to read after the instructions."""
        self.target_tokens = task.target_tokens
        """How many tokens the summary should have."""
        self.max_tokens = task.max_tokens
        """How many it may have: what is over it is cut at the end of a sentence."""
        self.attempts = task.attempts
        """How often this fold was tried before."""
        self.expires = moment(task.expire_time)
        """When the lease ends, in UTC."""
        self.settled = False
        """Whether it is committed, void or given up."""
        self._key = task.session
        self._token = task.task_token

    @property
    def prompt(self) -> str:
        """Instructions and input in one text, for a model that takes one."""
        return f"{self.instructions}\n\n{self.input}"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(agent={self.agent!r}, session_id={self.session_id!r}, "
            f"messages={len(self.messages)}, attempts={self.attempts})"
        )


class Asking:
    """Asks for tasks, of a session or of an agent: the request, how long to pause after an answer without a task, and
    what becomes of a failure.
    """

    def __init__(self, of: SessionKey | str, *, lease_for: float | None, wait: bool, retry_for: float | None) -> None:
        self.request = LeaseSummaryTaskRequest(
            lease_duration=None if lease_for is None else duration(lease_for, "lease_for")
        )
        if isinstance(of, SessionKey):
            self.request.session.CopyFrom(of)
        else:
            self.request.agent = string(of, "agent", "assistant")
        self.wait = wait
        """Whether to go on asking when no task waits."""
        self._outage = Outage(
            begins="no summary task can be leased", ends="summary tasks are served again", retry_for=retry_for
        )
        self._in_vain = 0

    def answered(self, *, found: bool) -> None:
        """Takes note of an answer."""
        self._outage.answered()
        if found:
            self._in_vain = 0

    def failed(self, error: MemorydError) -> None:
        """Takes note of a failure. Raises the error when it is of no use to ask again."""
        if not self.wait:
            raise error
        self._outage.failed(error)

    def pause(self) -> float:
        """The seconds until it is of use to ask again."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._in_vain)
        self._in_vain = min(self._in_vain + 1, _MOST_DOUBLINGS)
        return longest * random.uniform(0.5, 1)
