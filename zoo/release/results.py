"""`python -m zoo.release.results [--check]`: every number that the papers print beside ours, docs/results.md and .csv.

`zoo/published.json` holds the published numbers, a row each; ours are those of
`zoo/weights/*/result.json`. A row without a run states what one would take.
"""

import argparse
import csv
import functools
import io
import json
import sys
from pathlib import Path

from keras_highway._support.keras_models import without_values
from keras_highway.analysis import StageCost, cost
from keras_highway.models.builder import build
from keras_highway.specs import NetSpec, override
from keras_highway.tasks import LANGUAGE, plus_minus, task_of
from keras_highway.training.recipes import RECIPES
from keras_highway.variants import VARIANTS
from keras_highway.weights.load import trimmed
from zoo.release import claims, conv_nets, first_epochs, photograph_nets
from zoo.release.commands import command_of
from zoo.release.commits import all_short
from zoo.release.generated import bring_up_to_date
from zoo.release.studies import precision_of, sections

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "zoo" / "published.json"
DOCS = ROOT / "docs"
COLUMNS = [
    "paper",
    "where",
    "data",
    "metric",
    "row",
    "published",
    "ours",
    "n",
    "std",
    "epochs",
    "seeds",
    "top5",
    "precision",
    "hardware",
    "commit",
    "command",
    "would_take",
    "rival",
    "here",
]
# Of the data sets that the recipes name.
TRAINING_IMAGES = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
TRAINING_TOKENS = 929_589
SUSTAINED = 1e14  # operations a second that are assumed of a GPU: 100 TFLOP/s


def published() -> list[dict]:
    """Return the papers' tables: paper, where, title, metric, data, rows; some have a note about ours."""
    return json.loads(PUBLISHED.read_text("utf-8"))


def rows(zoo: Path = ROOT / "zoo" / "weights") -> list[dict[str, str]]:
    """Return a row for every published number, with all `COLUMNS` as text."""
    numbers = []
    for table in published():
        for row in table["rows"]:
            values = {key: table[key] for key in ("paper", "where", "data", "metric")}
            values |= {"row": row["row"], "published": row["published"]}
            values |= {key: row.get(key, "") for key in ("rival", "here")}
            if "recipe" in row:
                values |= _ours(row, table, zoo)
            numbers.append({column: str(values.get(column, "")) for column in COLUMNS})
    return numbers


def _ours(row, table, zoo) -> dict:
    """Return the measured value, or the compute that it would take."""
    command = f"python -m keras_highway train {row['recipe']} --data DIR"
    path = zoo / row["weights"] / "result.json"
    if path.exists():
        command = command_of(path.parent)
    else:
        return {"command": command, "would_take": would_take(row["recipe"])}
    result = json.loads(path.read_text("utf-8"))
    scale = task_of(result).metric.scale
    keys = ("top5", "top5_std") if "top-5" in table["metric"] else ("mean", "std")
    value, std = (result.get(key) for key in keys)
    if value is None:
        raise ValueError(f"{path} has no top5, which {table['paper']}, {table['where']} prints: evaluate it again.")
    printed = 100.0 - 100.0 * value if "error" in table["metric"] else scale * value
    return {
        "ours": f"{printed:.2f}",
        "n": result["n"],
        "std": "" if std is None else f"{scale * std:.2f}",
        "epochs": f"{result['epochs']} of {result['of_epochs']}" if "of_epochs" in result else result["epochs"],
        "seeds": " ".join(map(str, result["seeds"])),
        "top5": f"{100 * result['top5']:.2f}" if "top5" in result else "",
        "precision": precision_of(result),
        "hardware": result["hardware"],
        "commit": all_short(result),
        "command": command,
    }


@functools.cache
def cost_of(
    spec: NetSpec, size: int | None = None, classes: int | None = None, removed: tuple[str, ...] = ()
) -> StageCost:
    """Return what a network costs in total for one image.

    Args:
        spec: Of the network, e.g. `VARIANTS["resnet50"]`.
        size: Height and width, by default the spec's.
        classes: Of the classifier, by default the spec's.
        removed: Names of blocks that are left out.
    """
    shape = spec.input_shape if size is None else (size, size, spec.input_shape[2])
    return without_values(lambda: cost(trimmed(build(spec, input_shape=shape, classes=classes), removed)).total)


def would_take(name: str) -> str:
    """Return what a run of a recipe takes, in words.

    Of image networks: multiply-adds of the forward pass, times three for a
    training step, times two operations, at 100 TFLOP/s. Small networks sustain
    less. Of language models: the tokens.
    """
    recipe = RECIPES[name]
    if recipe.task is LANGUAGE:
        return f"{recipe.epochs} epochs of {TRAINING_TOKENS:,} tokens"
    images = (recipe.train_images or TRAINING_IMAGES[recipe.data]) * recipe.epochs
    spec = override(VARIANTS[recipe.variant], **dict(recipe.overrides))
    operations = 6 * cost_of(spec, getattr(recipe, "train_size", None)).multiply_adds * images
    hours = f"{operations / SUSTAINED / 3600:#.3g}".removesuffix(".")
    return f"{recipe.epochs} epochs: {operations:.1e} operations, {hours} GPU hours at 100 TFLOP/s"


def as_csv(numbers: list[dict[str, str]]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(numbers)
    return text.getvalue()


def as_markdown(numbers: list[dict[str, str]]) -> str:
    """Return the page: a table for each of the papers' tables."""
    own = [row for row in numbers if not row["rival"] and row["published"] != "-" and not row["here"]]
    done = sum(bool(row["ours"]) for row in own)
    lines = [
        "# Every number of the papers, beside ours",
        "",
        f"Of {len(own)} numbers that the papers print of nets in this zoo, {done} have a run here; the others state "
        "what one would take (small networks sustain less than 100 TFLOP/s of a GPU, and of photographs one process "
        "reads some 1,700 a second at most, fewer than the fastest rows of ImageNet ask for: [imagenet](imagenet.md)). "
        "Test accuracy and perplexity are those of the last epoch, once; n is the number of seeds, ± their standard "
        "deviation. All columns, with hardware, commit and command of each: [results.csv](results.csv). "
        "Made by `python -m zoo.release.results`.",
    ]
    for table in published():
        part = [r for r in numbers if all(r[k] == table[k] for k in ("paper", "where", "data", "metric"))]
        lines += ["", f"## [{table['paper']}] {table['where']}: {table['title']}", ""]
        columns = f"published, {table['metric']} | ours | n | epochs | products in"
        lines += [f"| net | {columns} | hardware, commit, or what it takes |", "|---|---|---|---|---|---|---|"]
        lines += [_line(row) for row in part]
        lines += ["", table["note"]] if "note" in table else []
    lines += [*sections(), *photograph_nets.section(), *conv_nets.section(), *first_epochs.section()]
    return "\n".join(lines) + "\n"


def _commits(row) -> str:
    first, *others = row["commit"].split("; ")
    return f"`{first}`" + (f" and {len(others)} more" if others else "")


def _line(row) -> str:
    where = f"{row['hardware']}, {_commits(row)}" if row["ours"] else row["would_take"]
    if row["rival"]:
        where = f"reported by {row['rival']}"
    ours = plus_minus(row["ours"], row["std"])
    return (
        f"| {row['row']} | {row['published']} | {ours} | {row['n']} | {row['epochs']} | {row['precision']} | {where} |"
    )


def main(argv=None) -> int:
    """Parse the command line; returns 1 where a file and its results differ."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.results", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    args = parser.parse_args(argv)
    numbers = rows()
    texts = {
        DOCS / "results.csv": as_csv(numbers),
        DOCS / "results.md": as_markdown(numbers),
        DOCS / "claims.md": claims.page(),
    }
    message = "differs from the results; run python -m zoo.release.results"
    return max([bring_up_to_date(path, text, args.check, message) for path, text in texts.items()])


if __name__ == "__main__":
    sys.exit(main())
