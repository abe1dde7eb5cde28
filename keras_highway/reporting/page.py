"""A report as one HTML file that needs nothing else, and as JSON.

Written without a template engine: Jinja2 and MarkupSafe would be two more
dependencies for a page of thirty lines. All that is not written here goes
through `html.escape`, which a test with hostile texts keeps.
"""

import base64
import html
import json
import os
from pathlib import Path

import keras

from keras_highway._support.files import atomic_write, atomic_write_json, read_bounded
from keras_highway.reporting.report import Report
from keras_highway.reporting.section import Picture, Section
from keras_highway.tasks import IMAGES

_ALWAYS = {"title", "network", "gates", "lesions"}  # keys by which a report's numbers are known
_MOST = 256 * 2**20  # bytes of them
_STYLE = """
body { margin: 0 auto; max-width: 42rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1b1b1b; background: #fff; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .25rem; border-top: 1px solid #ddd; padding-top: 1rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .4rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .5rem 1rem; margin: 1rem 0; }
dt { font-size: .875rem; color: #595959; }
dd { margin: 0; font-weight: 600; }
figure { margin: 1.5rem 0; }
img { display: block; width: 100%; height: auto; }
figcaption { margin-top: .25rem; font-size: .9375rem; color: #404040; }
footer { margin-top: 2rem; font-size: .875rem; color: #595959; }
@media (max-width: 42rem) { figure { margin: 1.5rem -1rem; } figcaption { padding: 0 1rem; } }
"""


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Writes the page, and the numbers as JSON beside it; each whole or not at all.

    Args:
        report: What `make_report` returned.
        path: The page, a `.html` file.

    Returns:
        The path of the JSON file: the page's with the suffix `.json`.

    Raises:
        ValueError: If it is another file, whose name may be that of the
            numbers.
        FileExistsError: If there is a file of that name that no report has
            written.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"A report is a .html file, with its numbers beside it. Received: path={str(path)!r}")
    numbers = numbers_of(path)
    atomic_write(path, lambda p: p.write_text(page(report, numbers.name), "utf-8", "replace"))  # no lone surrogates
    atomic_write_json(numbers, {"title": report.title, **report.facts, **{s.key: s.numbers for s in report.sections}})
    return numbers


def numbers_of(path: Path) -> Path:
    """Returns where the numbers of a page go: an earlier report's are replaced, a file of another kind is not.

    Args:
        path: The page, a `.html` file.

    Raises:
        FileExistsError: If there is a file of that name that no report has
            written.
    """
    numbers = path.with_suffix(".json")
    if numbers.exists() and not _is_report(numbers):
        raise FileExistsError(
            f"{numbers}, where the numbers go, is not a report's, and is not replaced: choose another name for the "
            f"page. Received: {path}"
        )
    return numbers


def _is_report(numbers: Path) -> bool:
    try:
        content = json.loads(read_bounded(numbers, _MOST))  # NaN may be in it
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() >= _ALWAYS


def page(report: Report, numbers: str) -> str:
    """Returns the HTML of a report.

    Args:
        report: The report.
        numbers: Name of the JSON file beside it.
    """
    title = html.escape(report.title)
    links = "".join(f'<a href="#{html.escape(s.key)}">{html.escape(s.title)}</a>' for s in report.sections)
    facts = "".join(
        f"<div><dt>{_label(key)}</dt><dd>{_value(key, value)}</dd></div>" for key, value in report.facts.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1></header>\n<dl>{facts}</dl>\n<nav>{links}</nav>\n<main>\n"
        + "\n".join(map(_section, report.sections))
        + f"\n</main>\n<footer>All numbers are in {html.escape(numbers)}. [TVDN]: Training Very Deep Networks, 2015. "
        "[UIE]: Highway and Residual Networks learn Unrolled Iterative Estimation, 2017. "
        f"Keras {keras.__version__} on {keras.backend.backend()}.</footer>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    pictures = "".join(map(_figure, section.pictures))
    heading = f"<h2>{html.escape(section.title)}</h2>"
    return f'<section id="{html.escape(section.key)}">{heading}<p>{html.escape(section.text)}</p>{pictures}</section>'


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    caption = html.escape(picture.caption)
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def _label(key) -> str:
    return html.escape(key.replace("_", "-"))


def _value(key, value) -> str:
    if key == "accuracy":
        return IMAGES.metric.format(value)
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))
