"""Commands for language models: the tasks of `lm`, and `evaluate`."""

import argparse
import sys
from pathlib import Path

from keras_highway._support.terminal import json_text, table, visible, visible_json, visible_lines
from keras_highway.cli.main import OK, UsageError, usage_errors
from keras_highway.data.ptb import decoded, load_split, read_text
from keras_highway.language import CharLM
from keras_highway.tasks import LANGUAGE, format_recorded, of_this_file
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.info import described
from keras_highway.weights.sources import is_path, resolve

STAGES = ("before", "after")
_OF_IMAGES = ("data_set", "tfds", "v2", "real", "csv", "batch_size")


def score(arguments: argparse.Namespace) -> int:
    """Print the perplexity of each line of a text and of all, or JSON."""
    if arguments.file == "-" and sys.stdin is None:
        raise UsageError("There is no standard input to read: name a file.")
    with usage_errors():
        text = decoded(sys.stdin.buffer.read(), "-") if arguments.file == "-" else read_text(Path(arguments.file))
        model = CharLM(arguments.weights)
    score = model.score(text, progress=sys.stderr.isatty())
    strange = score.strange
    if arguments.json:
        lines = [{**line._asdict(), "perplexity": line.perplexity} for line in score.lines]
        total = {"perplexity": score.perplexity, "tokens": score.tokens, **strange._asdict()}
        print(visible_json({**total, "lines": lines}))
        return OK
    for line in score.lines:
        print(f"{line.perplexity:12.2f}  {visible(line.text)}".rstrip())
    print(f"total: perplexity {score.perplexity:.2f} of {score.tokens} tokens in {len(score.lines)} lines")
    for count, unit, reading in (
        (strange.unseen, "word", "never seen: read by its spelling, predicted as <unk>"),
        (strange.unreadable, "character", "never seen: read as the character of <unk>"),
        (strange.cut, "word", "longer than the longest: read without the last characters"),
    ):
        if count:
            print(f"note: {count} {unit}{'s' if count > 1 else ''} {reading}", file=sys.stderr)
    return OK


def generate(arguments: argparse.Namespace) -> int:
    """Print a text that continues the prompt."""
    with usage_errors():
        model = CharLM(arguments.weights)
        text = model.generate(arguments.prompt, arguments.words, arguments.temperature, arguments.seed)
    print(visible_lines(text))
    return OK


def neighbours(arguments: argparse.Namespace) -> int:
    """Print the nearest words before and after the highway layers, or JSON."""
    with usage_errors():
        model = CharLM(arguments.weights)
        found = {stage: model.neighbours(arguments.word, arguments.top, stage) for stage in STAGES}
    if arguments.json:
        report = {stage: [neighbour._asdict() for neighbour in nearest] for stage, nearest in found.items()}
        print(visible_json({"word": arguments.word, **report}))
        return OK
    pairs = zip(*found.values(), strict=True)
    rows = [[cell for word, cosine in pair for cell in (word, f"{cosine:.3f}")] for pair in pairs]
    headers = ("before highway layers", "cosine", "after highway layers", "cosine")
    print(table(headers, rows, right=("cosine",)))
    return OK


def evaluate(arguments: argparse.Namespace) -> int:
    """Print the perplexity of a corpus's test split, read as one sequence, next to the recorded one, or JSON."""
    for name in _OF_IMAGES:
        if getattr(arguments, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for images, and {arguments.weights} is a language model: use only "
                "--data, the folder of a corpus, and --json."
            )
    with usage_errors():
        words = load_split("test", arguments.data)
        file = resolve(arguments.weights)
        by_path = is_path(arguments.weights)
        recorded = dict(described(file.info).metrics) if by_path else dict(describe_weights(arguments.weights).metrics)
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
        print(f"note: {unseen} tokens are not in the vocabulary: read and predicted as <unk>", file=sys.stderr)
    if result:
        text, before = format_recorded(result)
        print(f"recorded: {visible(text)}; here {perplexity - before:+z.2f}")
    return OK
