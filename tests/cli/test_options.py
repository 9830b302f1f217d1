"""What people write behind options."""

from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from memoryd_server import limits
from memoryd_server.cli.options import duration


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1s", timedelta(seconds=1)),
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        (" 1 d 12 h ", timedelta(days=1, hours=12)),
        (f"{limits.MAX_TTL_SECONDS}s", timedelta(seconds=limits.MAX_TTL_SECONDS)),
    ],
)
def test_a_time_is_numbers_with_units(text: str, meant: timedelta) -> None:
    assert duration(text) == meant


@pytest.mark.parametrize("text", ["", "30", "d", "1y", "-1d", "1.5h", "1d and 2h", "٣d"])
def test_what_is_no_time_says_what_one_is(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="for example 30d or 12h"):
        duration(text)


@pytest.mark.parametrize("text", ["0s", f"{limits.MAX_TTL_SECONDS + 1}s", "9" * 30 + "w"])
def test_a_time_beyond_what_a_session_can_live_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="1 second to 100 years"):
        duration(text)
