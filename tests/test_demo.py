"""`demo/`: what its page computes, and the page itself in a browser where there are gradio and one."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

DEMO = Path(__file__).resolve().parents[1] / "demo"
DIGIT = DEMO.parent / "samples" / "digit_7.png"
# Path of a Chromium, or "playwright" for its own. If set, as by `make demo-browser`, nothing is skipped.
BROWSER = "KERAS_HIGHWAY_BROWSER"


@pytest.fixture
def explain(monkeypatch):
    monkeypatch.syspath_prepend(str(DEMO))
    import explain

    return explain


@pytest.mark.slow
def test_a_digit_its_gates_and_what_lesions_make_of_it(explain):
    import keras_highway as kh

    whole = explain.explain(DIGIT)
    assert next(iter(whole.classes)) == "7" and whole.closed == ()
    assert sum(whole.classes.values()) <= 1.0 + 1e-5 and len(whole.classes) == 5
    assert len(whole.gates) == 8 and all(gate.min() >= 0 and gate.max() <= 1 for gate in whole.gates.values())
    least = min(whole.gates, key=lambda name: whole.gates[name].mean())

    one = explain.explain(DIGIT, close=1)
    assert one.closed == (least,)
    model = kh.load("mnist10_w32.tvdn")
    x = kh.preprocess_input(one.pixels[None], weights="mnist10_w32.tvdn")
    expected = np.asarray(kh.analysis.rewire(model, kh.analysis.lesion(least))(x))[0]
    assert one.classes["7"] == pytest.approx(expected[7], abs=1e-5)
    assert explain.explain(DIGIT, close=99, order=explain.FROM_LAST).closed == explain.closable(explain.DIGITS)[::-1]


def test_the_orders_in_which_blocks_close(explain):
    gates = {"a": np.full((2, 2), 0.5), "b": np.full((2, 2), 0.1), "c": np.full((2, 2), 0.9)}
    orders = {order: explain.in_order(gates, ("a", "b", "c"), order) for order in explain.ORDERS}
    assert list(orders.values()) == [("b", "a", "c"), ("a", "b", "c"), ("c", "b", "a")]


def test_a_space_has_what_the_hub_requires():
    """https://huggingface.co/docs/hub/spaces-config-reference"""
    front = (DEMO / "README.md").read_text().split("---")[1]
    fields = dict(re.findall(r"^(\w+): (.*)$", front, re.M))
    assert fields["sdk"] == "gradio" and (DEMO / fields["app_file"]).is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["sdk_version"])
    assert len(fields["short_description"]) <= 60
    needed = [re.match(r"[\w-]+", line)[0] for line in (DEMO / "requirements.txt").read_text().split("\n") if line]
    assert needed == ["keras-highway", "gradio"]


def needed(module):
    """Imports what the page's test needs; skips the test where that is missing and no browser is named."""
    if BROWSER in os.environ:
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"{module} is not installed: make demo-browser installs it")


@pytest.fixture
def address():
    """The page, served by a process of its own."""
    needed("gradio")
    port = "7871"
    environment = {**os.environ, "GRADIO_SERVER_PORT": port, "GRADIO_ANALYTICS_ENABLED": "False"}
    environment["PYTHONPATH"] = os.pathsep.join([str(DEMO.parent), *sys.path])
    process = subprocess.Popen([sys.executable, str(DEMO / "app.py")], env=environment)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                break
            except OSError:
                assert process.poll() is None, "the demo ended"
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(20)


def chromium(playwright):
    """A headless Chromium: the one that the variable names, one that playwright or the system has."""
    path = os.environ.get(BROWSER, shutil.which("chromium") or shutil.which("google-chrome"))
    if path is None and not Path(playwright.chromium.executable_path).exists():
        pytest.skip(f"there is no Chromium: playwright install chromium, or name one in {BROWSER}")
    path = None if path == "playwright" else path
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


@pytest.mark.slow
def test_the_page_in_a_browser(address, tmp_path):
    """A digit is chosen, its class appears; the slider closes blocks, and the sentence names them."""
    sync_api = needed("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.locator("input[type=file]").first.set_input_files(str(DIGIT))
        sentence = page.locator("#sentence")
        sync_api.expect(sentence).to_contain_text("7, 100.00 %. Closed: none.", timeout=60_000)
        page.locator("#close input[type=number]").fill("3")
        page.locator("#close input[type=number]").press("Enter")
        sync_api.expect(sentence).to_contain_text("Closed: stage2 block1, stage2 block2", timeout=60_000)
        sync_api.expect(page.locator("#gates img")).to_be_visible()
        page.wait_for_timeout(1500)
        page.screenshot(path=os.environ.get("KERAS_HIGHWAY_SCREENSHOT", tmp_path / "demo.png"))
        browser.close()
    assert not errors
