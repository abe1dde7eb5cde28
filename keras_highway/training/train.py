"""`python -m keras_highway train RECIPE`: train a recipe, or resume its run.

Recipes of photographs train on the classes of DIR/train/CLASS/* and
DIR/val/CLASS/*; others read mnist.npz, ... in DIR. No checkout is needed:

  python -m keras_highway train resnet50 --data DIR --init resnet50.a1 --freeze body

The line of an epoch ends in "waiting for data": the share of its time in which
nothing was computed because the next images were not decoded yet. Above a few
hundredths, more cores or a faster disk make training faster.

Before the first step on a CPU its memory is estimated: a note says if it may not
fit, and an error if it needs 1.5 times the free memory or more.
KERAS_HIGHWAY_MEMORY_CHECK=off disables the check.

Exit codes: 0 finished; 75 stopped by SIGTERM with its state saved: start it
again to resume; 2 an error; 1 an error that may pass, e.g. of a file system that
was away; 141 the reader of its output closed it.
"""

import argparse
import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from keras_highway._support.backend import explained
from keras_highway._support.files import may_pass
from keras_highway._support.schema import check_choice, positive
from keras_highway._support.terminal import CLOSED_PIPE, drop_output, is_closed, visible_lines
from keras_highway.data.datasets import DATA_VARIABLE, FOLDERS, folder_of
from keras_highway.tasks import LANGUAGE, format_metric, metric_name
from keras_highway.training.data.synthetic import PREFIX
from keras_highway.training.distributed.stopping import USAGE_ERROR, is_one_of_several
from keras_highway.training.recipe import LanguageRecipe, Recipe, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.weights.info import FILE, format_epochs

_MAY_PASS = 1  # a supervisor starts again after this exit code


def main(argv=None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help=", ".join(RECIPES))
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the data (default: KERAS_HIGHWAY_DATA; for MNIST and CIFAR else TensorFlow Datasets, else "
        "Keras downloads them once)",
    )
    parser.add_argument("--out", help="the run's folder (default: runs/RECIPE)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the recipe, or net.FIELD of its net",
    )
    parser.add_argument(
        "--init", metavar="WEIGHTS", help="start from weights: a name, a file, a folder or hf://org/name"
    )
    parser.add_argument("--freeze", metavar="STAGE", help="with --init: train after this stage; body: train the head")
    parser.add_argument("--strategy", default="auto", help="auto, none, mirrored, multiworker or jax (default: auto)")
    parser.add_argument("--tiny", action="store_true", help="a small net and made-up data: seconds, to try the command")
    parser.add_argument("--save-steps", type=positive, metavar="N", help="also save the state every N steps")
    parser.add_argument("--until", type=positive, metavar="EPOCH", help="stop after this epoch; a later call resumes")
    parser.add_argument("--log-steps", action="store_true", help="also write the loss of every step to steps.csv")
    parser.add_argument(
        "--finish", action="store_true", help="with --until: write weights and result although epochs are left"
    )
    args = parser.parse_args(argv)
    for name in ("init", "freeze", "data", "out"):  # e.g. an unset variable of a shell
        if getattr(args, name) == "":
            parser.error(f"--{name} is empty: give a value, or leave it out.")
    start = [f"{name}={getattr(args, name)!r}" for name in ("init", "freeze") if getattr(args, name) is not None]
    options = {name: getattr(args, name) for name in ("save_steps", "until", "log_steps", "finish")}
    with errors_in_a_line():
        recipe = choose(args.recipe, [*args.set, *start], args.tiny)
        out = args.out or f"runs/{recipe.name}"
        result = _train()(recipe, args.data, out, args.strategy, **options)
    if result is None:
        from keras_highway.training.checkpoint import epochs_of

        trained = epochs_of(Path(out) / "checkpoint.npz")  # an earlier call may have gone beyond --until
        print(f"{recipe.name}: {trained} of {recipe.epochs} epochs; run it again to resume")
        return
    print(summary(recipe, result, out, args.data))


def choose(name: str, settings: list[str], small: bool) -> Recipe | LanguageRecipe:
    """Return a recipe by name, with settings."""
    check_choice("recipe", name, RECIPES)
    recipe = tiny(RECIPES[name]) if small else RECIPES[name]
    return with_settings(recipe, settings)


def summary(
    recipe: Recipe | LanguageRecipe, result: Mapping[str, Any], out: str | os.PathLike, data_dir: str | None
) -> str:
    """Return the lines printed at the end of a run: the metric, the weights, the next commands."""
    metric = f"{metric_name(result)} {format_metric(dict(result))} after {format_epochs(dict(result))} epochs"
    commands = "\n".join(f"  python -m keras_highway {command}" for command in _next(recipe, str(out), data_dir))
    return f"{recipe.name}: {metric}\nweights: {Path(out) / FILE}\nnext:\n{commands}"


def _next(recipe, out: str, data_dir: str | None) -> list[str]:
    if recipe.data.startswith(PREFIX):  # made-up data: there is nothing to classify
        return [f"train {recipe.name.removesuffix('_tiny')} --data DIR"]
    # One word could be the name of weights.
    folder = shlex.quote(out if len(Path(out).parts) > 1 else f"./{out}")
    publish = f"publish {folder} --repo ORG/NAME"
    if recipe.task is LANGUAGE:
        return [f"lm generate --weights {folder}", f"lm score FILE --weights {folder}", publish]
    # The other commands look in the variable's folder only for sets with known names.
    elsewhere = not data_dir and recipe.data in FOLDERS and os.environ.get(DATA_VARIABLE)
    data_dir = str(folder_of(recipe.data, None)) if elsewhere else data_dir
    data = f" --data {shlex.quote(str(data_dir))}" if data_dir else ""
    if recipe.data.startswith("tfds:"):
        data = f" --tfds {shlex.quote(recipe.data.removeprefix('tfds:'))}{data}"
    return [f"classify IMAGE --weights {folder}", f"evaluate {folder}{data}", publish]


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Within it a known error ends the process with a line on stderr and an exit code, see above."""
    try:
        yield
    except (ValueError, OSError, ImportError, FloatingPointError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and is_closed():  # not another pipe
            drop_output()
            print("stopped: the reader of the output closed it. Start it again to resume.", file=sys.stderr)
            _end(CLOSED_PIPE)
        print(f"error: {visible_lines(str(error))}", file=sys.stderr)
        _end(_MAY_PASS if may_pass(error) else USAGE_ERROR)
    except Exception:
        if not is_one_of_several():
            raise
        traceback.print_exc()
        _end(_MAY_PASS)


def _end(code: int) -> NoReturn:
    """End the process; one of several skips JAX's shutdown, which waits minutes for the others."""
    if is_one_of_several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _train() -> Callable[..., dict | None]:
    """Return `loop.train`. Keras takes seconds to import: --help does not wait for it."""
    try:
        from keras_highway.training.loop import train
    except ModuleNotFoundError as error:
        raise explained(error) from error
    return train


if __name__ == "__main__":
    main()
