"""A judge as a model of typed decisions: a folder that transformers' `pipeline("decision")` and `transformers serve` run.

A question of the type `score` on the state {"question": …, "answer": …}, with "reference" where the rubric needs one, has the
odds with which this judge begins the score of a single answer without a rationale. Its first level is the lowest score.
"""

import json
import re
import shutil
from importlib import resources
from pathlib import Path

from automedeval.models.base import answer_layout
from automedeval.models.checkpoints import DECISION, FILES, answers_questions, checkpoint_folder
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.records.journal import write_json
from automedeval.rubrics.grammar import answer_parts
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.published import rubric_of

NAMES = ("question", "answer", "reference")
_MARKS = dict(zip("\ue0b0\ue0b1\ue0b2", NAMES))  # private-use characters in the place of the texts
_MACRO = resources.files(__package__) / "templates/decision.jinja"
# Texts with what a template could take for its own, or for a fence; the prompts of these are compared.
_SAMPLES = (
    ("Is it {{ safe }}?", "Short ~~~~ answer.", "{% yes %}"),
    ("What\n\nhelps?", " “Rest” ~~~ a\\n lot. ", "{# 5 mg #}"),
)


def write_decision_folder(model: str, output: Path) -> str:
    """Copy a checkpoint to a new folder, with a decision.json and its template; return the name of the rubric it judges by."""
    from transformers.decision import DecisionConfig  # slow to import

    folder, rubric, encoder = (
        checkpoint_folder(model),
        rubric_of(model, None),
        PromptEncoder.from_checkpoint(model),
    )
    if answers_questions(folder):
        raise RecordError(f"{model} has a {DECISION} already")
    if output.exists() and any(output.iterdir()):
        raise RecordError(f"--output {output}: holds files already; choose another folder")
    fields = answer_layout(answer_parts(rubric, 1, rationale=False))[2]
    if rubric.scale is None or len(fields) != 1:
        raise RecordError(
            f"{rubric.name} does not score an answer once: a model of decisions cannot judge by it"
        )
    shared, values, _ = encoder.segment(*fields[0])

    def messages(texts: tuple[str, ...]) -> list[dict[str, str]]:
        reference = texts[2] if rubric.needs_reference else None
        return judge_messages(rubric, texts[0], [texts[1]], reference, rationale=False)

    text = encoder.render(messages(tuple(_MARKS))) + encoder.tokenizer.decode(shared)
    template = _MACRO.read_text(encoding="utf-8")
    for piece in re.split("(~~~\n[\ue0b0-\ue0b2]\n~~~|[\ue0b0-\ue0b2])", text):
        name = _MARKS.get(piece.strip("~\n"))
        shown = json.dumps(piece, ensure_ascii=False) if name is None else f"state.{name}"
        template += (
            f"{{{{- fenced({shown}) -}}}}" if name and len(piece) > 1 else f"{{{{- {shown} -}}}}"
        )
    labels = [encoder.tokenizer.decode(value) for value in values]
    config = DecisionConfig(labels={"score": labels}, chat_template=template)
    question = {"type": "score", "criteria": [str(value) for value in fields[0][1].values]}
    for sample in _SAMPLES:
        request = {"state": dict(zip(NAMES, sample)), "questions": {"score": question}}
        ((inputs, _),) = config.prepare_inputs(request, encoder.tokenizer)
        same = inputs["input_ids"][0].tolist() == encoder.encode([messages(sample)])[0] + shared
        if not same or encoder.tokenizer(labels, add_special_tokens=False).input_ids != values:
            raise RecordError(
                f"{model}: its prompts and scores are no template with labels of one token"
            )
    for file in sorted(
        {each for pattern in (*FILES, "*.safetensors") for each in folder.glob(pattern)}
    ):
        (output / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, output / file.relative_to(folder))
    config.save_pretrained(output)
    settings = json.loads((output / DECISION).read_text(encoding="utf-8"))
    write_json(output / DECISION, settings | {"automedeval": {"rubric": rubric.name}})
    return rubric.name
