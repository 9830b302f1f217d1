"""Window options and policies between the protocol and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeVar

from memoryd.v1 import policy_pb2
from memoryd_server.engine.errors import RequestError, field_invalid
from memoryd_server.engine.policies import OPTION_NAMES, PolicyUpdate
from memoryd_server.stores.records import (
    OpenCalls,
    Oversize,
    Policy,
    Retention,
    SummaryPolicy,
    WindowMode,
    WindowOptions,
)

Choice = TypeVar("Choice", bound=IntEnum)

POLICY_PATHS: Final = (
    "policy",
    "policy.window",
    *(f"policy.window.{name}" for name in OPTION_NAMES),
    "policy.summary",
)
"""The update-mask paths of a policy."""


def _choice(field: str, value: int, choices: type[Choice]) -> Choice | None:
    if not value:
        return None
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(choice.name for choice in choices)
        raise field_invalid(field, f"{value} is none of {names}") from None


def decode_options(field: str, options: policy_pb2.WindowOptions) -> WindowOptions:
    """Window options. Raises: RequestError FIELD_INVALID for an unknown value of an enum."""
    return WindowOptions(
        mode=_choice(f"{field}.mode", options.mode, WindowMode),
        limit=options.limit if options.HasField("limit") else None,
        pin_system=options.pin_system if options.HasField("pin_system") else None,
        start_with_user=options.start_with_user if options.HasField("start_with_user") else None,
        open_calls=_choice(f"{field}.open_calls", options.open_calls, OpenCalls),
        oversize=_choice(f"{field}.oversize", options.oversize, Oversize),
    )


def decode_policy(field: str, policy: policy_pb2.Policy) -> Policy:
    """A policy. Raises: RequestError FIELD_INVALID."""
    return Policy(
        window=decode_options(f"{field}.window", policy.window),
        summary=_decode_summary(f"{field}.summary", policy.summary) if policy.HasField("summary") else None,
    )


def _decode_summary(field: str, summary: policy_pb2.SummaryPolicy) -> SummaryPolicy:
    return SummaryPolicy(
        enabled=summary.enabled if summary.HasField("enabled") else True,
        summarizer=summary.summarizer,
        max_tokens=summary.max_tokens if summary.HasField("max_tokens") else None,
        keep=summary.keep if summary.HasField("keep") else None,
        retention=_choice(f"{field}.retention", summary.retention, Retention) or Retention.KEEP,
        wait=summary.wait if summary.HasField("wait") else True,
    )


def encode_policy(policy: Policy, into: policy_pb2.Policy) -> None:
    """Writes a policy into an empty protocol message; an empty policy leaves it empty."""
    for name in OPTION_NAMES:
        value = getattr(policy.window, name)
        if value is not None:
            setattr(into.window, name, int(value) if isinstance(value, IntEnum) else value)
    if policy.summary is not None:
        summary = policy.summary
        into.summary.enabled = summary.enabled
        into.summary.summarizer = summary.summarizer
        into.summary.retention = policy_pb2.Retention.ValueType(summary.retention)
        into.summary.wait = summary.wait
        if summary.max_tokens is not None:
            into.summary.max_tokens = summary.max_tokens
        if summary.keep is not None:
            into.summary.keep = summary.keep


def policy_update(policy: Policy, paths: Sequence[str]) -> PolicyUpdate | None:
    """What the paths of an update mask take from a policy; None when none is about it."""
    prefix = "policy.window."
    update = PolicyUpdate(
        policy,
        whole="policy" in paths,
        window="policy.window" in paths,
        window_fields=tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix)),
        summary="policy.summary" in paths,
    )
    return None if update == PolicyUpdate(policy) else update


def mask_paths(paths: Sequence[str], set_fields: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """The paths of an update (AIP-134): without a mask those of the fields that are set; for `*` all top-level ones.

    Raises: RequestError FIELD_INVALID for an unknown path.
    """
    if not paths:
        return set_fields
    if "*" in paths:
        return [path for path in known if "." not in path]
    for path in paths:
        if path not in known:
            raise _unknown_path(path, known)
    return paths


def _unknown_path(path: str, known: Sequence[str]) -> RequestError:
    return field_invalid("update_mask", f"{path!r} is none of {', '.join(known)}, *")
