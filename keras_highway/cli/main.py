"""The commands, their arguments and errors; Keras is imported only after the arguments are known to be well formed."""

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from keras_highway._support.backend import explained
from keras_highway._support.schema import positive
from keras_highway._support.terminal import CLOSED_PIPE, as_lines, drop_output, is_full, open_missing, visible

OK = 0
DIFFERENT = 1  # `verify` found a difference
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as in shells
DEFAULT_WEIGHTS = "mnist10_w32.tvdn"
PROGRAM = "keras_highway"
_WEIGHTS_HELP = (
    "name from `list`, folder, .weights.h5 file of keras_highway, .keras file of one of its networks, or "
    "hf://org/name[@revision]"
)
_DATA_SET_HELP = (
    "mnist, cifar10, cifar100 or imagenet: sets the preprocessing, and the class names if the weights have none "
    "(default: the training data of the weights; for a file, the data its variant was published for)"
)
_DATA_HELP = (
    "folder of mnist.npz, cifar10.npz, cifar100.npz (default: KERAS_HIGHWAY_DATA, else TensorFlow Datasets, else "
    "Keras's download)"
)
_INVERT_HELP = "swap dark and light: the MNIST networks were trained on white digits on black"


class UsageError(Exception):
    """An error of the user's request: one line on stderr and exit code 2."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an error about the user's names, files and numbers into a `UsageError`; enclose only calls that use them."""
    try:
        yield
    except PermissionError as error:
        message = f"{error.filename}: permission denied: change its permissions, or choose another path"
        raise UsageError(message if error.filename else str(error)) from error
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(" ".join(str(error).split())) from error


def check_out(path: str, suffix: str, option: str = "--out") -> None:
    """Raise a `UsageError` if a file cannot be written, before the work begins."""
    folder = Path(path).parent
    problem = ""
    if not path.endswith(suffix):
        problem = f"{option} must name a {suffix} file."
    elif Path(path).is_dir():
        problem = f"{option} names a folder, not a file."
    elif not folder.is_dir():
        problem = f"There is no folder {folder}: make it first."
    elif not os.access(folder, os.W_OK):
        problem = f"The folder {folder} is not writable."
    if problem:
        raise UsageError(f"{problem} Received: {option} {path}")


def size(shape) -> str:
    """Return a shape as text, e.g. `28x28x1`."""
    return "x".join(map(str, shape))


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments, e.g. `["classify", "digit.png"]`. Defaults to
            `sys.argv[1:]`.

    Returns:
        The exit code: 0; 1 if `verify` finds a difference; 2 for a wrong
        request, an unreadable image or a full disk; 130 after Ctrl-C; 141 if
        the reader of the output closed it.

    Raises:
        SystemExit: With code 2 for malformed arguments, 0 for `--help`.
    """
    open_missing()
    argv = sys.argv[1:] if argv is None else argv
    # The training code parses its own arguments.
    train = argparse.Namespace(run="listing.train", arguments=argv[1:]) if argv[:1] == ["train"] else None
    arguments = train or _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # the output's encoding may lack letters of file names
    try:
        _check_names(arguments)
        run = _function(arguments.run)
        with as_lines(), _channels_last(arguments.run):
            code = run(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"{PROGRAM}: error: {visible(error)}", file=sys.stderr)
        return USAGE
    except MemoryError:
        print(f"{PROGRAM}: error: not enough memory: try fewer or smaller images at once", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return CLOSED_PIPE
    except OSError as error:
        if not is_full(error):
            raise
        drop_output()
        print(f"{PROGRAM}: error: {error.strerror}: the output could not be written", file=sys.stderr)
        return USAGE


def _check_names(arguments: argparse.Namespace) -> None:
    """Report wrong names of weights and images at once: importing Keras takes seconds."""
    images = getattr(arguments, "images", ())
    if images and not arguments.json and not any(os.path.lexists(path) for path in images):
        raise UsageError(f"{images[0]}: no such image file")
    word = getattr(arguments, "weights", None) or ""
    if arguments.run.startswith("text.") or not word.strip() or "/" in word or os.path.exists(word):
        return
    if word.endswith((".h5", ".keras", ".safetensors")):
        return  # its reader has a message for each kind of file
    from keras_highway.variants import ALL_VARIANTS
    from keras_highway.weights import registry

    with usage_errors():
        if word not in ALL_VARIANTS:
            registry.find(word)


def _function(name: str):
    module, function = name.split(".")
    try:
        return getattr(importlib.import_module(f"keras_highway.cli.{module}"), function)
    except ModuleNotFoundError as error:
        if (reason := explained(error)) is error:
            raise
        raise UsageError(str(reason)) from error


def _channels_last(name: str) -> contextlib.AbstractContextManager[None]:
    """Build networks of images channels last, the form of image files, whatever keras.json says."""
    if not name.startswith(("images.", "publish.")):
        return contextlib.nullcontext()
    from keras_highway._support.keras_models import channels_last

    return channels_last()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Networks with gated skip connections.")
    version = sys.modules["keras_highway"].__version__  # the package imports its own modules, they do not import it
    parser.add_argument("--version", action="version", version=f"keras-highway {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return parser


def _command(commands, run: str, text: str) -> argparse.ArgumentParser:
    """Add a command; `run` is the module and function that does it, and the function's name is the command's."""
    name = run.split(".")[1].removesuffix("_")
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(run=run)
    return parser


def _weights(parser, optional: bool = False) -> None:
    if optional:
        parser.add_argument("--weights", default=DEFAULT_WEIGHTS, help=f"{_WEIGHTS_HELP} (default: %(default)s)")
    else:
        parser.add_argument("weights", metavar="WEIGHTS", help=_WEIGHTS_HELP)
    parser.add_argument("--data-set", help=_DATA_SET_HELP)


def _json(parser) -> None:
    parser.add_argument("--json", action="store_true", help="write JSON")


def _list(commands) -> None:
    parser = _command(commands, "listing.list_", "show trained weights, or variants")
    parser.add_argument("pattern", nargs="?", default="*", help='only matching names, e.g. "highway*" (default: all)')
    parser.add_argument("--variants", action="store_true", help="show variants (default: weights; with --json, both)")
    _json(parser)


def _classify(commands) -> None:
    parser = _command(commands, "images.classify", "name what images show")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files of any common format")
    _weights(parser, optional=True)
    parser.add_argument("--top", type=positive, default=3, metavar="K", help="number of classes to show (default: 3)")
    text = "least probability of a label, if the head is a sigmoid (default: 0.5)"
    parser.add_argument("--threshold", type=float, default=0.5, metavar="P", help=text)
    parser.add_argument("--invert", action="store_true", help=_INVERT_HELP)
    _json(parser)


def _evaluate(commands) -> None:
    parser = _command(commands, "images.evaluate", "measure accuracy and loss, or perplexity, on a test set")
    _weights(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"{_DATA_HELP}; photographs in DIR/val/CLASS/* or DIR/CLASS/*, shards, or Tiny ImageNet's archive; with "
        "--tfds, its folder; for a language model, the folder of test.txt or ptb/test.txt",
    )
    parser.add_argument("--tfds", metavar="NAME", help="photographs that TensorFlow Datasets has prepared")
    parser.add_argument("--v2", action="store_true", help="the folders in DIR are class numbers, as in ImageNet-V2")
    parser.add_argument("--real", metavar="FILE", help="real.json: ReaL labels of ImageNet's validation images")
    parser.add_argument("--csv", metavar="FILE", help="add a line to a table (photographs only)")
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help="images at once (default: 500; photographs: 100)"
    )
    _json(parser)


def _gates(commands) -> None:
    parser = _command(commands, "images.gates", "draw every block's gate activity for an image")
    parser.add_argument("image", metavar="IMAGE", help="an image file of any common format")
    parser.add_argument("--out", required=True, metavar="FILE.png", help="the picture to write")
    _weights(parser, optional=True)
    parser.add_argument("--invert", action="store_true", help=_INVERT_HELP)


def _report(commands) -> None:
    parser = _command(commands, "images.report", "measure gates, lesions, orders and depth: an HTML page and JSON")
    _weights(parser)
    parser.add_argument("--out", required=True, metavar="FILE.html", help="the page; the numbers go to FILE.json")
    parser.add_argument("--data", metavar="DIR", help=f"{_DATA_HELP}; photographs in DIR/val/CLASS/* or DIR/CLASS/*")
    parser.add_argument(
        "--samples", type=positive, metavar="N", help="test images (default: 50 to 1000, about a minute on one core)"
    )


def _summary(commands) -> None:
    parser = _command(commands, "images.summary", "count parameters, multiply-adds and activation memory by stage")
    parser.add_argument("variant", metavar="VARIANT|WEIGHTS", help=f"a variant, or {_WEIGHTS_HELP}")
    parser.add_argument(
        "--input-shape", nargs=3, type=positive, metavar=("H", "W", "C"), help="image size (default: the variant's)"
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change a field of the variant's spec, e.g. --set gating=full --set blocks=[1,1,1,1]; may be repeated",
    )
    _json(parser)


def _train(commands) -> None:
    _command(commands, "listing.train", "train a recipe, or resume its run: `train --help`")


def _fetch(commands) -> None:
    parser = _command(commands, "publish.fetch", "download weights, to use them offline")
    parser.add_argument("weights", metavar="WEIGHTS", help="a name from `list`, or hf://org/name[@revision]")
    parser.add_argument(
        "--pin", action="store_true", help="record commit and sha256 of third-party weights for later downloads"
    )


def _publish(commands) -> None:
    parser = _command(commands, "publish.publish", "upload weights to the Hugging Face Hub")
    parser.add_argument("weights", nargs="?", metavar="RUN|NAME", help="folder of a finished run, or a weights name")
    parser.add_argument("--repo", required=True, metavar="ORG/NAME", help="the repository; with --all, only ORG")
    parser.add_argument("--all", action="store_true", help="publish all weights that have a folder in the zoo")
    parser.add_argument("--private", action="store_true", help="make a new repository private; refuse a public one")
    parser.add_argument("--dry-run", action="store_true", help="only report what would be uploaded")
    parser.add_argument("--dataset", metavar="TEXT", help="the card's data set, not with --all (default: the run's)")
    parser.add_argument("--license", metavar="TEXT", help="the weights' licence, not with --all (default: if known)")


def _verify(commands) -> None:
    parser = _command(commands, "publish.verify", "download a repository again and recompute its check")
    parser.add_argument("repository", metavar="ORG/NAME", help="a repository of the Hub, ORG/NAME[@REVISION]")
    parser.add_argument("--data", metavar="DIR", help="folder of the data set, to measure accuracy or perplexity again")
    parser.add_argument("--batch-size", type=positive, default=500, metavar="N", help="images at once (default: 500)")


def _export(commands) -> None:
    text = "write a network, or a language model's word vectors, for other programs, and compare the outputs"
    parser = _command(commands, "publish.export", text)
    parser.add_argument("weights", metavar="WEIGHTS", help=_WEIGHTS_HELP)
    parser.add_argument("--format", required=True, choices=("tf_saved_model", "onnx", "litert"), help="file format")
    parser.add_argument("--out", required=True, metavar="PATH", help="folder (tf_saved_model), .onnx or .tflite file")
    parser.add_argument("--fold-batch-norm", action="store_true", help="fold batch normalization into the convolutions")
    parser.add_argument("--logits", action="store_true", help="output logits, not probabilities")
    parser.add_argument("--any-size", action="store_true", help="take images of any height and width")
    text = "write a LiteRT file of 8-bit integers, scaled by training images of the data set"
    parser.add_argument("--int8", action="store_true", help=text)
    text = "with --int8: mnist, cifar10 or cifar100 (default: the training data of the weights)"
    parser.add_argument("--data-set", metavar="NAME", help=text)
    parser.add_argument("--data", metavar="DIR", help=f"with --int8: {_DATA_HELP}")


def _lm(commands) -> None:
    parser = commands.add_parser("lm", help="score and write text with a language model")
    tasks = parser.add_subparsers(required=True, metavar="TASK", dest="task")
    score = _command(tasks, "text.score", "measure how well a text is predicted, line by line")
    score.add_argument("file", metavar="FILE", help="UTF-8 text, one sentence per line; - for standard input")
    generate = _command(tasks, "text.generate", "continue a text")
    generate.add_argument("--prompt", default="", metavar="TEXT", help="its start (default: nothing)")
    generate.add_argument("--words", type=positive, default=50, metavar="N", help="words to add (default: 50)")
    generate.add_argument(
        "--temperature", type=float, default=1.0, help="0 takes the likeliest word (default: %(default)s)"
    )
    generate.add_argument("--seed", type=int, help="random seed (default: another text each time)")
    neighbours = _command(tasks, "text.neighbours", "show the nearest words, before and after the highway layers")
    neighbours.add_argument("word", metavar="WORD", help="any word, also an invented one")
    neighbours.add_argument("--top", type=positive, default=5, metavar="K", help="words to show (default: 5)")
    for task in (score, generate, neighbours):
        task.add_argument(
            "--weights",
            default="ptb",  # of CharLM's own default variant
            help="folder from CharLM.save, or a weights name (default: the large coupled model's)",
        )
    _json(score)
    _json(neighbours)


# In the order that `--help` shows.
_COMMANDS = (_list, _classify, _evaluate, _gates, _report, _summary, _train, _fetch, _publish, _verify, _export, _lm)
