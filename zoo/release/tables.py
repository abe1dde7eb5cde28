"""`python -m zoo.release.tables [--check]`: writes the tables of README and docs/ from the results in `zoo/`.

A table stands between `<!-- table:NAME -->` and `<!-- end:NAME -->`, on as
many pages as name it. With `--check` nothing is written, and a table that
differs from its results is an error.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from keras_highway._support.files import read_log
from keras_highway.tasks import IMAGES, LANGUAGE, format_metric, format_validation, task_of
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from keras_highway.variants import VARIANTS
from keras_highway.weights.info import format_epochs
from keras_highway.weights.registry import WEIGHTS, list_weights
from training import analysis_tables, search
from zoo.release import benchmark_tables, studies
from zoo.release.generated import bring_up_to_date
from zoo.release.results import published

ROOT = Path(__file__).resolve().parents[2]


def results(zoo: Path = ROOT / "zoo" / "weights") -> dict[str, dict]:
    """Return every result of the zoo by weights name."""
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(zoo.glob("[!.]*/result.json"))}


def weights_table(zoo: Path = ROOT / "zoo" / "weights") -> str:
    """Return the trained weights of image nets and what was measured of them."""
    lines = [
        "| weights | test accuracy (last epoch) | published, %: best (mean) | epochs | recipe |",
        "|---|---|---|---|---|",
    ]
    images = {name: result for name, result in results(zoo).items() if task_of(result) is IMAGES}
    tables = [table for table in published() if table["metric"] in ("accuracy, %", "top-1 accuracy, %")]
    printed = {row["weights"]: row["published"] for table in tables for row in table["rows"] if "weights" in row}
    for name, result in images.items():
        lines.append(
            f"| `{name}` | {format_metric(result)} | {printed.get(name, '-')} | {format_epochs(result)} "
            f"| `{WEIGHTS[name].recipe}` |"
        )
    return "\n".join([*lines, "", _trained_on(images)])


def language_table(zoo: Path = ROOT / "zoo" / "weights") -> str:
    """Return the trained weights of language models."""
    lines = [
        "| weights | test perplexity (last epoch) | published | validation | epochs | products in |",
        "|---|---|---|---|---|---|",
    ]
    models = {name: result for name, result in results(zoo).items() if task_of(result) is LANGUAGE}
    for name, result in models.items():
        products = result.get("precision", "float32").removeprefix("mixed_")
        lines.append(
            f"| `{name}` | {format_metric(result)} | {PUBLISHED_PERPLEXITIES.get(result['variant'], '-')} "
            f"| {format_validation(result)} | {format_epochs(result)} | {products} |"
        )
    return "\n".join([*lines, "", _trained_on(models)])


_CHOSEN = (
    "mnist10_w16.tvdn", "mnist10_w32.tvdn", "highway_fc50_tanh.tvdn", "resnet20.blog", "highway20.blog",
    "cifar100_19layer.fast", "resnet50.imagenette", "highway50.imagenette", "charlm_small_coupled.ptb",
    "charlm_large_coupled.ptb",
)  # fmt: skip
_DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "ptb": "Penn Treebank",
    "imagenette": "Imagenette",
}


def chosen_table() -> str:
    """Return the ten weights that the README recommends, with their sizes."""
    sizes, measured = {row["name"]: row for row in list_weights(details=True)}, results()
    lines = [
        "| weights | trained on | input | parameters | file | test result | in wheel |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in _CHOSEN:
        row, result, transform = sizes[name], measured[name], WEIGHTS[name].transform
        wheel = json.loads((ROOT / "zoo" / "weights" / name / "weights.json").read_text("utf-8"))["wheel"]
        shape = "words" if transform is None else " x ".join(str(n) for n in (*transform.size, transform.channels))
        metric = "perplexity " if task_of(result) is LANGUAGE else ""
        lines.append(
            f"| `{name}` | {_DATA[row['data']]} | {shape} | {row['parameters']:,} | {row['bytes'] / 1e6:.1f} MB "
            f"| {metric}{format_metric(result)} | {'yes' if wheel else 'no'} |"
        )
    return "\n".join(lines)


def _trained_on(measured) -> str:
    hardware = sorted({one for result in measured.values() for one in result.get("hardware", "unknown").split("; ")})
    return f"Trained on {'; '.join(hardware)}. Logs: `zoo/weights/*/log.csv`."


def variants_table() -> str:
    """Return the variants whose published architecture is known in full, and the count that its source prints."""
    lines = ["| variant | gating | trainable parameters | as printed | source |", "|---|---|---|---|---|"]
    for spec in VARIANTS.values():
        if spec.published_parameters:
            lines.append(
                f"| `{spec.name}` | {spec.gating} | {spec.published_parameters:,} "
                f"| {spec.printed_parameters or '-'} | {spec.source} |"
            )
    exact = [s.name for s in VARIANTS.values() if s.printed_parameters == f"{s.published_parameters or 0:,}"]
    note = (
        f"Printed to the last digit: {', '.join(f'`{name}`' for name in exact)}, in the authors' log. The other counts "
        "are derived from the published architecture; rounded or cut off, they are those printed."
    )
    return "\n".join([*lines, "", note])


def steps_table(folder: Path = ROOT / "zoo" / "runs" / "cpu_steps") -> str:
    """Run of some steps on a CPU, which show that a recipe works and are not results."""
    lines = [
        "| recipe | steps | training loss, first to last epoch | images/s | images | products in |",
        "|---|---|---|---|---|---|",
    ]
    hardware = set()
    for path in sorted(folder.glob("*/recipe.json")):
        recipe = json.loads(path.read_text("utf-8"))
        rows = read_log(path.with_name("log.csv"))
        losses = [row["train_loss"] for row in rows]
        speed = statistics.median(row["images_per_second"] for row in rows)
        environment = json.loads(path.with_name("environment.json").read_text("utf-8"))
        hardware.add(f"{environment['backend']}, {environment['hardware']}")
        lines.append(
            f"| `{recipe['name']}` | {rows[-1]['step']:.0f} | {losses[0]:.3f} to {losses[-1]:.3f} in {len(rows)} "
            f"| {speed:.0f} | {recipe['train_images']:,} | {recipe['precision'].removeprefix('mixed_')} |"
        )
    return "\n".join([*lines, "", f"On one busy core of: {'; '.join(sorted(hardware))}. n = 1."])


def figure1_table(path: Path = ROOT / "zoo" / "searches" / "figure1" / "result.json") -> str:
    """Return the random search of [TVDN, Figure 1] over plain and highway nets of 10 to 100 layers."""
    result = json.loads(path.read_text("utf-8"))
    first, *others = result["rungs"]
    extent = f"{first['runs']} runs of {first['epochs']} epochs"
    extent += "".join(f", the best {rung['runs']} of them on to {rung['epochs']}" for rung in others)
    where = f"{result['backend']}, {result['hardware']}, commit `{result['commit']}`"
    note = f"A cell: {extent}; n = 1 seed a run. {where}."
    return f"{search.table(result)}\n\n{_plain_over_highway(result['cells'])}\n{note}"


def _plain_over_highway(cells) -> str:
    """Return the best loss of each plain net over that of the highway net of as many layers."""
    ratios = []
    for cell, row in cells.items():
        other = cells.get(cell.replace("plain_", "highway_"), {})
        if cell.startswith("plain_") and "best_loss" in row and "best_loss" in other:
            ratio = row["best_loss"] / other["best_loss"]
            ratios.append(f"{ratio:,.{0 if ratio >= 10 else 1}f} at {search.depth_of(cell)} layers")
    return f"The plain net's best loss is the highway net's times {', '.join(ratios)}."


TABLES: dict[str, Callable[[], str]] = {
    "chosen": chosen_table,
    "weights": weights_table,
    "language": language_table,
    "variants": variants_table,
    "designs": studies.designs_table,
    "a3_losses": studies.a3_losses_table,
    "speed": benchmark_tables.speed_table,
    "steps_against_keras": benchmark_tables.steps_against_keras_table,
    "depth": benchmark_tables.depth_table,
    "host_pipeline": benchmark_tables.host_pipeline_table,
    "int8": benchmark_tables.int8_table,
    "remat": benchmark_tables.remat_table,
    "figure1": figure1_table,
    "claims": analysis_tables.claims_table,
    "figure4": analysis_tables.figure4_table,
    "trim": analysis_tables.trim_table,
    "steps": steps_table,
}


def render(text: str) -> str:
    """Return a text with every marked table made anew.

    Raises:
        ValueError: If a marked table is unknown, or has a start or an end alone.
    """

    def table(match):
        name = match[1]
        if name not in TABLES:
            raise ValueError(f"Unknown table {name!r}; known: {', '.join(TABLES)}.")
        return f"<!-- table:{name} -->\n{TABLES[name]()}\n<!-- end:{name} -->"

    new, count = re.subn(r"<!-- table:(\w+) -->\n.*?<!-- end:\1 -->", table, text, flags=re.S)
    if {text.count("<!-- table:"), text.count("<!-- end:")} != {count}:
        raise ValueError("A table has a start or an end alone: <!-- table:NAME --> ... <!-- end:NAME -->.")
    return new


def _rendered(page: Path) -> str:
    try:
        return render(page.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from error


def pages(root: Path = ROOT) -> list[Path]:
    """Return the files that have marked tables: the README and pages of `docs/`."""
    candidates = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in candidates if "<!-- table:" in path.read_text("utf-8")]


def main(argv=None) -> int:
    """Parse the command line; returns 1 where a table and its results differ."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files (default: the README and all of docs/)")
    args = parser.parse_args(argv)
    message = "a table differs from its results; run python -m zoo.release.tables"
    try:
        made = {page: _rendered(page) for page in args.pages or pages()}
    except (ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    return max([bring_up_to_date(page, text, args.check, message) for page, text in made.items()], default=0)


if __name__ == "__main__":
    sys.exit(main())
