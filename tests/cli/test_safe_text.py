"""Text from conversations never reaches a terminal raw."""

from __future__ import annotations

import subprocess
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.cli.safe_text import many_lines, one_line, quoted

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)
DANGEROUS = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"


def dangerous(text: str, allowed: str = "") -> list[str]:
    return [
        character
        for character in text
        if unicodedata.category(character) in DANGEROUS and character not in JOINERS + allowed
    ]


@given(ANY_TEXT)
def test_one_line_holds_no_control_and_no_line_break(text: str) -> None:
    assert not dangerous(one_line(text))


@given(ANY_TEXT)
def test_many_lines_holds_no_control_beside_lines_and_tabs(text: str) -> None:
    assert not dangerous(many_lines(text), "\n\t")


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert one_line("\x1b[2J\x07 a\r\nb\tc \x00 \x7f \x9b31m \u202etxt") == "␛[2J␇ a b c ␀ ␡ \ufffd31m \ufffdtxt"
    assert many_lines("a\r\n\tb\rc") == "a\n\tb␍c"


def test_scripts_and_emoji_stay_as_they_are() -> None:
    text = "東京 👩‍💻 é café שלום 한국어 🇳🇴"
    assert one_line(text) == text
    assert many_lines(text) == text


def test_long_texts_are_looked_at_only_in_part() -> None:
    assert one_line("x" * 1_000_000, limit=10) == "x" * 10


@given(ANY_TEXT)
def test_a_quoted_word_holds_nothing_that_is_not_seen(text: str) -> None:
    assert quoted(text).isprintable()


def test_a_quoted_word_is_the_text_itself_to_a_shell() -> None:
    """What a hint says is copied: it must name what is there, and nothing that only looks like it."""
    texts = [
        "plain",
        "",
        "it's",
        "a  b",
        " a",
        "$HOME",
        "\x1b[2J\x07",
        "tab\there",
        "\u202e'\\",
        "\n",
        "é\x85",
        "東京\u200b7",
        "\udcff",
    ]
    words = " ".join(map(quoted, texts))
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True)
    assert done.stdout.decode(errors="surrogateescape").split("\0")[:-1] == texts
