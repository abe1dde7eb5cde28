"""The commands and their arguments. Nothing heavy is imported before a command is known to be well formed."""

import argparse
import contextlib
import importlib
import io
import sys

from keras_highway._support.backend import explained
from keras_highway._support.schema import positive
from keras_highway._support.terminal import CLOSED_PIPE, as_lines, drop_output, is_full, open_missing, visible
from keras_highway.cli.errors import INTERRUPTED, USAGE, UsageError

DEFAULT_WEIGHTS = "mnist10_w32.tvdn"
PROGRAM = "keras_highway"
_READ_IMAGES = ("classify", "evaluate", "export", "gates", "publish", "report", "summary", "verify")
_WEIGHTS_HELP = (
    "a name that `list` shows, a .weights.h5 file that keras_highway wrote, the folder of one, a .keras file that "
    "model.save wrote of one of its networks, or hf://org/name[@revision] (default: %(default)s)"
)
_DATA_SET_HELP = (
    "mnist, cifar10, cifar100 or imagenet: scaling and size of the images, and names of classes that have none "
    "(default: what the weights were trained on as `list` shows it; for a file, the data set its "
    "variant was published for)"
)
_DATA_HELP = (
    "folder of mnist.npz, cifar10.npz, cifar100.npz (default: KERAS_HIGHWAY_DATA, else TensorFlow Datasets, else what "
    "Keras downloads once)"
)
_INVERT_HELP = "swap dark and light first: the MNIST networks were trained on white digits on black"


def main(argv: list[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: The arguments, e.g. `["classify", "digit.png"]`. Defaults to the
            process's.

    Returns:
        The exit code: 0; 1 if `verify` finds a difference; 2 for an unknown
        name, an impossible request, an image that cannot be read or a disk
        that is full; 130 after Ctrl-C, 141 if the reader of its output closed
        it.

    Raises:
        SystemExit: With code 2 for malformed arguments, 0 for `--help`.
    """
    open_missing()
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be beyond the output's encoding
    try:
        command = _module(arguments.module)
        with as_lines(), _images_as_read(arguments.module):
            code = command.run(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"{PROGRAM}: error: {visible(error)}", file=sys.stderr)
        return USAGE
    except MemoryError:
        print(f"{PROGRAM}: error: there is not enough memory: try fewer or smaller images at once", file=sys.stderr)
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


def _arguments(argv: list[str]) -> argparse.Namespace:
    if argv[:1] == ["train"]:  # its arguments are read by the training code, which no other command needs
        return argparse.Namespace(module="train", arguments=argv[1:])
    return _parser().parse_args(argv)


def _module(name: str):
    try:
        return importlib.import_module(f"keras_highway.cli.{name}")
    except ModuleNotFoundError as error:
        if (reason := explained(error)) is error:
            raise
        raise UsageError(str(reason)) from error


def _images_as_read(module: str) -> contextlib.AbstractContextManager[None]:
    """Image files give channels last: so do networks that look at them, whatever the user's keras.json says."""
    if module not in _READ_IMAGES:
        return contextlib.nullcontext()
    from keras_highway._support.keras_models import channels_last

    return channels_last()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Networks with gated skip connections.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return parser


def _command(commands, name, module, text) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(module=module)
    return parser


def _list(commands) -> None:
    parser = _command(commands, "list", "listing", "show variants and trained weights")
    parser.add_argument("pattern", nargs="?", default="*", help='only matching names, e.g. "highway*" (default: all)')
    parser.add_argument("--json", action="store_true", help="write JSON")


def _classify(commands) -> None:
    parser = _command(commands, "classify", "classify", "name what images show")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files of any common format")
    _weights_arguments(parser)
    parser.add_argument("--top", type=positive, default=3, metavar="K", help="best classes to show (default: 3)")
    parser.add_argument("--invert", action="store_true", help=_INVERT_HELP)
    parser.add_argument("--json", action="store_true", help="write JSON")


def _evaluate(commands) -> None:
    parser = _command(commands, "evaluate", "evaluate", "measure accuracy and loss, or perplexity, on a test set")
    parser.add_argument("weights", metavar="WEIGHTS", help=_WEIGHTS_HELP.split(" (default")[0])
    parser.add_argument("--data-set", help=_DATA_SET_HELP)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"{_DATA_HELP}; or photographs: DIR/val/CLASS/*, or DIR/CLASS/*, or shards, or Tiny ImageNet's archive; "
        "with --tfds its folder; for a language model DIR/ptb/test.txt, or else DIR/test.txt (first where it is with "
        "train.txt and valid.txt)",
    )
    parser.add_argument("--tfds", metavar="NAME", help="a set of photographs that TensorFlow Datasets has prepared")
    parser.add_argument("--v2", action="store_true", help="the folders in DIR are numbers of classes, as ImageNet-V2's")
    parser.add_argument("--real", metavar="FILE", help="real.json: ImageNet's ReaL labels, of its validation images")
    parser.add_argument("--csv", metavar="FILE", help="add a line to a table (photographs)")
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help="images at once (default: 500, of photographs 100)"
    )
    parser.add_argument("--json", action="store_true", help="write JSON")


def _gates(commands) -> None:
    parser = _command(commands, "gates", "gates", "draw every block's gate activity for an image")
    parser.add_argument("image", metavar="IMAGE", help="an image file of any common format")
    parser.add_argument("--out", required=True, metavar="FILE.png", help="the picture to write")
    _weights_arguments(parser)
    parser.add_argument("--invert", action="store_true", help=_INVERT_HELP)


def _report(commands) -> None:
    parser = _command(commands, "report", "report", "measure gates, lesions, orders and depth: one HTML page, and JSON")
    parser.add_argument("weights", metavar="WEIGHTS", help=_WEIGHTS_HELP.split(" (default")[0])
    parser.add_argument("--out", required=True, metavar="FILE.html", help="the page; the numbers go to FILE.json")
    parser.add_argument("--data-set", help=_DATA_SET_HELP)
    parser.add_argument("--data", metavar="DIR", help=f"{_DATA_HELP}; or photographs: DIR/val/CLASS/*, or DIR/CLASS/*")
    parser.add_argument(
        "--samples",
        type=positive,
        metavar="N",
        help="test images (default: from 50 to 1000, as many as take about a minute on one core)",
    )


def _summary(commands) -> None:
    parser = _command(commands, "summary", "summary", "count parameters, multiply-adds and activation memory by stage")
    parser.add_argument("variant", metavar="VARIANT", help="a name that `list` shows")
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
    parser.add_argument("--json", action="store_true", help="write JSON")


def _train(commands) -> None:
    _command(commands, "train", "train", "train a recipe, or resume its run: `train --help`")


def _fetch(commands) -> None:
    parser = _command(commands, "fetch", "fetch", "download weights, for later use without a network")
    parser.add_argument("weights", metavar="WEIGHTS", help="a name that `list` shows, or hf://org/name[@revision]")
    parser.add_argument(
        "--pin",
        action="store_true",
        help="record commit and sha256 of third-party weights: later downloads must match",
    )


def _publish(commands) -> None:
    parser = _command(commands, "publish", "publish", "bring weights on the Hugging Face Hub up to date")
    parser.add_argument("weights", nargs="?", metavar="RUN|NAME", help="a finished run's folder, or a weights name")
    parser.add_argument("--repo", required=True, metavar="ORG/NAME", help="the repository; with --all, only ORG")
    parser.add_argument("--all", action="store_true", help="all weights that have a folder in the zoo")
    parser.add_argument(
        "--private", action="store_true", help="make a new repository private; one that is public is refused"
    )
    parser.add_argument("--dry-run", action="store_true", help="only report what would be uploaded")
    parser.add_argument(
        "--dataset", metavar="TEXT", help="the card's data set, not with --all (default: what the run knows)"
    )
    parser.add_argument(
        "--license", metavar="TEXT", help="the weights' licence, not with --all (default: what is known)"
    )


def _verify(commands) -> None:
    parser = _command(commands, "verify", "verify", "download a repository anew and compute its check again")
    parser.add_argument("repository", metavar="ORG/NAME", help="a repository of the Hub, ORG/NAME[@REVISION]")
    parser.add_argument("--data", metavar="DIR", help="folder of the data set, to measure accuracy or perplexity again")
    parser.add_argument("--batch-size", type=positive, default=500, metavar="N", help="images at once (default: 500)")


def _export(commands) -> None:
    text = "write a network, or what makes vectors of a language model's words, for other programs, and compare it"
    parser = _command(commands, "export", "export", text)
    parser.add_argument("weights", metavar="WEIGHTS", help=_WEIGHTS_HELP.split(" (default")[0])
    parser.add_argument("--format", required=True, choices=("tf_saved_model", "onnx", "litert"), help="of the file")
    parser.add_argument("--out", required=True, metavar="PATH", help="folder (tf_saved_model), .onnx or .tflite file")
    parser.add_argument("--fold-batch-norm", action="store_true", help="fold batch normalization into the convolutions")
    parser.add_argument("--logits", action="store_true", help="give logits, not probabilities")
    parser.add_argument("--any-size", action="store_true", help="take images of any height and width")
    text = "a LiteRT file of 8-bit whole numbers, scaled by training images of the data set that the weights are for"
    parser.add_argument("--int8", action="store_true", help=text)
    text = "of --int8: mnist, cifar10 or cifar100 (default: what the weights were trained on)"
    parser.add_argument("--data-set", metavar="NAME", help=text)
    parser.add_argument("--data", metavar="DIR", help=f"of --int8: {_DATA_HELP}")


def _lm(commands) -> None:
    parser = commands.add_parser("lm", help="score and write text with a language model")
    tasks = parser.add_subparsers(required=True, metavar="TASK", dest="task")
    score = _command(tasks, "score", "lm", "measure how well a text is predicted, line by line")
    score.add_argument("file", metavar="FILE", help="UTF-8 text, one sentence per line; - for standard input")
    generate = _command(tasks, "generate", "lm", "continue a text")
    generate.add_argument("--prompt", default="", metavar="TEXT", help="its start (default: nothing)")
    generate.add_argument("--words", type=positive, default=50, metavar="N", help="words to add (default: 50)")
    generate.add_argument(
        "--temperature", type=float, default=1.0, help="near 0 takes the likeliest word (default: %(default)s)"
    )
    generate.add_argument("--seed", type=int, help="of the draws (default: another text each time)")
    neighbours = _command(tasks, "neighbours", "lm", "show the nearest words, before and after the highway layers")
    neighbours.add_argument("word", metavar="WORD", help="any word, even one that does not exist")
    neighbours.add_argument("--top", type=positive, default=5, metavar="K", help="words to show (default: 5)")
    for task in (score, generate, neighbours):
        task.add_argument(
            "--weights",
            default="ptb",  # of CharLM's own default variant
            help="a folder that CharLM.save wrote, or a weights name (default: the large coupled model's)",
        )
    for task in (score, neighbours):
        task.add_argument("--json", action="store_true", help="write JSON")


def _weights_arguments(parser) -> None:
    parser.add_argument("--weights", default=DEFAULT_WEIGHTS, help=_WEIGHTS_HELP)
    parser.add_argument("--data-set", help=_DATA_SET_HELP)


# In the order that `--help` shows.
_COMMANDS = (_list, _classify, _evaluate, _gates, _report, _summary, _train, _fetch, _publish, _verify, _export, _lm)
