"""Text from conversations, made safe for a terminal: it can neither move the cursor nor hide what is shown."""

import shlex
import unicodedata

_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need, and that change nothing but the shape of their neighbours."""
_SPACES = ("Zs", "Zl", "Zp")
_UNSAFE = ("Cc", "Cf", "Cs")


def one_line(text: str, limit: int = 600) -> str:
    """The beginning of a text as one line: white space becomes one space, other control characters become visible.

    Args:
        text: Any text, of any length.
        limit: The most characters of it that are looked at.
    """
    return _visible(" ".join(text[:limit].split()), keep="")


def many_lines(text: str) -> str:
    """The whole text with its lines and tabs; other control characters become visible."""
    return _visible(text.replace("\r\n", "\n"), keep="\n\t")


def quoted(text: str) -> str:
    """A word of a command line that a person can copy, and that is this very text to a shell: what is not printable is
    spelled as bash, zsh and ksh have it (`$'…'`).
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_spelled, text))}'"


def _spelled(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    # What is no UTF-8 in an argument or in the name of a file is there as these.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors=errors))


def _visible(text: str, keep: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else _replacement(character) for character in text
    )


def _replacement(character: str) -> str:
    category = unicodedata.category(character)
    if category in _SPACES:
        return " "
    if category not in _UNSAFE or character in _JOINERS:
        return character
    if character < " ":
        return chr(0x2400 + ord(character))
    return "\u2421" if character == "\x7f" else "\ufffd"
