"""Which window options are in force (design section 3, LoadWindow)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import agents
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import Append, append
from memoryd_server.engine.policies import (
    OPTION_NAMES,
    PolicyUpdate,
    WindowSettings,
    check_options,
    check_policy,
    merge_policy,
    resolve,
)
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import OpenCalls, Oversize, Policy, SummaryPolicy, WindowMode, WindowOptions
from tests.engine.messages import KEY, user

options = st.builds(
    WindowOptions,
    st.one_of(st.none(), st.sampled_from(WindowMode)),
    st.one_of(st.none(), st.integers(1, limits.MAX_WINDOW_MESSAGES)),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.sampled_from(OpenCalls)),
    st.one_of(st.none(), st.sampled_from(Oversize)),
)

DEFAULTS = WindowSettings(WindowMode.MESSAGES, 10_000, True, False, OpenCalls.OMIT, Oversize.SHORTEN)


def test_without_any_policy_the_documented_defaults_hold() -> None:
    """MESSAGES, 10,000, pinned instructions, OMIT, SHORTEN (`WindowOptions` in the protocol)."""
    assert resolve() == DEFAULTS
    assert resolve(WindowOptions(), WindowOptions()) == DEFAULTS


@given(st.lists(options, max_size=4))
@settings(max_examples=300)
def test_each_field_comes_from_the_most_special_level_that_gives_it(levels: list[WindowOptions]) -> None:
    """The request, else the session's policy, else the agent's, else the server's: field by field."""
    in_force = resolve(*levels)
    for name in OPTION_NAMES:
        given_ = [value for level in levels if (value := getattr(level, name)) is not None]
        assert getattr(in_force, name) == (given_[0] if given_ else getattr(DEFAULTS, name))


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_a_value_that_is_false_or_the_default_still_overrides(name: str) -> None:
    """Field presence wherever unset and zero differ (design section 3)."""
    special = WindowOptions(WindowMode.MESSAGES, 10_000, False, False, OpenCalls.OMIT, Oversize.SHORTEN)
    general = WindowOptions(WindowMode.TOKENS, 7, True, True, OpenCalls.KEEP, Oversize.FAIL)
    one_field = WindowOptions(**{name: getattr(special, name)})
    assert getattr(resolve(one_field, general), name) == getattr(special, name)


@pytest.mark.parametrize(
    ("mode", "limit", "accepted"),
    [
        (None, 0, False),
        (None, -1, False),
        (None, 1, True),
        (WindowMode.MESSAGES, 100_000, True),
        (WindowMode.MESSAGES, 100_001, False),
        (WindowMode.TOKENS, 100_001, True),
        (WindowMode.TOKENS, 100_000_000, True),
        (WindowMode.TOKENS, 100_000_001, False),
        (None, 100_000_001, False),
    ],
)
def test_limits_are_in_the_range_of_their_mode(mode: WindowMode | None, limit: int, accepted: bool) -> None:
    """1 to 100,000 messages or 1 to 100,000,000 tokens (invariant 7)."""
    wanted = WindowOptions(mode, limit)
    if accepted:
        check_options("options", wanted)
        return
    with pytest.raises(RequestError) as refused:
        check_options("options", wanted)
    assert refused.value.reason == Reason.FIELD_INVALID
    assert refused.value.metadata == {"field": "options.limit"}


def test_a_limit_may_be_too_large_for_the_mode_that_it_meets() -> None:
    """The two may come from different levels."""
    wanted = WindowOptions(limit=limits.MAX_WINDOW_MESSAGES + 1)
    assert resolve(wanted, WindowOptions(mode=WindowMode.TOKENS)).limit == limits.MAX_WINDOW_MESSAGES + 1
    with pytest.raises(RequestError) as refused:
        resolve(wanted, WindowOptions(mode=WindowMode.MESSAGES))
    assert refused.value.metadata == {"field": "options.limit"}


@pytest.mark.parametrize("mode", [None, WindowMode.MESSAGES])
def test_a_limit_beyond_all_messages_is_stored_with_the_mode_of_tokens_only(mode: WindowMode | None) -> None:
    """Otherwise, every load that gives neither would fail for what its caller did not send."""
    check_policy("policy", Policy(WindowOptions(WindowMode.TOKENS, limits.MAX_WINDOW_MESSAGES + 1)))
    with pytest.raises(RequestError) as refused:
        check_policy("policy", Policy(WindowOptions(mode, limits.MAX_WINDOW_MESSAGES + 1)))
    assert refused.value.metadata == {"field": "policy.window.limit"}


@given(options, st.one_of(st.none(), options), st.lists(st.sampled_from(OPTION_NAMES)), options)
def test_a_policy_is_replaced_as_a_whole_and_then_in_single_fields(
    old: WindowOptions, whole: WindowOptions | None, names: list[str], new: WindowOptions
) -> None:
    """(AIP-134)"""
    replaced = merge_policy(Policy(old), None if whole is None else PolicyUpdate(Policy(whole), window=True))
    assert replaced.window == (old if whole is None else whole)
    merged = merge_policy(replaced, PolicyUpdate(Policy(new), window_fields=tuple(names)))
    expected = msgspec.structs.asdict(replaced.window) | {name: getattr(new, name) for name in names}
    assert msgspec.structs.asdict(merged.window) == expected


@pytest.mark.parametrize("old", [None, SummaryPolicy(keep=3)])
def test_a_summary_policy_is_replaced_by_itself_or_with_the_whole(old: SummaryPolicy | None) -> None:
    """(AIP-134)"""
    stored, new = Policy(WindowOptions(limit=5), old), Policy(WindowOptions(limit=6), SummaryPolicy(keep=4))
    assert merge_policy(stored, PolicyUpdate(new, summary=True)) == Policy(stored.window, new.summary)
    assert merge_policy(stored, PolicyUpdate(Policy(), summary=True)) == Policy(stored.window)
    assert merge_policy(stored, PolicyUpdate(new, window=True)) == Policy(new.window, old)
    assert merge_policy(stored, PolicyUpdate(new, whole=True)) == new


@pytest.mark.parametrize("summarizer", ["openai", "magic", "Extractive", " "])
async def test_a_policy_names_a_summarizer_that_the_server_has(summarizer: str) -> None:
    """Storing another one would make every fold fail."""
    store = InMemoryStore()
    runtime = Runtime("default", store, await store.open(), Defaults())
    policy = Policy(summary=SummaryPolicy(summarizer=summarizer))
    for call in (
        append(runtime, Append(KEY, [user("hi")], settings=SessionSettings(policy=policy))),
        agents.update(runtime, "default", "agent", AgentUpdate(PolicyUpdate(policy, whole=True))),
    ):
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.metadata["field"].endswith("policy.summary.summarizer")
        assert "extractive, client" in refused.value.text
    for known in ("extractive", "client", ""):
        whole = PolicyUpdate(Policy(summary=SummaryPolicy(summarizer=known)), whole=True)
        await agents.update(runtime, "default", "agent", AgentUpdate(whole))
