"""Every number that the papers print, next to ours: docs/results.md and .csv.

`zoo/published.json` holds the published numbers; ours are those of
`zoo/weights/*/result.json`. A row without a run states what one would take.
`python -m zoo.release.tables` writes the files.
"""

import csv
import functools
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis import StageCost, cost
from keras_highway.analysis.plots import Curve, draw_training, training_axes, write
from keras_highway.models.builder import build
from keras_highway.specs import NetSpec, override
from keras_highway.tasks import LANGUAGE, plus_minus, task_of
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import defaults_of, differences
from keras_highway.variants import VARIANTS
from keras_highway.weights.load import trimmed
from training import head, read_json
from training.analysis_tables import CONV, NUMBERS, PHOTOGRAPHS
from zoo.release.studies import PICTURES, RUNS, precision_of, sections, short

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "zoo" / "published.json"
DOCS = ROOT / "docs"
COLUMNS = [
    *("paper", "where", "data", "metric", "row", "published", "ours", "n", "std", "epochs", "seeds", "top5"),
    *("precision", "hardware", "commit", "command", "would_take", "rival", "here"),
]
# Of the data sets that the recipes name.
TRAINING_IMAGES = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
TRAINING_TOKENS = 929_589
SUSTAINED = 1e14  # operations a second that are assumed of a GPU: 100 TFLOP/s


def published() -> list[dict]:
    """Return the papers' tables: paper, where, title, metric, data, rows; some have a note about ours."""
    return read_json(PUBLISHED)


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
    result = read_json(path)
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
    """Return what a network costs in total for one image."""
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


def as_csv(rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(numbers: list[dict[str, str]]) -> str:
    """Return the page: a table for each of the papers' tables."""
    own = [row for row in numbers if not row["rival"] and row["published"] != "-" and not row["here"]]
    done = sum(bool(row["ours"]) for row in own)
    lines = [
        "# Every number of the papers, next to ours",
        "",
        f"Of {len(own)} numbers that the papers print for nets of this zoo, {done} have a run here. For the others, "
        "the last column states what a run takes (small networks reach less than 100 TFLOP/s on a GPU, and one process "
        "reads about 1,700 photographs per second at most: [imagenet](imagenet.md)). Accuracies and perplexities are "
        "of the last epoch, on the test set; n is the number of seeds, ± their standard deviation. "
        "[results.csv](results.csv) has all columns, with hardware, commit and command. `python -m zoo.release.tables` "
        "writes this page.",
    ]
    for table in published():
        part = [r for r in numbers if all(r[k] == table[k] for k in ("paper", "where", "data", "metric"))]
        lines += ["", f"## [{table['paper']}] {table['where']}: {table['title']}", ""]
        columns = f"published, {table['metric']} | ours | n | epochs | products in"
        lines += head(f"| net | {columns} | hardware and commit, or estimated cost |")
        lines += [_line(row) for row in part]
        lines += ["", table["note"]] if "note" in table else []
    lines += [*sections(), *pictures_section(), *first_epochs_section()]
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


def all_short(result: Mapping[str, Any]) -> str:
    """Return the commits of a result's runs, shortened, in the order of runs and starts, with `"; "` between."""
    return "; ".join(short(commit) for commit in result.get("commit_changes", [result.get("commit")]) if commit)


_NAMES = ("name", "weights", "source", "seed")  # texts about a recipe, and what `seeds` records


def command_of(folder: Path) -> str:
    """Return the command that trains an entry's seeds again, as the recipes are now."""
    trained = read_json(folder / "recipe.json")
    seeds = read_json(folder / "result.json")["seeds"]
    recipe = RECIPES[trained["name"]]
    changes = differences(trained, recipe.to_dict(), defaults_of(recipe))
    other = {field: value for field, value in changes.items() if field not in _NAMES}
    if gone := other.keys() - recipe.to_dict().keys():
        raise ValueError(
            f"{folder} was trained with settings that its recipe no longer has: {', '.join(sorted(gone))}."
        )
    net = dict(other.pop("overrides", ()))
    if unset := dict(recipe.overrides).keys() - net.keys() if net else ():
        raise ValueError(f"{folder} was trained without settings of its recipe's net: {', '.join(sorted(unset))}.")
    parts = [f"python -m keras_highway train {trained['name']} --data DIR"]
    parts += [f'--set "net.{field}={_value(value)}"' for field, value in net.items()]
    parts += [f'--set "{field}={_value(value)}"' for field, value in other.items()]
    if len(seeds) > 1:  # a run's folder is one seed's
        parts.append(f"--set seed=N --out runs/{trained['name']}/N (N = {', '.join(map(str, seeds))})")
    elif seeds != [recipe.seed]:
        parts.append(f"--set seed={seeds[0]}")
    return " ".join(parts)


def _value(value):
    return "()" if value == [] else value


# The beginnings of the names of a net's pictures; the part's name is the end.
CONV_PICTURES = {
    "tvdn_figure2": "TVDN, Figure 2",
    "tvdn_figure3": "TVDN, Figure 3",
    "tvdn_figure4": "TVDN, Figure 4",
    "estimation": "UIE, Figure 3",
    "guided": "UIE, Figure 4",
    "patches": "UIE, Figure 4, patches",
    "gate_maps": "where gates open",
    "reshuffle": "blocks in another order",
    "drop": "several blocks disabled",
}


PHOTOGRAPH_PICTURES = {
    "highway50": {
        "estimation_imagenette_highway50": "UIE, Figure 3",
        "guided_imagenette_highway50": "UIE, Figure 4",
        "patches_imagenette_highway50": "UIE, Figure 4, patches",
        "gate_maps_imagenette_highway50": "where gates open",
    },
    "resnet50": {
        "estimation_imagenette_resnet50": "UIE, Figure 3",
        "guided_imagenette_resnet50": "UIE, Figure 4",
        "patches_imagenette_resnet50": "UIE, Figure 4, patches",
    },
    "both": {"lesions_imagenette": "one block disabled", "trim_imagenette": "blocks removed"},
}


def pictures_section(numbers: Path = NUMBERS) -> list[str]:
    """Return the lines: the pictures of each analysed net, and where they were made."""
    known = read_json(numbers)
    nets = [
        (f"`{weights}`", {f"{name}_{part}": title for name, title in CONV_PICTURES.items()}, weights, part)
        for part, weights in CONV.items()
    ] + [
        (net if net == "both" else f"`{net}.imagenette`", pictures, PHOTOGRAPHS, "imagenette")
        for net, pictures in PHOTOGRAPH_PICTURES.items()
    ]
    lines = ["", "## Pictures of the convolutional nets", "", "Their numbers are in [claims](claims.md).", ""]
    for name, pictures, weights, part in nets:
        if weights in known:
            links = ", ".join(f"[{title}](analysis/{file}.png)" for file, title in pictures.items())
            made = known[weights]["made"][part]
            lines.append(f"- {name}: {links}. Made on {made['hardware']}, `{short(made['commit'])}`.")
    parts = " ".join((*CONV, "imagenette"))
    return [*lines, "", f"`python -m training.figures --data DIR --only {parts}` makes them again."]


LOGS = RUNS.with_name("published_logs.json")
PICTURE = PICTURES / "first_epochs.png"
_SCHEDULES = (
    "The rate of the `_fast` recipes rises to 0.1 in two epochs and falls to 0 until the tenth. In the authors' logs "
    "it stays at 0.1 for 100 of 200 epochs (`resnet110`: 0.01 in the first epoch)."
)
_NO_COMPARISON = (
    "A falling rate may explain a higher accuracy, not a lower one. We have not looked for the reason why "
    "`highway110_fast` learns more slowly than the authors' net; its gates start nearly closed (bias -6), which also "
    "slowed `highway20`. These runs do not compare the two nets: one seed each, no tuned rate or bias, and "
    "`highway110` has 1.5 times the parameters."
)


class Beside(NamedTuple):
    """A run and the authors' log of its net."""

    recipe: str  # the run's recipe
    theirs: list[float]  # test accuracy in percent after each epoch, of as many epochs
    ours: list[float]  # test accuracy in percent after each epoch, of as many epochs
    source: str  # of the authors' log
    seed: int  # of the run
    where: str  # its hardware and commit

    @property
    def log_of(self) -> str:
        """The recipe that the authors' log is of."""
        return self.recipe.removesuffix("_fast")


def known_logs(runs: Path = RUNS) -> list[Beside]:
    """Return the runs whose net has a published log, also those that are not over."""
    found = []
    logs = read_json(LOGS)
    for recipe, log in ((f"{net}{form}", log) for net, log in logs.items() for form in ("", "_fast")):
        path = runs / recipe / "log.csv"
        if not path.exists():
            continue
        ours = [100 * row["test_accuracy"] for row in read_log(path)][: len(log["epochs"])]
        seed = read_json(path.with_name("recipe.json"))["seed"]
        made = read_json(path.with_name("environment.json"))
        where = f"{made['hardware']}, `{short(made['commit'])}`"
        found.append(Beside(recipe, log["epochs"][: len(ours)], ours, log["source"], seed, where))
    return found


def first_epochs_section(runs: Path = RUNS) -> list[str]:
    """Return the lines: a table and the picture."""
    lines = head("| recipe | test accuracy, %, after epoch 1, 2, ... | seed | hardware, commit |")
    found = known_logs(runs)
    for one in found:
        lines.append(f"| `{one.log_of}`, the authors | {_listed(one.theirs)} | | {one.source} |")
        lines.append(f"| `{one.recipe}`, here | {_listed(one.ours)} | {one.seed} | {one.where} |")
    return [
        "",
        "## First epochs next to the authors' logs",
        "",
        *lines,
        "",
        " ".join((_SCHEDULES, *(_gap(one) for one in found if one.recipe != one.log_of), _NO_COMPARISON)),
        "",
        f"![Test accuracy after each of the first epochs, here and in the authors' logs](results/{PICTURE.name})",
    ]


def _listed(accuracies) -> str:
    return ", ".join(f"{accuracy:.4g}" for accuracy in accuracies)


def _gap(one) -> str:
    """How far a run's last epoch is from the authors' of the same number, and whether all before are on that side."""
    gaps = [ours - theirs for ours, theirs in zip(one.ours, one.theirs, strict=True)]
    side = "above" if gaps[-1] > 0 else "below"
    always = ", as after every epoch" if min(gaps) > 0 or max(gaps) < 0 else ""
    return f"After epoch {len(gaps)} `{one.recipe}` is {abs(gaps[-1]):.1f} points {side} the authors' log{always}."


def draw_first_epochs(runs: Path = RUNS, path: Path = PICTURE) -> None:
    """Draws the runs with lines and the authors' logs dashed, a color for each recipe."""
    curves = []
    for i, one in enumerate(known_logs(runs)):
        epochs = range(1, len(one.ours) + 1)
        lines = ((one.ours, f"{one.recipe}, here", "-"), (one.theirs, f"{one.log_of}, the authors", "--"))
        curves += [Curve(epochs, y, label, {"color": f"C{i}", "ls": ls, "marker": "."}) for y, label, ls in lines]
    figure, (axis,) = training_axes(1, 4.2)
    draw_training(axis, curves, ylabel="test accuracy, %")
    write(figure, path)
