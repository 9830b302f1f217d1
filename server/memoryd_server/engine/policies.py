"""Which window options are in force: each field from the request, else the session's stored policy, else the agent's,
else the server's (design section 3).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.errors import field_invalid
from memoryd_server.stores.records import OpenCalls, Oversize, Policy, WindowMode, WindowOptions


class WindowSettings(msgspec.Struct, frozen=True):
    """Window options with nothing left out."""

    mode: WindowMode
    limit: int
    pin_system: bool
    start_with_user: bool
    open_calls: OpenCalls
    oversize: Oversize


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


def check_options(field: str, options: WindowOptions) -> None:
    """The values of window options, wherever they are given."""
    if options.limit is not None:
        if options.limit < 1:
            raise field_invalid(f"{field}.limit", f"a window holds 1 or more, not {options.limit}")
        most = limits.MAX_WINDOW_MESSAGES if options.mode == WindowMode.MESSAGES else limits.MAX_WINDOW_TOKENS
        if options.limit > most:
            raise field_invalid(f"{field}.limit", f"the most is {most:,}, not {options.limit:,}")


def check_policy(field: str, policy: Policy) -> None:
    """The values of a policy that is about to be stored."""
    window = policy.window
    check_options(f"{field}.window", window)
    if window.limit is not None and window.limit > limits.MAX_WINDOW_MESSAGES and window.mode != WindowMode.TOKENS:
        raise field_invalid(
            f"{field}.window.limit",
            f"more than {limits.MAX_WINDOW_MESSAGES:,} can only be tokens: store the mode TOKENS beside it",
        )


def merge_policy(policy: Policy, whole: Policy | None, fields: dict[str, object] | None) -> Policy:
    """A policy after an update: replaced as a whole, then in single fields of its window options."""
    merged = policy if whole is None else whole
    if fields:
        merged = msgspec.structs.replace(merged, window=msgspec.structs.replace(merged.window, **fields))
    return merged
