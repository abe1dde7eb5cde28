"""How figures are written for people: aligned columns, shares, results."""

from collections.abc import Sequence


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Returns rows in aligned columns, two spaces apart.

    Args:
        headers: Titles of the columns.
        rows: Cells, one a column.
        right: Which columns are aligned to the right.
    """
    lines = [tuple(headers), *map(tuple, rows)]
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


def percent(share: float) -> str:
    """Returns a share in hundredths, e.g. `99.43 %`."""
    return f"{100 * share:.2f} %"


def size(shape: Sequence[int]) -> str:
    """Returns a shape, e.g. `28x28x1`."""
    return "x".join(map(str, shape))


def format_metric(result: dict | None) -> str:
    """Returns a result.json's metric with its spread and number of runs.

    `99.43 +- 0.03 % (n=3)` is an accuracy, `perplexity 79.13 (n=1)` another metric.
    """
    if not result:
        return "not measured"
    accuracy = result["metric"].endswith(("accuracy", "top1_as_published"))
    scale, unit = (100, " %") if accuracy else (1, "")
    spread = "" if result["std"] is None else f" +- {scale * result['std']:.2f}"
    name = "" if accuracy else result["metric"].removeprefix("test_") + " "
    return f"{name}{scale * result['mean']:.2f}{spread}{unit} (n={result['n']})"
