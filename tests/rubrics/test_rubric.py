import copy
import re
from pathlib import Path

import pytest
import yaml

from automedeval.rubrics import RubricError, packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import format_verdict, parse_verdict

# What the paper (Appendix D) and the three pairwise prompts ask for: mode, grammar, most responses, with a reference, with a
# rationale, scale, choices, criteria in the order of the answer.
SCORED = ("relevancy", "knowledge_correctness", "fluency")
MEDICAL = ("correctness", "helpfulness", "harmfulness", "reasoning", "efficiency", "bias")
JUST_EVAL = ("engagement", "clarity", "helpfulness", "factuality", "depth", "safety")
LETTERS = {"a": "A", "b": "B", "tie": "tie"}
PACKAGED = {
    "automedeval": ("listwise", "score_line", 3, False, True, (1, 5), {}, SCORED),
    "automedeval_guided": ("listwise", "json", 3, True, True, (1, 5), {}, SCORED),
    "medical_pairwise": (
        "pairwise", "json", 2, False, False, None,
        {"a": "response_a", "b": "response_b", "tie": "tie", "neither": "neither"}, MEDICAL,
    ),
    "instruction_pairwise": (
        "pairwise", "comma_list", 2, True, False, None, LETTERS, ("precision", "correctness", "format", "overall"),
    ),
    "just_eval_pairwise": ("pairwise", "json", 2, False, True, None, LETTERS, JUST_EVAL),
    "pandalm": ("pairwise", "first_line", 2, False, False, None, {"a": "1", "b": "2", "tie": "Tie"}, ("overall",)),
    "harm": ("pointwise", "json", 1, False, True, None, {}, ("degree", "likelihood", "cause")),
    "checklist": ("checklist", "json", 1, False, True, None, {"met": "met", "not_met": "not met"}, ()),
}  # fmt: skip


def test_the_packaged_rubrics_are_these_and_no_two_share_a_fingerprint():
    assert packaged_rubrics() == sorted(PACKAGED)
    assert len({read_rubric(name).fingerprint for name in PACKAGED}) == len(PACKAGED)


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_rubric_is_the_published_one(name):
    rubric = read_rubric(name)
    assert (
        rubric.mode, rubric.grammar, rubric.max_responses, rubric.needs_reference, rubric.rationale, rubric.scale,
        rubric.choices, rubric.output_criteria,
    ) == PACKAGED[name]  # fmt: skip
    assert {criterion.name for criterion in rubric.criteria} == set(rubric.output_criteria)
    assert rubric.name == f"{name}@{rubric.version}"
    assert re.fullmatch("[0-9a-f]{12}", rubric.fingerprint)
    assert rubric.fingerprint == read_rubric(name).fingerprint
    for criterion in rubric.criteria:
        assert criterion.description
        assert criterion.polarity == ("worse" if criterion.name in ("harmfulness", "bias") else "better")
        assert criterion.neutral == ("cannot be told" if name == "harm" else "tie")
        assert rubric.criterion(criterion.name) is criterion
    for example in rubric.examples:
        reading = parse_verdict(example["answer"], rubric)
        assert reading.valid, reading.error


def test_there_are_two_worked_examples_of_following_an_instruction():
    rubric = read_rubric("instruction_pairwise")
    assert [parse_verdict(example["answer"], rubric).choices for example in rubric.examples] == [
        {"precision": "a", "correctness": "tie", "format": "tie", "overall": "a"},
        {"precision": "tie", "correctness": "b", "format": "tie", "overall": "b"},
    ]


# --- a user's own file ------------------------------------------------------------------------------------------------

SCORES = {
    "id": "bedside",
    "version": 3,
    "mode": "pointwise",
    "inputs": ["question", "responses"],
    "max_responses": 1,
    "criteria": [{"name": "warmth", "description": "Is it warm?"}, {"name": "tact", "description": "Is it tactful?"}],
    "scale": {"minimum": 0, "maximum": 10, "anchors": {0: "cold", 10: "warm"}},
    "rationale": True,
    "output": {"grammar": "score_line", "slot": "Nurse"},
    "template": "bedside.jinja",
}
PAIR = {
    "id": "bedside_pair",
    "version": 1,
    "mode": "pairwise",
    "inputs": ["question", "responses"],
    "max_responses": 2,
    "criteria": [{"name": "warmth", "description": "Which is warmer?"}, {"name": "tact", "description": "More tact?"}],
    "choices": {"a": "first", "b": "second", "tie": "same"},
    "rationale": False,
    "output": {"grammar": "comma_list", "order": ["tact", "warmth"]},
    "template": "just_eval_pairwise.jinja",
}


def written(folder: Path, content: dict) -> Path:
    (folder / "bedside.jinja").write_text("{% block user %}{{ question }}{% endblock %}", encoding="utf-8")
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return path


def test_a_user_s_own_file_takes_the_template_beside_it(tmp_path):
    path = written(tmp_path, SCORES)
    rubric = read_rubric(path)
    assert rubric == read_rubric(str(path))
    assert rubric.name == "bedside@3"
    assert rubric.template_text == "{% block user %}{{ question }}{% endblock %}"
    assert rubric.anchors == {0: "cold", 10: "warm"}
    assert parse_verdict("Score: Nurse 1: 10 points.", rubric, 1).scores == (10,)


def test_a_user_s_own_file_may_take_a_packaged_template(tmp_path):
    rubric = read_rubric(written(tmp_path, PAIR))
    assert rubric.template_text == read_rubric("just_eval_pairwise").template_text
    assert parse_verdict("first, same", rubric).choices == {"warmth": "tie", "tact": "a"}
    (tmp_path / "just_eval_pairwise.jinja").write_text("{% block user %}mine{% endblock %}", encoding="utf-8")
    assert read_rubric(written(tmp_path, PAIR)).template_text == "{% block user %}mine{% endblock %}", "its own wins"


def test_the_fingerprint_covers_what_reaches_the_judge_and_no_more(tmp_path):
    before = read_rubric(written(tmp_path, SCORES)).fingerprint
    assert read_rubric(written(tmp_path, {**SCORES, "title": "A title", "source": "A source"})).fingerprint == before
    assert read_rubric(written(tmp_path, {**SCORES, "max_responses": 1, "version": 4})).fingerprint != before
    path = written(tmp_path, SCORES)
    (tmp_path / "bedside.jinja").write_text("{% block user %}Other: {{ question }}{% endblock %}", encoding="utf-8")
    assert read_rubric(path).fingerprint != before


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({}, '{"Nurse 1": {"warmth": 7, "tact": 10}}'),
        (
            {"value_key": "points", "order": ["tact", "warmth"]},
            '{"Nurse 1": {"tact": {"points": 10}, "warmth": {"points": 7}}}',
        ),
        ({"choices_key": "scores"}, '{"scores": {"Nurse 1": {"warmth": 7, "tact": 10}}}'),
        ({"rationale_key": "why"}, '{"why": "Kind.", "Nurse 1": {"warmth": 7, "tact": 10}}'),
    ],
)
def test_a_user_s_own_file_may_score_several_criteria(tmp_path, output, text):
    rubric = read_rubric(written(tmp_path, SCORES | {"output": {"grammar": "json", "slot": "Nurse"} | output}))
    reading = parse_verdict(text, rubric, 1)
    assert reading.valid, reading.error
    assert reading.criterion_scores == {"warmth": (7,), "tact": (10,)}
    assert reading.scores == (9,)
    assert format_verdict(reading, rubric) == text


def test_choices_may_stand_beside_the_rationale(tmp_path):
    content = PAIR | {"rationale": True, "output": {"grammar": "json", "rationale_key": "why"}}
    reading = parse_verdict(
        '{"why": "Kind.", "warmth": "first", "tact": "same"}', read_rubric(written(tmp_path, content))
    )
    assert reading.valid, reading.error
    assert reading.choices == {"warmth": "a", "tact": "tie"}


def test_harm_has_the_degrees_of_who_and_what_cannot_be_told_is_no_degree():
    rubric = read_rubric("harm")
    assert rubric.criterion("degree").words == ("none", "mild", "moderate", "severe", "death", "cannot be told")
    assert rubric.criterion("degree").threshold == "moderate"
    assert all(criterion.words[-1] == "cannot be told" not in criterion.values for criterion in rubric.criteria)


SIZES = {"name": "size", "description": "?", "values": {"a": "s", "b": "l"}, "neutral": "unclear", "threshold": "b"}
WORDS = SCORES | {"criteria": [SIZES], "output": {"grammar": "json"}}
del WORDS["scale"]
JSON_SCORES = SCORES | {"output": {"grammar": "json", "value_key": "score"}}
FAULTS = [
    ("a scored criterion of the worse", JSON_SCORES, "criteria.0.polarity", "worse", ["criteria.warmth.polarity"]),
    # what the fault is, the file it is made in, the key to set ("." goes down), its value (None: remove), what is said
    ("unknown key", SCORES, "colour", "red", ["colour", "unknown key"]),
    ("unknown key of a criterion", SCORES, "criteria.0.weight", 2, ["criteria[0].weight", "unknown key"]),
    ("unknown key of the output", SCORES, "output.style", "x", ["output.style", "unknown key"]),
    ("unknown key of the scale", SCORES, "scale.step", 1, ["scale.step", "unknown key"]),
    ("unknown choice", PAIR, "choices.both", "both", ["choices.both", "unknown key"]),
    *[(f"no {key}", SCORES, key, None, [f": {key}: ", "is missing"]) for key in SCORES if key != "scale"],
    ("two criteria on one line", PAIR, "output.grammar", "first_line", ["output.grammar", "several criteria"]),
    ("no scale and no choices", SCORES, "scale", None, ["mode", "'scale'"]),
    ("no maximum", SCORES, "scale.maximum", None, ["scale.maximum", "is missing"]),
    ("no grammar", SCORES, "output.grammar", None, ["output.grammar", "is missing"]),
    ("no name of a criterion", SCORES, "criteria.1.name", None, ["criteria[1].name", "is missing"]),
    ("no choice a", PAIR, "choices.a", None, ["choices.a", "is missing"]),
    ("version a string", SCORES, "version", "3", ["version", "must be a whole number", "'3'"]),
    ("version a truth value", SCORES, "version", True, ["version", "must be a whole number", "True"]),
    ("rationale a number", SCORES, "rationale", 1, ["rationale", "must be true or false"]),
    ("criteria a mapping", SCORES, "criteria", {"warmth": "?"}, ["criteria", "must be a list"]),
    ("a criterion a string", SCORES, "criteria.0", "warmth", ["criteria[0]", "must be a mapping"]),
    ("output a string", SCORES, "output", "score_line", ["output", "must be a mapping"]),
    ("slot a number", SCORES, "output.slot", 1, ["output.slot", "must be a text"]),
    ("a choice a number", PAIR, "choices.tie", 0, ["choices.tie", "must be a text"]),
    ("no criterion", SCORES, "criteria", [], ["criteria", "at least one"]),
    ("bad mode", SCORES, "mode", "tournament", ["mode", "'tournament'", "pointwise, pairwise, listwise"]),
    ("bad input", SCORES, "inputs", ["question", "passages"], ["inputs", "'passages'"]),
    ("bad grammar", SCORES, "output.grammar", "xml", ["output.grammar", "'xml'", "score_line"]),
    ("bad polarity", SCORES, "criteria.0.polarity", "up", ["criteria[0].polarity", "'up'"]),
    ("bad neutral", SCORES, "criteria.0.neutral", "none", ["criteria[0].neutral", "'none'"]),
    ("neutral not among the choices", PAIR, "criteria.0.neutral", "neither", ["criteria.warmth.neutral", "'neither'"]),
    ("duplicate criterion", SCORES, "criteria.1.name", "warmth", ["criteria[1].name", "'warmth' came before"]),
    ("order too short", PAIR, "output.order", ["tact"], ["output.order", "warmth, tact"]),
    ("order with a stranger", PAIR, "output.order", ["tact", "charm"], ["output.order", "warmth, tact"]),
    ("order naming one twice", PAIR, "output.order", ["tact", "tact"], ["output.order", "warmth, tact"]),
    ("scale reversed", SCORES, "scale.minimum", 11, ["scale", "not 11 and 10"]),
    ("scale of one value", SCORES, "scale.maximum", 0, ["scale", "not 0 and 0"]),
    ("scale below nought", SCORES, "scale.minimum", -1, ["scale", "not -1 and 10"]),
    ("anchor off the scale", SCORES, "scale.anchors", {11: "hot"}, ["scale.anchors.11", "not on the scale 0 to 10"]),
    ("anchor no number", SCORES, "scale.anchors", {"low": "cold"}, ["scale.anchors.low", "not on the scale"]),
    ("two choices with one word", PAIR, "choices.tie", "FIRST", ["choices", "the same word"]),
    ("scores for a pair", PAIR, "scale", {"minimum": 1, "maximum": 5}, ["mode", "pairwise"]),
    ("scores in a comma list", SCORES, "output.grammar", "comma_list", ["output.grammar", "score_line"]),
    ("choices in a score line", PAIR, "output.grammar", "score_line", ["json, comma_list or first_line"]),
    ("a pair of three", PAIR, "max_responses", 3, ["max_responses", "3"]),
    ("two at a time, pointwise", SCORES, "max_responses", 2, ["max_responses", "pointwise"]),
    ("none at a time", SCORES, "max_responses", 0, ["max_responses", "0"]),
    ("words without a neutral one", WORDS, "criteria.0.neutral", "A", ["criteria[0].values", "are the same"]),
    ("a word without a meaning", WORDS, "criteria.0.values.a", 1, ["criteria[0].values.a", "must be a text"]),
    ("a threshold that is no value", WORDS, "criteria.0.threshold", "huge", ["criteria[0].threshold", "'huge'"]),
    ("words without a threshold", WORDS, "criteria.0.threshold", None, ["criteria", "needs a 'threshold', not 0"]),
    ("words and a scale", WORDS, "scale", {"minimum": 1, "maximum": 5}, ["mode", "neither 'scale' nor 'choices'"]),
    ("words of a pair", WORDS, "mode", "listwise", ["mode", "pointwise"]),
    ("words on a line", WORDS, "output.grammar", "first_line", ["output.grammar", "json"]),
    (
        "words of one criterion alone",
        WORDS,
        "criteria",
        [*WORDS["criteria"], {"name": "bare", "description": "?"}],
        ["criteria.bare.values", "is missing"],
    ),
    ("template not there", SCORES, "template", "none.jinja", ["template", "'none.jinja'"]),
]


@pytest.mark.parametrize(
    ("content", "key", "value", "said"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_faulty_file_is_refused_by_name_and_key(tmp_path, content, key, value, said):
    content = copy.deepcopy(content)
    *above, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    place = content
    for part in above:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    path = written(tmp_path, content)
    with pytest.raises(RubricError) as error:
        read_rubric(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    for piece in said:
        assert piece in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"id: [unclosed", "not YAML"),
        (b"id: caf\xe9", "not UTF-8"),
        (b"", "must be a mapping"),
        (b"- a\n- list\n", "must be a mapping"),
    ],
    ids=["not YAML", "not UTF-8", "empty", "a list"],
)
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path, content, said):
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(RubricError) as error:
        read_rubric(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_id_or_file_is_refused(tmp_path):
    with pytest.raises(RubricError, match=r"nowhere\.yaml: No such file"):
        read_rubric(tmp_path / "nowhere.yaml")
    with pytest.raises(RubricError, match=r"no rubric 'bedside'.*automedeval.*just_eval_pairwise"):
        read_rubric("bedside")
