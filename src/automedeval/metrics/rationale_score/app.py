"""A page for the metric: enter a reference rationale and a prediction, and see how similar they are.

    python app.py

It runs as a Space of the Hub, in the folder of `rationale_score.py`; the Space installs gradio.
"""

from typing import Any

from rationale_score import rationale_score

NOTICE = (
    "**For research on medical language models, not for clinical decisions.** The figures tell how similar a text is to the "
    "reference, not whether either is right: a text that turns the advice round may be very similar."
)
FIRST = "The first comparison with a model loads it, which takes a while."
LONGEST = 20_000  # characters of a text: several times what the models read


def compare(
    reference: str, prediction: str, bert_model: str, layer: str, bart_model: str
) -> tuple[list[list[str]], str]:
    """Return the rows of the table, and a note on them; a blank model name omits that model's part.

    ValueError for an empty text, or a model or layer that cannot be used.
    """
    for what, text in (("reference", reference), ("prediction", prediction)):
        if not (text or "").strip():
            raise ValueError(f"The {what} is empty.")
    layer = (layer or "").strip()
    if layer and not layer.isdecimal():
        raise ValueError(f"The layer must be a whole number, not {layer!r:.20}.")
    names = {"bert_model": (bert_model or "").strip() or None, "bart_model": (bart_model or "").strip() or None}
    layers = int(layer) if layer else None  # the metric's own choice
    scores = rationale_score([prediction], [reference], bert_num_layers=layers, **names)
    rows = [[f"BERTScore {name}", f"{values[0]:.4f}"] for name, values in scores.get("bert_score", {}).items()]
    for score in scores.get("bart_score", []):
        value = "undefined" if score is None else f"{score:.4f} nats per token"
        rows.append(["BARTScore", value])
    return rows, "A text is longer than a model reads: its end was not compared." if scores["truncated"] else ""


def shown(rows: list[list[str]], note: str) -> str:
    """Return the figures as a Markdown table, which wraps on narrow screens, and the note below it."""
    table = ["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join([*table, "", note])


def page() -> Any:
    """Build the page."""
    import gradio  # here, so that `compare` works without gradio

    def answer(*inputs: str) -> str:
        try:
            return shown(*compare(*inputs))
        except ValueError as error:  # shown in place of the figures
            return f"**No figures.** {error}"

    with gradio.Blocks(title="Rationale score", analytics_enabled=False) as blocks:
        gradio.Markdown(f"# Rationale score\n\n{NOTICE}")
        with gradio.Row():
            reference = gradio.Textbox(label="Reference", lines=6, max_length=LONGEST)
            prediction = gradio.Textbox(label="Prediction", lines=6, max_length=LONGEST)
        button = gradio.Button("Compare", variant="primary")
        figures = gradio.Markdown(FIRST, min_height=90)
        with gradio.Accordion("Models", open=False):
            gradio.Markdown("A model left blank is left out. A layer left blank is the one that bert-score takes.")
            with gradio.Row():
                bert = gradio.Textbox("roberta-large", label="Model for BERTScore")
                layer = gradio.Textbox(label="Layer for BERTScore")  # a number box sends 0 where it is blank
                bart = gradio.Textbox("facebook/bart-large-cnn", label="Model for BARTScore")
        button.click(answer, [reference, prediction, bert, layer, bart], figures)
    return blocks


if __name__ == "__main__":
    page().launch()
