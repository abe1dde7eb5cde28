"""`lm`: a language model scores a text, continues one, shows the neighbours of a word."""

import sys
from pathlib import Path

from keras_highway._support.terminal import visible, visible_json, visible_lines
from keras_highway.cli.errors import OK, UsageError, usage_errors
from keras_highway.cli.tables import table
from keras_highway.data.ptb import decoded, read_text
from keras_highway.language import CharLM

STAGES = ("before", "after")


def run(arguments) -> int:
    """Runs the requested task."""
    return _TASKS[arguments.task](arguments)


def _score(arguments) -> int:
    if arguments.file == "-" and sys.stdin is None:
        raise UsageError("There is no standard input to read: name a file.")
    with usage_errors():
        text = decoded(sys.stdin.buffer.read(), "-") if arguments.file == "-" else read_text(Path(arguments.file))
        model = CharLM(arguments.weights)
    score = model.score(text, progress=sys.stderr.isatty())
    if arguments.json:
        lines = [{**line._asdict(), "perplexity": line.perplexity} for line in score.lines]
        total = {"perplexity": score.perplexity, "tokens": score.tokens, **score.strange._asdict()}
        print(visible_json({**total, "lines": lines}))
        return OK
    for line in score.lines:
        print(f"{line.perplexity:12.2f}  {visible(line.text)}".rstrip())
    print(f"total: perplexity {score.perplexity:.2f} of {score.tokens} tokens in {len(score.lines)} lines")
    for note in _notes(score.strange):
        print(note, file=sys.stderr)
    return OK


def _notes(strange) -> list[str]:
    """What the vocabulary does not know of a text, and how it was read instead."""
    notes = (
        (strange.unseen, "word", "never seen: read by its spelling, predicted as <unk>"),
        (strange.unreadable, "character", "never seen: read as the character of <unk>"),
        (strange.cut, "word", "longer than the longest: read without the last characters"),
    )
    return [f"note: {count} {what}{'s' if count > 1 else ''} {why}" for count, what, why in notes if count]


def _generate(arguments) -> int:
    with usage_errors():
        model = CharLM(arguments.weights)
        text = model.generate(arguments.prompt, arguments.words, arguments.temperature, arguments.seed)
    print(visible_lines(text))
    return OK


def _neighbours(arguments) -> int:
    with usage_errors():
        model = CharLM(arguments.weights)
        neighbours = {stage: model.neighbours(arguments.word, arguments.top, stage) for stage in STAGES}
    if arguments.json:
        report = {stage: [neighbour._asdict() for neighbour in nearest] for stage, nearest in neighbours.items()}
        print(visible_json({"word": arguments.word, **report}))
        return OK
    pairs = zip(*neighbours.values(), strict=True)
    rows = [[cell for word, cosine in pair for cell in (word, f"{cosine:.3f}")] for pair in pairs]
    headers = ("before highway layers", "cosine", "after highway layers", "cosine")
    print(table(headers, rows, right=("cosine",)))
    return OK


_TASKS = {"score": _score, "generate": _generate, "neighbours": _neighbours}
