"""What people write behind options."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from memoryd_server import limits
from memoryd_server.cli import app
from memoryd_server.cli.options import duration
from tests.cli.commands import Here


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


def options_of_one_value() -> Iterator[tuple[list[str], str]]:
    """The options of all commands that take one value, each with the words that lead to its command."""

    def walk(group: TyperGroup, words: list[str]) -> Iterator[tuple[list[str], str]]:
        for name, command in group.commands.items():
            if isinstance(command, TyperGroup):
                yield from walk(command, [*words, name])
            for option in command.params:
                if isinstance(option, TyperOption) and not option.multiple and not option.is_flag:
                    yield [*words, name], option.opts[0]

    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return walk(root, [])


@pytest.mark.parametrize(("words", "option"), [*options_of_one_value()], ids=str)
def test_an_option_of_one_value_that_is_given_twice_is_refused(here: Here, words: list[str], option: str) -> None:
    """None of the values is dropped silently, whatever the command."""
    done = here.memoryd(*words, option, "1", option, "1")
    assert done.returncode == 2
    told = " ".join(done.stderr.replace("│", "").split())
    assert f"'{option}'" in told
    assert "it is given more than once" in told


def test_help_is_given_whatever_else_is_asked(here: Here) -> None:
    done = here.memoryd("copy", "--from", "a", "--from", "b", "--help")
    assert done.returncode == 0
    assert "Copy sessions" in done.stdout


def test_a_flag_may_be_repeated(here: Here) -> None:
    assert here.memoryd("stores", "--json", "--json", "--address", "127.0.0.1:1").returncode == 1
