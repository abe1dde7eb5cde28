"""The report: a page that needs nothing else, whose pictures show something and whose numbers agree with each other."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from miniatures import batch, miniature
from PIL import Image

from keras_highway import analysis
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.report import Picture, Report, Section, make_report, write_report
from keras_highway.weights import files as weights_file

KEYS = ["gates", "routing", "lesions", "orders", "estimation", "trim"]
VOID = {"meta", "img", "link", "br", "hr", "input"}
TAGS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "dl", "div", "dt", "dd", "nav", "a", "main"}
TAGS |= {"section", "h2", "p", "figure", "img", "figcaption", "footer"}


class Page(HTMLParser):
    """Parts of a page; raises on tags that do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.links, self.ids, self.text = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("href", "src", "action", "data") if name in attributes]
        if tag == "img":
            self.images.append(attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def pictures(page) -> list[np.ndarray]:
    """The page's pictures, decoded."""
    arrays = []
    for image in page.images:
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/png;base64" and image["alt"]
        arrays.append(np.asarray(Image.open(io.BytesIO(base64.b64decode(data, validate=True))).convert("RGB")))
    return arrays


@pytest.fixture(scope="module")
def dense():
    model = miniature("dense_stack", depth=6, units=8)
    images = (255 * batch(model, 40)).astype("uint8")
    return model, images, np.arange(40) % 4


@pytest.fixture(scope="module")
def written(dense, tmp_path_factory):
    """A page and its numbers."""
    model, images, labels = dense
    path = tmp_path_factory.mktemp("report") / "a report.html"
    classes = ["zero", "one", "<two> & a", *map(str, range(3, 10))]
    transform = lambda x: x / np.float32(255)  # noqa: E731
    report = make_report(model, (images, labels), "net <1> on data", transform=transform, classes=classes, samples=24)
    numbers = write_report(report, path)
    return path, json.loads(numbers.read_text("utf-8"))


def test_page_is_whole_and_needs_nothing_else(written):
    path, _ = written
    page = Page(path.read_text("utf-8"))
    assert set(KEYS) <= set(page.ids) and len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link.startswith("data:image/png;base64,") or link[1:] in page.ids
    text = " ".join(page.text)
    assert "net <1> on data" in text and "url(" not in text and "@import" not in text
    assert 'name="viewport" content="width=device-width' in path.read_text("utf-8")
    assert sorted(p.name for p in path.parent.iterdir()) == ["a report.html", "a report.json"]


def test_pictures_show_something(written):
    drawn = pictures(Page(written[0].read_text("utf-8")))
    assert len(drawn) == 7  # two of the gates
    for image in drawn:
        assert image.shape[0] > 200
        colours = image[::4, ::4].reshape(-1, 3) @ (1 << 16, 1 << 8, 1)
        assert len(np.unique(colours)) > 20 and image.std() > 10
    assert len({image.tobytes() for image in drawn}) == len(drawn)
    assert len({image.shape[1] for image in drawn}) == 1  # of one width


def test_numbers_agree(written, dense):
    model, images, labels = dense
    _, numbers = written
    assert list(numbers)[-6:] == KEYS and numbers["images"] == 24
    chosen = np.sort(np.random.default_rng(0).permutation(40)[:24])
    predicted = model.predict(images[chosen] / np.float32(255), verbose=0).argmax(-1)
    assert numbers["accuracy"] == (predicted == labels[chosen]).mean()
    lesions, trim, orders = numbers["lesions"], numbers["trim"], numbers["orders"]["stage1"]
    for accuracy in (lesions["intact_accuracy"], trim["accuracy"][0], orders["intact_accuracy"]):
        assert accuracy == numbers["accuracy"]
    assert lesions["blocks"] == list(analysis.blocks(model)) == list(numbers["gates"]["blocks"])
    assert len(lesions["accuracy"]) == len(lesions["loss"]) == numbers["blocks"] == 5
    assert lesions["free_blocks"] == sum(a >= lesions["intact_accuracy"] - 0.001 - 1e-9 for a in lesions["accuracy"])
    assert sorted(trim["removed"]) == sorted(lesions["blocks"]) and trim["depth"] == [5, 4, 3, 2, 1, 0]
    assert (
        trim["parameters"][0] == numbers["parameters"]
        and trim["accuracy"][trim["removable"]] >= trim["accuracy"][0] - 0.0011
    )
    assert len(orders["tau"]) == len(orders["accuracy"]) == len(orders["orders"])
    assert numbers["estimation"]["stage1"]["std"][-1] == 0
    t = np.stack([entry.t for entry in analysis.trace(model, images[chosen] / np.float32(255)).values()])
    assert numbers["gates"]["mean_gate"] == pytest.approx(t.mean(), rel=1e-5)
    assert numbers["gates"]["open_for_one_image"] == pytest.approx((t > 0.5).mean(), abs=1e-6)
    assert (
        numbers["routing"]["classes"] == ["zero", "one", "<two> & a", "3"] and sum(numbers["routing"]["images"]) == 24
    )


def test_residual_nets_say_what_they_do_not_have():
    model = miniature("conv_stack", gating="residual")
    report = make_report(model, (batch(model, 6), np.arange(6)), "residual")
    sections = {section.key: section for section in report.sections}
    for key in ("gates", "routing"):
        assert not sections[key].pictures and "gating='residual'" in sections[key].text
        assert sections[key].numbers == {"absent": sections[key].text} and "Received" not in sections[key].text
    assert [len(sections[key].pictures) for key in KEYS[2:]] == [1, 1, 1, 1]


@pytest.fixture
def trained(tmp_path):
    """A folder with a weight file and a small MNIST."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (30, 28, 28), np.uint8), rng.integers(0, 10, 30)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    weights_file.save(create_model("highway_fc10"), tmp_path / "net.weights.h5", "highway_fc10", 10)
    return tmp_path


@pytest.mark.slow
def test_command(trained, capsys):
    out = trained / "report.html"
    arguments = ["report", str(trained / "net.weights.h5"), "--data", str(trained), "--out", str(out)]
    assert main([*arguments, "--samples", "20"]) == 0
    output = capsys.readouterr().out
    assert output == f"wrote 6 analyses over 20 test images to {out} and {trained / 'report.json'}\n"
    assert len(pictures(Page(out.read_text("utf-8")))) == 7
    assert json.loads((trained / "report.json").read_text())["network"] == "highway_fc10"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"--out": "report.txt"}, "must name a .html file"), ({"--data": "absent"}, "No file absent/mnist.npz")],
)
def test_wrong_requests(trained, capsys, change, message):
    options = {"--data": str(trained), "--out": str(trained / "report.html"), **change}
    assert main(["report", str(trained / "net.weights.h5"), *(a for pair in options.items() for a in pair)]) == 2
    assert message in capsys.readouterr().err
    assert not (trained / "report.html").exists() and not (trained / "report.json").exists()


HOSTILE = (
    "</title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><!--",
    "&lt;b&gt;",
    "\ud800\x00\x1b[2J",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_escaped(text, tmp_path):
    section = Section(text, text, text, (Picture(b"png", text),), {})
    write_report(Report(text, {text: text, "classes": (text,)}, (section,)), tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text("utf-8")
    parsed = Page(written)
    assert set(re.findall(r"<(\w+)", written)) <= TAGS and "<!--" not in written
    assert [image.keys() for image in parsed.images] == [{"alt", "src"}]
    shown = text.replace("\ud800", "?").replace("\x00", "\ufffd")
    assert parsed.images[0]["alt"].replace("\x00", "\ufffd") == shown


def test_a_report_replaces_a_report(written):
    path, numbers = written
    before = path.with_suffix(".json").read_bytes()
    sections = tuple(Section(key, key, "text", (), numbers[key]) for key in KEYS)
    facts = {key: value for key, value in numbers.items() if key not in ("title", *KEYS)}
    with pytest.raises(FileExistsError, match="is not a report's"):
        path.with_suffix(".json").write_text("{}")
        write_report(Report(numbers["title"], facts, sections), path)
    path.with_suffix(".json").write_bytes(before)
    page = path.read_bytes()
    write_report(Report(numbers["title"], facts, sections), path)
    assert path.with_suffix(".json").read_bytes() == before
    path.write_bytes(page)
