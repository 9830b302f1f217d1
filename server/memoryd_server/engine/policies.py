"""Which window options are in force: each field from the request, else the session's stored policy, else the agent's,
else the server's (design section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.errors import field_invalid
from memoryd_server.stores.records import (
    OpenCalls,
    Oversize,
    Policy,
    Retention,
    SummaryPolicy,
    WindowMode,
    WindowOptions,
)
from memoryd_server.summarizers.base import CLIENT, SUMMARIZERS


class WindowSettings(msgspec.Struct, frozen=True):
    """Window options with nothing left out."""

    mode: WindowMode
    limit: int
    pin_system: bool
    start_with_user: bool
    open_calls: OpenCalls
    oversize: Oversize


class FoldSettings(msgspec.Struct, frozen=True):
    """How a history is folded, with nothing left out. From stored policies alone: no request has a part in it."""

    window: WindowSettings
    """The window that the stored policies give."""
    summarizer: str
    max_tokens: int
    """The most tokens of the message that shows the summary."""
    keep: int | None
    """As in the policy; `most_kept` bounds it."""
    retention: Retention
    wait: bool

    @property
    def is_left_to_clients(self) -> bool:
        """Whether the agent's own model makes the summaries."""
        return self.summarizer == CLIENT

    def most_kept(self, pins: int) -> int:
        """How many of the newest messages or tokens stay raw beside a summary and pins of this price; at least 1."""
        share = 1 if self.window.mode == WindowMode.MESSAGES else self.max_tokens
        left = self.window.limit - share - pins
        return max(1, left if self.keep is None else min(self.keep, left))


SERVER_OPTIONS: Final = WindowOptions(
    mode=WindowMode.MESSAGES,
    limit=limits.DEFAULT_WINDOW_MESSAGES,
    pin_system=True,
    start_with_user=False,
    open_calls=OpenCalls.OMIT,
    oversize=Oversize.SHORTEN,
)
"""The options where nobody says otherwise."""

OPTION_NAMES: Final = WindowOptions.__struct_fields__

_SERVER_VALUES: Final[dict[str, Any]] = msgspec.structs.asdict(SERVER_OPTIONS)
_NOTHING: Final = WindowOptions()


def resolve(*levels: WindowOptions) -> WindowSettings:
    """The options in force, from the most special to the most general level; `SERVER_OPTIONS` close the list.

    Raises: RequestError FIELD_INVALID when the limit is too large for the mode that it meets.
    """
    merged = dict(_SERVER_VALUES)
    for level in reversed(levels):
        if level is not SERVER_OPTIONS and level != _NOTHING:
            merged.update((name, value) for name in OPTION_NAMES if (value := getattr(level, name)) is not None)
    settings = WindowSettings(**merged)
    if settings.mode == WindowMode.MESSAGES and settings.limit > limits.MAX_WINDOW_MESSAGES:
        raise field_invalid(
            "options.limit", f"a window holds at most {limits.MAX_WINDOW_MESSAGES:,} messages, not {settings.limit:,}"
        )
    return settings


def summary_policy(*levels: Policy) -> SummaryPolicy | None:
    """The summary policy in force, from the most special to the most general level; None when there are no summaries
    (design section 3: the first that is given replaces the more general ones as a whole).
    """
    found = next((level.summary for level in levels if level.summary is not None), None)
    return found if found is not None and found.enabled else None


def fold_settings(summarizer: str, *levels: Policy) -> FoldSettings | None:
    """How the stored policies fold, from the most special to the most general level; None when they do not, or when
    their limit is too small for a summary (one of them may come without the other).

    `summarizer`: the server's default.
    """
    policy = summary_policy(*levels)
    if policy is None:
        return None
    window = resolve(*(level.window for level in levels))
    if window.limit < least_limit(window.mode):
        return None
    default = limits.DEFAULT_SUMMARY_TOKENS
    if window.mode == WindowMode.TOKENS:
        default = window.limit * limits.SUMMARY_PERCENT // 100
    most = min(policy.max_tokens or default, limits.MAX_SUMMARY_TOKENS)
    if window.mode == WindowMode.TOKENS:
        most = min(most, window.limit // 2)
    return FoldSettings(
        window=window,
        summarizer=policy.summarizer or summarizer,
        max_tokens=most,
        keep=policy.keep,
        retention=policy.retention,
        wait=policy.wait,
    )


def check_summary_limit(field: str, window: WindowSettings) -> None:
    """Whether a window has room for a summary (invariant 7). Raises: RequestError FIELD_INVALID."""
    least = least_limit(window.mode)
    if window.limit < least:
        raise field_invalid(
            field,
            f"a window with a summary holds {least} {window.mode.name.lower()} or more, not {window.limit:,}; without "
            "it (`summary`: false), any limit will do",
        )


def least_limit(mode: WindowMode | None) -> int:
    """The smallest limit of a window with a summary."""
    return limits.MIN_SUMMARY_WINDOW_TOKENS if mode == WindowMode.TOKENS else limits.MIN_SUMMARY_WINDOW_MESSAGES


def check_options(field: str, options: WindowOptions) -> None:
    """The values of window options, wherever they are given."""
    if options.limit is not None:
        if options.limit < 1:
            raise field_invalid(f"{field}.limit", f"a window holds 1 or more, not {options.limit}")
        most = limits.MAX_WINDOW_MESSAGES if options.mode == WindowMode.MESSAGES else limits.MAX_WINDOW_TOKENS
        if options.limit > most:
            raise field_invalid(f"{field}.limit", f"the most is {most:,}, not {options.limit:,}")


def check_policy(field: str, policy: Policy, summarizers: Sequence[str] = SUMMARIZERS) -> None:
    """The values of a policy that is about to be stored. `summarizers`: those that it may name."""
    window = policy.window
    check_options(f"{field}.window", window)
    if window.limit is not None and window.limit > limits.MAX_WINDOW_MESSAGES and window.mode != WindowMode.TOKENS:
        raise field_invalid(
            f"{field}.window.limit",
            f"more than {limits.MAX_WINDOW_MESSAGES:,} can only be tokens: store the mode TOKENS beside it",
        )
    if policy.summary is not None:
        _check_summary(field, policy.summary, window, summarizers)


def _check_summary(field: str, summary: SummaryPolicy, window: WindowOptions, summarizers: Sequence[str]) -> None:
    if summary.summarizer and summary.summarizer not in summarizers:
        raise field_invalid(
            f"{field}.summary.summarizer", f"this server has {', '.join(summarizers)}: use one, or leave it empty"
        )
    most = limits.MAX_SUMMARY_TOKENS
    if summary.max_tokens is not None and not limits.MIN_SUMMARY_TOKENS <= summary.max_tokens <= most:
        raise field_invalid(
            f"{field}.summary.max_tokens",
            f"a summary has {limits.MIN_SUMMARY_TOKENS} to {most:,} tokens, not {summary.max_tokens:,}",
        )
    if summary.keep is not None and summary.keep < 1:
        raise field_invalid(f"{field}.summary.keep", f"keep 1 or more, not {summary.keep}")
    if summary.enabled and window.limit is not None and window.limit < least_limit(window.mode):
        raise field_invalid(
            f"{field}.window.limit",
            f"a window with a summary holds {limits.MIN_SUMMARY_WINDOW_MESSAGES} messages or "
            f"{limits.MIN_SUMMARY_WINDOW_TOKENS} tokens or more, not {window.limit:,}",
        )


class PolicyUpdate(msgspec.Struct, frozen=True):
    """New values of a policy: what is named, and nothing else."""

    policy: Policy
    """Where the values stand."""
    whole: bool = False
    window: bool = False
    window_fields: tuple[str, ...] = ()
    """Single fields of the window options."""
    summary: bool = False


def merge_policy(policy: Policy, update: PolicyUpdate | None) -> Policy:
    """A policy after an update."""
    if update is None:
        return policy
    new = update.policy
    if update.whole:
        return new
    window = new.window if update.window else policy.window
    window = msgspec.structs.replace(window, **{name: getattr(new.window, name) for name in update.window_fields})
    return Policy(window, new.summary if update.summary else policy.summary)
