"""Show the metric on a page: a reference rationale, a prediction, and how similar they are.

    python app.py

It runs as a Space of the Hub, beside `rationale_score.py`; gradio comes with the Space.
"""

import logging

from rationale_score import DIRECTIONS, LAYERS, rationale_score

NOTICE = (
    "**For research on medical language models, not for clinical decisions.** The figures tell how similar a text is to the "
    "reference, not whether either is right: a text that turns the advice round may be very similar."
)
HEADERS = ["figure", "value"]


def compare(
    reference: str, prediction: str, bert_model: str, bert_num_layers: float | None, bart_model: str, direction: str
) -> tuple[list[list[str]], str]:
    """Return the rows of the table, and what is to be said of them; a name left blank leaves that model's part out.

    Raises:
        ValueError: a text or a model that nothing can be computed from.
    """
    for what, text in (("reference", reference), ("prediction", prediction)):
        if not (text or "").strip():
            raise ValueError(f"The {what} is empty.")
    layers = None if bert_num_layers is None else int(bert_num_layers)
    names = {"bert_model": (bert_model or "").strip() or None, "bart_model": (bart_model or "").strip() or None}
    found = rationale_score([prediction], [reference], bert_num_layers=layers, bart_direction=direction, **names)
    rows = [[f"BERTScore {name}", f"{values[0]:.4f}"] for name, values in found.get("bert_score", {}).items()]
    for score in found.get("bart_score", []):
        shown = "undefined" if score is None else f"{score:.4f} nats per token"
        rows.append([f"BARTScore, {direction.replace('_', ' ')}", shown])
    return rows, "A text is longer than a model reads: its end was not compared." if found["truncated"] else ""


def page() -> object:
    """Build the page."""
    import gradio  # here, so that `compare` can be tried where it is not installed

    def answer(*given: object) -> tuple[list[list[str]], str]:
        try:
            return compare(*given)
        except ValueError as error:  # for the visitor to mend
            raise gradio.Error(str(error), print_exception=False) from None

    with gradio.Blocks(title="Rationale score") as blocks:
        gradio.Markdown(f"# Rationale score\n\n{NOTICE}")
        with gradio.Row():
            reference = gradio.Textbox(label="Reference", lines=8)
            prediction = gradio.Textbox(label="Prediction", lines=8)
        with gradio.Row():
            bert = gradio.Textbox("roberta-large", label="Model for BERTScore")
            layers = gradio.Number(LAYERS["roberta-large"], label="Its layer", precision=0)
            bart = gradio.Textbox("facebook/bart-large-cnn", label="Model for BARTScore")
            direction = gradio.Dropdown(list(DIRECTIONS), value=next(iter(DIRECTIONS)), label="BARTScore's direction")
        button = gradio.Button("Compare", variant="primary")
        table = gradio.Dataframe(headers=HEADERS, label="Similarity", interactive=False)
        note = gradio.Markdown()
        button.click(answer, [reference, prediction, bert, layers, bart, direction], [table, note])
    return blocks


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    page().launch()
