"""Text from outside at the doors it leaves by: a terminal, JSON on a terminal, a matplotlib figure, Markdown.

Class names, file names and words may hold anything; what a reader of bytes
would take for a command is written so that it is seen instead.
"""

import json
import re
from typing import Any

from keras_highway._support.json_text import json_text

_MARKUP = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "`": "&#96;",
    "|": "&#124;",
    "*": "&#42;",
    "\\": "&#92;",
    "~": "&#126;",
}
_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word, mnist10_w16, it is not one
# Where an address begins that Markdown makes a link of; entities do not keep it from that, a comment does.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[\w.+-])(?=@)", re.IGNORECASE)
_LINK = re.compile(r"\](?=[(\[:])|\]\Z")


def visible(text: object) -> str:
    """Returns text for a terminal's line: what is not printable (control characters, line feeds) as its escape.

    Args:
        text: Anything; `str` of it.
    """
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def visible_lines(text: str) -> str:
    """As `visible`, where line feeds are the writer's own."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(value: Any) -> str:
    """Returns indented JSON whose letters stay as they are; what is not printable is escaped as JSON has it.

    Args:
        value: JSON values.
    """
    text = json_text(value, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def in_figure(text: object) -> str:
    """Returns text that matplotlib draws as it is: a `$` does not start a formula.

    Args:
        text: Anything; `str` of it, made `visible`.
    """
    return visible(text).replace("$", r"\$")


def in_markdown(value: Any) -> Any:
    """Returns text that Markdown and HTML show as it is, on one line and in one cell of a table.

    Args:
        value: Text, or a dict or list that holds some; other values stay.
    """
    if isinstance(value, dict):
        return {in_markdown(key): in_markdown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(in_markdown(item) for item in value)
    if not isinstance(value, str):
        return value
    # Of brackets only what would make a link: `[TVDN] Table 1` is text already.
    text = _LINK.sub("&#93;", "".join(_MARKUP.get(c, c) for c in visible(value)))
    return _ADDRESS.sub("<!-- -->", _EMPHASIS.sub("&#95;", text))


def python_string(text: object) -> str:
    """Returns a Python literal of a string, in double quotes, on one line and printable.

    Args:
        text: Anything; `str` of it.
    """
    quoted = (c if c.isprintable() and c not in '"\\' else '\\"' if c == '"' else _escape(c) for c in str(text))
    return f'"{"".join(quoted)}"'


def in_code_span(text: object) -> str:
    """Returns code that Markdown shows as it is, on one line and in one cell of a table.

    Args:
        text: Anything; `str` of it.
    """
    text = str(text)
    # Within backticks entities are shown as they are: text that would end the span or the cell becomes HTML.
    plain = text.isprintable() and text == text.strip() and text and not {"`", "|"} & set(text)
    return f"`{text}`" if plain else f"<code>{in_markdown(text)}</code>"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def is_text(text: str) -> bool:
    """Whether a string can be written to a file as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
