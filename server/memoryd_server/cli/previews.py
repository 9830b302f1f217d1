"""Messages as a person reads them: what is said, called and answered, in one line or as a whole."""

from collections.abc import Callable, Sequence

from rich.filesize import decimal
from rich.text import Text as Line

from memoryd import Data, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from memoryd_server.cli.safe_text import many_lines, one_line

_MAX_PARTS = 12
"""More parts of one message than any line has room for."""

Show = Callable[[str], str]
"""How a text of the conversation is made safe: as one line or with its lines."""


def preview(message: Message, tools: Sequence[str] = ()) -> Line:
    """A message in one line, as long as it is; the caller cuts it to the room there is.

    Args:
        message: The message.
        tools: The names of the tools of its results, as far as they are known.
    """
    line = _content(message, tools, one_line, "  ", _MAX_PARTS)
    if len(message.content or ()) > _MAX_PARTS:
        line.append(f"  … {len(message.content or ()) - _MAX_PARTS} more parts", "dim")
    return line


def whole(message: Message, tools: Sequence[str] = ()) -> Line:
    """A message as a whole, with its lines."""
    return _content(message, tools, many_lines, "\n", None)


def _content(message: Message, tools: Sequence[str], show: Show, separator: str, parts: int | None) -> Line:
    line = Line(f"{one_line(message.name)}: " if message.name else "", end="")
    if message.redaction is not None:
        reason = one_line(message.redaction.reason)
        return line.append(f"(redacted: {reason})" if reason else "(redacted)", "dim")
    if not message.content:
        return line.append("(no content)" if message.content is None else "(empty)", "dim")
    names = iter(tools)
    for index, part in enumerate(message.content[:parts]):
        line.append(separator if index else "")
        line.append_text(_part(part, show, next(names, "") if isinstance(part, ToolResult) else ""))
    return line


def _part(part: Part, show: Show, tool: str) -> Line:
    match part:
        case Text(text):
            return Line(show(text))
        case Reasoning(text):
            return Line(f"(thinking) {show(text)}".rstrip(), "italic dim")
        case Refusal(text):
            return Line.assemble(("refused: ", "red"), show(text))
        case Data(json):
            return Line(show(json))
        case Media():
            return Line(_media(part), "dim")
        case ToolCall(_, name, arguments):
            return Line.assemble(("→ ", "cyan"), (one_line(name), "cyan"), f"({show(arguments)})")
        case ToolResult():
            arrow = ("← failed: ", "red") if part.is_error else ("← ", "cyan")
            name = one_line(part.name or tool)
            said = Line("  ").join(_part(inner, show, "") for inner in part.parts)
            return Line.assemble(arrow, (f"{name}: " if name else "", "cyan"), said or ("(empty)", "dim"))


def _media(media: Media) -> str:
    kind = one_line(media.type) or "media"
    if media.data is not None:
        return f"[{kind}, {decimal(len(media.data))}]"
    return f"[{kind}, {one_line(media.uri or '', 120)}]"
