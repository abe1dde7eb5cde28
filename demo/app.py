"""A demo in the browser: `python demo/app.py`, or as a Space of the Hugging Face Hub.

An image goes in; the likeliest classes come out, with a map of every block's
transform gate. A slider closes blocks, one after another, and shows how the
prediction changes.
"""

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import gradio as gr
from explain import DIGITS, LEAST_OPEN, ORDERS, WEIGHTS, closable, draw, explain

HERE = Path(__file__).resolve().parent
TITLE = "Highway networks: look at the gates, close the blocks"
ABOUT = """A highway network computes `y = H(x)·T(x) + x·(1 − T(x))`: its gate `T` sets for each unit how much a block
transforms (bright) and how much it carries on (dark). **Close** blocks and watch how little, or how much, the
prediction changes: what remains of a closed block is its skip connection. Photographs go through a highway net made of
timm's ResNet50, whose gates are one number per channel; it is downloaded on first use."""


def examples() -> list[list[str]]:
    """Return the digits of `samples/`, in the checkout or beside this file."""
    for folder in (HERE / "samples", HERE.parent / "samples"):
        paths = sorted(folder.glob("digit_[0-9].png"))
        if paths:
            return [[str(path)] for path in paths]
    return []


def update(image, kind, close, order):
    """Return what the page shows: classes, the picture of the gates, a sentence."""
    if image is None:
        return None, None, "Choose an image, or one of the examples."
    try:
        explanation = explain(image, kind, close, order)
    except (ValueError, OSError) as error:
        raise gr.Error(str(error)) from error
    closed = ", ".join(name.replace("_", " ") for name in explanation.closed) or "none"
    best, score = next(iter(explanation.classes.items()))
    return explanation.classes, draw(explanation), f"**{best}**, {100 * score:.2f} %. Closed: {closed}."


def chosen(kind):
    """Another network has another number of blocks to close."""
    return gr.Slider(maximum=len(closable(kind)), value=0)


def page() -> gr.Blocks:
    """Build the page."""
    with gr.Blocks(title=TITLE) as blocks:
        gr.Markdown(f"# {TITLE}\n{ABOUT}")
        with gr.Row():
            with gr.Column(scale=2):
                image = gr.Image(type="pil", label="image", height=260)
                kind = gr.Radio(list(WEIGHTS), value=DIGITS, label="what it is of")
                close = gr.Slider(0, len(closable(DIGITS)), value=0, step=1, label="blocks closed", elem_id="close")
                order = gr.Radio(list(ORDERS), value=LEAST_OPEN, label="which first")
                digits = examples()
                if digits:
                    gr.Examples(digits, inputs=[image], label="digits")
            with gr.Column(scale=3):
                sentence = gr.Markdown(elem_id="sentence")
                classes = gr.Label(num_top_classes=5, label="top classes", elem_id="classes")
                gates = gr.Plot(show_label=False, elem_id="gates")
        inputs, outputs = [image, kind, close, order], [classes, gates, sentence]
        kind.change(chosen, kind, close)
        for part in inputs:
            part.change(update, inputs, outputs, show_progress="hidden")
        blocks.load(update, inputs, outputs)
    return blocks


if __name__ == "__main__":
    page().launch(server_name=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
