"""Text from outside at every door: nothing of it is taken for a command by a terminal, matplotlib, Markdown or HTML."""

import ast
import dataclasses
import json
import re
import shlex
import shutil
import types
from html import unescape

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

from keras_highway._support.terminal import (
    in_figure,
    in_markdown,
    python_string,
    table,
    visible,
    visible_json,
    visible_lines,
)
from keras_highway.analysis import plot_routing_profile
from keras_highway.cli import main
from keras_highway.weights import registry
from keras_highway.weights.card import model_card

NAME = "mnist10_w16.tvdn"
HOSTILE = "\x1b[2J\x9b1m\ncat 100.00 %\r\u202e$x_$ |`<script>*[a](http://b)\\"
texts = st.text(st.characters(), max_size=40) | st.text("\\$|`<>&*[](:!_~/.w@\x1b\n\r\u2028 a", max_size=12)
quick = settings(max_examples=200, deadline=None, database=None)


@quick
@given(texts)
@example(HOSTILE)
def test_a_terminal_gets_printable_text_that_can_be_read(text):
    shown = visible(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()  # what is printable stays as it is
    assert all(line.isprintable() for line in visible_lines(text).split("\n"))
    as_json = visible_json({"text": text})
    assert all(line.isprintable() for line in as_json.split("\n")) and json.loads(as_json) == {"text": text}
    assert table(("a",), [(text,)]).count("\n") == 2


@quick
@given(texts)
@example(HOSTILE)
@example("$x_$")
@example("\\$")
def test_matplotlib_draws_it_as_it_is(text):
    drawn, is_formula = Text()._preprocess_math(in_figure(text))
    assert drawn == visible(text) and not is_formula


@quick
@given(texts)
@example(HOSTILE)
@example("_a_ __a__ ~~a~~ http://b www.b.c a@b.c")
def test_markdown_shows_it_as_it_is(text):
    escaped = in_markdown(text)
    assert not re.search(r"://|www\.|[\w.+-]@", escaped, re.IGNORECASE)  # a comment keeps addresses from being links
    shown = escaped.replace("<!-- -->", "")
    assert not set(shown) & set("<>`|*~\\\n\r") and not re.search(r"\]([(\[:]|\Z)", shown)
    assert not re.search(r"(\A|[\W_])_|_([\W_]|\Z)", shown)  # emphasis begins and ends at the edges of words
    assert unescape(shown) == visible(text)
    assert in_markdown({text: [text, 3]}) == {escaped: [escaped, 3]}


@quick
@given(texts)
@example('\U000e0001\\"')
def test_a_literal_of_python_is_the_text(text):
    literal = python_string(text)
    assert literal.isprintable() and ast.literal_eval(literal) == text


def test_names_of_ours_read_well_in_markdown():
    for name in ("mnist10_w16.tvdn", "test_accuracy", "2 CPU cores, x86_64", "[TVDN] Table 1", "stage1_block1"):
        assert in_markdown(name) == name


def test_pictures_with_hostile_names(tmp_path):
    routing = types.SimpleNamespace(classes=np.arange(2), difference={"stage1_block1": np.ones((2, 3))}, numbers=(1,))
    names = ["$\\frac{", "a$b$"]
    figure = plot_routing_profile(routing, names, tmp_path / "a.png", title="$\\frac{$")
    labels = [label._preprocess_math(label.get_text()) for label in figure.axes[0].get_yticklabels()]
    assert labels == [(name, False) for name in names]


def test_a_card_of_a_hostile_result():
    row = registry.described(registry.find(NAME))
    recipe = {"name": HOSTILE, "source": HOSTILE, "epochs": 3}
    metrics = {**row.metrics, "weights": HOSTILE, "hardware": HOSTILE, "metric": HOSTILE, "commit": HOSTILE}
    hostile = dataclasses.replace(row, name=HOSTILE, classes=(HOSTILE,) * 10, data_licence=HOSTILE, metrics=metrics)
    text = model_card(hostile, "org/name", recipe, True).split("---\n", 2)[2]
    plain = model_card(row, "org/name", {"name": "a", "source": "b", "epochs": 3}, True, shipped=False).split(
        "---\n", 2
    )[2]
    assert text.count("\n") == plain.count("\n") and text.count("|") == plain.count("|")
    assert "<script" not in text and "](http://b" not in text and "\x1b" not in text and "\x9b" not in text


@pytest.mark.parametrize("variant", ["mnist10_w16.tvdn", "charlm_small_coupled.ptb"])
@pytest.mark.parametrize("name", ['x "y" @z_', "www.a_", "a`b|c", "it's\x1b", HOSTILE.replace("\n", "")])
def test_code_on_a_card_has_names_as_they_are(variant, name):
    row = dataclasses.replace(registry.described(registry.find(variant)), name=name)
    text = model_card(row, "", {"name": name, "source": name}, True, shipped=True).split("---\n", 2)[2]
    program = re.search(r"```python\n(.*?)\n```", text, re.DOTALL)[1]
    strings = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    assert name in strings
    in_backticks = re.findall("`([^`\n]*)`", text)
    spans = [unescape(span) for span in re.findall("<code>(.*?)</code>", text.replace("<!-- -->", ""))] + in_backticks
    calls = [span for span in spans if span.startswith(("kh.", "keras.saving.")) and span.endswith(")")]
    assert len(calls) == 2 and all(name == ast.parse(call).body[0].value.args[0].value for call in calls)
    (command,) = [span for span in spans if " train " in span]
    assert shlex.split(command) == ["python", "-m", "keras_highway", "train", visible(name), "--data", "DIR"]
    assert not any("&#" in span or "<!--" in span for span in [program, *in_backticks])


def test_the_command_line_with_hostile_names(tmp_path, capsys):
    image = tmp_path / "\x1b[2J\nforged: cat 100.00 %.png"
    Image.new("L", (28, 28), 0).save(image)
    broken = tmp_path / "\x9b2J\nbroken.png"
    broken.write_bytes(b"")
    main(["classify", str(image), str(broken), "--weights", NAME])
    out, err = capsys.readouterr()
    assert out.count("\n") == err.count("\n") == 1 and "\\x1b[2J\\nforged" in out and "\\x9b2J\\nbroken" in err
    assert main(["evaluate", "\x1b[2J\n.weights.h5"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    out = tmp_path / "$x_$ \x1b.png"
    assert (
        main(["gates", str(shutil.copy(image, tmp_path / "$\\frac{.png")), "--out", str(out), "--weights", NAME]) == 0
    )
    assert out.stat().st_size > 10_000 and "\x1b" not in capsys.readouterr().out
