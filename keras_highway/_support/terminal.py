"""Text for users: notices, tables, suggestions, JSON, and text from outside on a terminal, in Markdown or a figure."""

import contextlib
import difflib
import errno
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Generator, Iterable, Sequence
from typing import Any


class Notice(UserWarning):
    """A note on what the user requested; nothing is wrong with the program. Every warning of the package is one.

    Example:

    >>> warnings.simplefilter("ignore", kh.Notice)
    """


@contextlib.contextmanager
def as_lines() -> Generator[None]:
    """Show notices as lines on stderr, without file and line of the program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd images: our own messages are more specific
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            if issubclass(category, Notice):
                print(f"note: {visible(message)}", file=sys.stderr)
            else:
                show_others(message, category, *args, **kwargs)

        warnings.showwarning = show
        yield


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
# Places where Markdown turns an address into a link; entities do not prevent that, a comment does.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[\w.+-])(?=@)", re.IGNORECASE)
# No control characters, no lone surrogates and no characters that reverse the order of others.
PRINTED = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]*\Z"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"\](?=[(\[:])|\]\Z")


def visible(text: object) -> str:
    """Return text for one line of a terminal; control characters and line feeds are escaped."""
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def brief(error: BaseException, most: int = 300) -> str:
    """Return the text of an error on one line, without the colours of Keras."""
    return " ".join(_COLOURS.sub("", str(error)).split())[:most].rstrip(".") or type(error).__name__


def visible_lines(text: str) -> str:
    """Return text for a terminal, as `visible`, but keep line feeds."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(value: Any) -> str:
    """Return indented JSON with unescaped letters; characters that are not printable are escaped."""
    text = json_text(value, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def in_figure(text: object) -> str:
    """Return text that matplotlib draws unchanged: a `$` does not start a formula."""
    return visible(text).replace("$", r"\$")


def in_markdown(value: Any) -> Any:
    """Return text that Markdown and HTML show unchanged, on one line and in one cell of a table."""
    if isinstance(value, dict):
        return {in_markdown(key): in_markdown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(in_markdown(item) for item in value)
    if not isinstance(value, str):
        return value
    # Escape only brackets that would make a link: `[TVDN] Table 1` is text already.
    text = _LINK.sub("&#93;", "".join(_MARKUP.get(c, c) for c in visible(value)))
    return _ADDRESS.sub("<!-- -->", _EMPHASIS.sub("&#95;", text))


def python_string(text: object) -> str:
    """Return a printable Python literal of a string, in double quotes, on one line."""
    quoted = (c if c.isprintable() and c not in '"\\' else '\\"' if c == '"' else _escape(c) for c in str(text))
    return f'"{"".join(quoted)}"'


def in_code_span(text: object) -> str:
    """Return code that Markdown shows unchanged, on one line and in one cell of a table."""
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


def json_text(value: Any, ensure_ascii: bool = True) -> str:
    """Return indented JSON that any program reads (RFC 8259): without `NaN` and `Infinity`."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=ensure_ascii, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=2, ensure_ascii=ensure_ascii, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def some(names: Sequence[str]) -> str:
    """Return the first of some names for a message, and the number of the others."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `" Did you mean 'a' or 'b'?"` for the known names that resemble one, or `""`."""
    near = difflib.get_close_matches(str(name), list(known), n=3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return rows in aligned columns, two spaces apart; unprintable characters are escaped."""
    lines = [tuple(headers), *(tuple(map(visible, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    aligned = [
        "  ".join(
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, line, widths, strict=True)
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in aligned)


CLOSED_PIPE = 141  # 128 + SIGPIPE, as shells have it


def open_missing() -> None:
    """Open missing standard streams (`<&- >&-`) onto the null device: else the next files get their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)


def is_closed() -> bool:
    """Whether the reader of stdout is gone."""
    try:
        print(flush=True)  # what could not be written may have been dropped: a flush alone would do nothing
    except BrokenPipeError:
        return True
    return False


def is_full(error: OSError) -> bool:
    """Whether an error means that stdout goes to a full disk."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
        return False
    try:
        print(flush=True)  # what could not be written may have been dropped: a flush alone would do nothing
    except OSError as again:
        return again.errno == error.errno
    return False


def drop_output() -> None:
    """Discard buffered output so that Python does not flush it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
