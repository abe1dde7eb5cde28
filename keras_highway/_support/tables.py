"""Rows in aligned columns."""

from collections.abc import Sequence

from keras_highway._support.outside_text import visible


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Returns rows in aligned columns, two spaces apart.

    What is not printable in a cell is written as its escape.

    Args:
        headers: Titles of the columns.
        rows: Cells, one per column.
        right: Which columns are aligned to the right.
    """
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
