"""`evaluate` of a language model: perplexity of a corpus's test split, beside what was recorded."""

import sys

from keras_highway._support.terminal import json_text, visible
from keras_highway.cli.errors import OK, UsageError, usage_errors
from keras_highway.data.ptb import load_split
from keras_highway.hub import is_hub_name
from keras_highway.language import CharLM
from keras_highway.tasks import LANGUAGE, format_recorded, of_this_file
from keras_highway.weights import registry
from keras_highway.weights.description import describe_weights
from keras_highway.weights.resolve import WeightsFile, is_path, resolve, result_beside

_OF_IMAGES = ("data_set", "tfds", "v2", "real", "csv", "batch_size")


def run(arguments) -> int:
    """Prints a line, or JSON; a progress bar on a terminal.

    As in training and in the papers the split is one sequence of the
    vocabulary's words from a zero state, and a word that is not among them is
    `<unk>` (`lm score` reads it by its spelling).
    """
    for name in _OF_IMAGES:
        if getattr(arguments, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for images, and {arguments.weights} is a language model: only --data, "
                "the folder of a corpus, and --json go with it."
            )
    with usage_errors():
        words = load_split("test", arguments.data)
        file, recorded = _file_and_result(arguments.weights)
        model = CharLM(file)
    perplexity = model.perplexity(model.vocabulary.ids(words), progress=sys.stderr.isatty())
    unseen = model.vocabulary.strange(words).unseen
    result = None
    if recorded.get("test_tokens") == len(words):
        result = {key: recorded[key] for key in ("metric", "mean", "std", "n")} | of_this_file(recorded)
    if arguments.json:
        report = {"weights": arguments.weights, "tokens": len(words), "unseen": unseen, "perplexity": perplexity}
        print(json_text({**report, "recorded": result}))
        return OK
    print(f"{visible(arguments.weights)} on the {len(words)} test tokens: {LANGUAGE.metric.name} {perplexity:.2f}")
    if unseen:
        print(f"note: {unseen} of them are no words of its vocabulary: read and predicted as <unk>", file=sys.stderr)
    if result:
        text, before = format_recorded(result)
        print(f"recorded: {visible(text)}; here {perplexity - before:+z.2f}")
    return OK


def _file_and_result(weights: str) -> tuple[WeightsFile, dict]:
    if is_hub_name(weights) or weights in registry.WEIGHTS or not is_path(weights):
        return resolve(weights), dict(describe_weights(weights).metrics)
    file = resolve(weights)
    return file, result_beside(file.path)
