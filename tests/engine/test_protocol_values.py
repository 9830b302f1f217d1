"""The engine's values are the protocol's, which it does not import, and its limits are those of the comments there."""

from __future__ import annotations

import inspect
import re
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import pytest

from memoryd.v1 import (
    error_reason_pb2,
    history_service_pb2,
    message_pb2,
    policy_pb2,
    run_service_pb2,
    session_pb2,
    window_service_pb2,
)
from memoryd_server import limits
from memoryd_server.engine import histories, policies, sweeping, tokens
from memoryd_server.engine.errors import Reason
from memoryd_server.engine.runtime import Defaults
from memoryd_server.engine.watching import WatchKind
from memoryd_server.engine.windows import SummaryState
from memoryd_server.interceptors.error_boundary import CODES
from memoryd_server.stores.records import OpenCalls, Oversize, Retention, Role, RunStatus, WindowMode

DAY: Final = 24 * 3600
MIN_LEASE: Final = limits.MIN_RUN_LEASE_SECONDS
MAX_LEASE: Final = limits.MAX_RUN_LEASE_SECONDS
PROTOS: Final = Path(__file__).parents[2] / "protos" / "memoryd" / "v1"


def _values(enum: Any) -> dict[str, int]:
    """The values of a protocol's enum by name, without the prefix and the unspecified one."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.DESCRIPTOR.name).upper() + "_"
    return {name.removeprefix(prefix): value for name, value in enum.items() if value}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Role, message_pb2.Role),
        (WindowMode, policy_pb2.WindowMode),
        (OpenCalls, policy_pb2.OpenCalls),
        (Oversize, policy_pb2.Oversize),
        (Retention, policy_pb2.Retention),
        (SummaryState, window_service_pb2.SummaryState),
        (WatchKind, history_service_pb2.WatchEventKind),
        (RunStatus, run_service_pb2.RunStatus),
    ],
)
def test_enums_have_the_protocols_names_and_values(ours: type[IntEnum], theirs: Any) -> None:
    assert {member.name: member.value for member in ours} == _values(theirs)


def test_reasons_are_the_protocols_and_each_has_its_documented_status() -> None:
    """Every error carries a reason from `ErrorReason` (design section 3)."""
    names = set(_values(error_reason_pb2.ErrorReason))
    assert {reason.value for reason in Reason} == names == {reason.value for reason in CODES}
    documented = re.findall(
        r"; ([A-Z_]+)(?: with a RetryInfo)?: .*\n +ERROR_REASON_([A-Z_]+) = ", _proto("error_reason")
    )
    assert {name for _, name in documented} == names
    for status, name in documented:
        assert CODES[Reason(name)].name == status, name


def test_tokenizers_are_the_protocols() -> None:
    assert {name.upper() for name in tokens.TOKENIZERS} == set(_values(session_pb2.Tokenizer))


def test_window_options_are_the_protocols() -> None:
    assert list(policies.OPTION_NAMES) == [field.name for field in policy_pb2.WindowOptions.DESCRIPTOR.fields]


def test_orders_and_views_of_lists_are_the_protocols() -> None:
    assert histories.MessageList(("t", "a", "s"), order=history_service_pb2.LIST_ORDER_DESCENDING).descending  # type: ignore[arg-type]
    for order in (history_service_pb2.LIST_ORDER_UNSPECIFIED, history_service_pb2.LIST_ORDER_ASCENDING):
        assert not histories.MessageList(("t", "a", "s"), order=order).descending  # type: ignore[arg-type]


def _proto(name: str) -> str:
    """A proto file on one line a comment, so that texts are found across line ends."""
    text = (PROTOS / f"{name}.proto").read_text()
    return re.sub(r"\n\s*//", "", text)


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        ("error_reason", f"over {limits.MAX_PAGE_BYTES / limits.MIB} MiB"),
        (
            "history_service",
            f"1 to {limits.MAX_APPEND_MESSAGES} messages, together at most 3.5 MiB, each at most 2 MiB",
        ),
        ("history_service", f"0 means {limits.DEFAULT_PAGE_ITEMS}, more than {limits.MAX_PAGE_ITEMS:,} means"),
        ("history_service", f"examines at most {limits.MAX_PAGE_SCAN:,} messages"),
        ("history_service", f"at most {limits.MAX_LABELS}, keys of 1 to {limits.MAX_LABEL_BYTES} bytes"),
        ("session", f"at most {limits.MAX_LABELS}, keys of 1 to {limits.MAX_LABEL_BYTES} bytes"),
        ("session", f"1 to {limits.MAX_ID_BYTES} bytes of UTF-8 without U+0000"),
        ("message", f"1 to {limits.MAX_ID_BYTES} bytes of UTF-8 without U+0000"),
        ("message", f"At most {limits.MAX_METADATA_BYTES // limits.KIB} KiB"),
        ("message", f"the message's {limits.MAX_MESSAGE_BYTES // limits.MIB} MiB"),
        ("message", f"At most {limits.MAX_NAME_BYTES} bytes"),
        ("policy", f"1 to {limits.MAX_WINDOW_MESSAGES:,} messages or 1 to {limits.MAX_WINDOW_TOKENS:,} tokens"),
        ("policy", f"Default {limits.DEFAULT_WINDOW_MESSAGES:,}"),
        (
            "policy",
            f"at least {limits.MIN_SUMMARY_WINDOW_MESSAGES} messages or {limits.MIN_SUMMARY_WINDOW_TOKENS} tokens",
        ),
        ("policy", f"{limits.MIN_SUMMARY_TOKENS} to {limits.MAX_SUMMARY_TOKENS:,}. Default"),
        ("policy", f"Default {limits.DEFAULT_SUMMARY_TOKENS:,} when the limit counts messages, and "),
        ("policy", f"{limits.SUMMARY_PERCENT} % of a limit in tokens"),
        ("policy", f"at most {limits.SUMMARY_WAIT_SECONDS} seconds"),
        ("summary_service", f"at most {limits.MAX_SUMMARIES}"),
        ("summary_service", f"at most {limits.SUMMARY_TASK_BYTES // limits.MIB} MiB"),
        ("summary_service", f"to {limits.MAX_TASK_LEASE_SECONDS // 60} minutes"),
        ("summary_service", f"Default {limits.DEFAULT_TASK_LEASE_SECONDS} seconds"),
        ("summary_service", f"at most {limits.MAX_SUMMARY_BYTES // limits.MIB} MiB"),
        ("window_service", f"up to {limits.MAX_EXPLAINED_MESSAGES} of the messages"),
        ("window_service", f"A window over {limits.MAX_PAGE_BYTES / limits.MIB} MiB"),
        ("agent_service", f"up to {limits.AGENT_CACHE_SECONDS} seconds"),
        ("agent_service", f"0 means {limits.DEFAULT_PAGE_ITEMS}, more than {limits.MAX_PAGE_ITEMS:,} means"),
        ("agent_service", f"up to {limits.MAX_RUN_RETENTION_SECONDS // (366 * DAY)} years"),
        ("agent_service", f"{Defaults().run_retention // (DAY * 1_000_000)} days by default"),
        ("agent_service", f"A server may use it for {sweeping.RETENTION_SECONDS / 60:g} minutes after"),
        ("run_service", f"when it has {limits.MAX_UNFINISHED_RUNS} unfinished ones"),
        ("run_service", f"1 to {limits.MAX_ID_BYTES} bytes of UTF-8 without U+0000"),
        ("run_service", f"At most {limits.MAX_METADATA_BYTES // limits.KIB} KiB of UTF-8"),
        ("run_service", f"at most {limits.MAX_RUN_REASON_BYTES // limits.KIB} KiB of UTF-8"),
        ("run_service", f"{MIN_LEASE} second to {MAX_LEASE / 3_600:g} hour, else INVALID_ARGUMENT"),
        ("run_service", f"Default {limits.DEFAULT_RUN_LEASE_SECONDS} seconds"),
        ("run_service", f"on behind this step. At most {limits.MAX_STEP_BYTES // limits.MIB} MiB"),
        ("run_service", f"At most {limits.MAX_CONTENT_TYPE_BYTES} bytes of UTF-8"),
        (
            "run_service",
            f"at most {limits.MAX_APPEND_MESSAGES}, together at most {limits.MAX_APPEND_BYTES / limits.MIB} MiB",
        ),
        ("run_service", f"A page holds at most {limits.MAX_PAGE_BYTES / limits.MIB} MiB of payloads"),
        ("run_service", f"0 means {limits.DEFAULT_PAGE_ITEMS}, more than {limits.MAX_PAGE_ITEMS:,} means"),
        ("run_service", f"as often as the server allows ({Defaults().run_recoveries} by default)"),
        ("run_service", f"Nobody claimed it for {limits.RUN_ABANDON_SECONDS // DAY} days"),
        ("run_service", f"Runs that ended {Defaults().run_retention // (DAY * 1_000_000)} days ago are deleted"),
        ("store_service", f"within {limits.STORE_PROBE_SECONDS} seconds"),
    ],
)
def test_the_protocol_tells_the_limits_that_hold(proto: str, text: str) -> None:
    """Named constants, the same on every store (design section 3, Limits)."""
    assert text in _proto(proto)


def test_the_limits_are_those_of_the_design() -> None:
    """(design section 3, Limits)"""
    assert limits.MAX_APPEND_BYTES == limits.MAX_PAGE_BYTES == int(3.5 * 1024 * 1024)
    assert limits.MAX_MESSAGE_BYTES == 2 * 1024 * 1024
    assert limits.MAX_METADATA_BYTES == 64 * 1024
    assert limits.MAX_REQUEST_BYTES == 16 * 1024 * 1024
    assert limits.MAX_GROUP_COMMIT_BYTES == 4 * 1024 * 1024
    assert (limits.MAX_OPEN_CALLS, limits.MAX_APPEND_MESSAGES, limits.MAX_LABELS) == (256, 256, 64)
    assert limits.PURGE_DELAY_SECONDS == 60


def test_every_limit_says_why_and_is_shown() -> None:
    """`memoryd config` prints them all."""
    shown = limits.describe()
    assert set(shown) == {name for name in vars(limits) if name.startswith(("MAX_", "MIN_", "DEFAULT_"))} | {
        "AGENT_CACHE_SECONDS",
        "ACTIVITY_LAG_SECONDS",
        "PURGE_DELAY_SECONDS",
        "PURGE_BATCH",
        "STORE_PROBE_SECONDS",
        "EVENT_SECONDS",
        "LOOKUP_SECONDS",
        "STAGING_SECONDS",
        "STAGING_BATCH",
        "WATCH_PAGE_BYTES",
        "WATCH_STALL_SECONDS",
        "SUMMARY_PERCENT",
        "SUMMARY_WAIT_SECONDS",
        "SUMMARY_TASK_BYTES",
        "SUMMARY_TASK_MESSAGES",
        "FOLD_LEASE_SECONDS",
        "FOLD_SECONDS",
        "FOLD_BACKOFF_SECONDS",
        "RUN_ABANDON_SECONDS",
    }
    source = inspect.getsource(limits)
    for name in shown:
        assert re.search(rf'^{name}: Final = [^\n]+\n"""\w', source, re.MULTILINE), name
