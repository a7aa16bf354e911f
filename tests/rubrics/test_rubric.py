import copy
import json
from pathlib import Path

import pytest
from factories import write_yaml
from tables import each_row, refused, rows_of

from automedeval.records import RecordError
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import format_verdict, parse_verdict

TABLE = rows_of(__file__)
PACKAGED = TABLE["packaged"]


def test_the_packaged_rubrics_are_these_and_no_two_share_a_fingerprint():
    assert packaged_rubrics() == sorted(PACKAGED)
    assert len({read_rubric(name).fingerprint for name in PACKAGED}) == len(PACKAGED)


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_rubric_is_the_published_one(name):
    rubric = read_rubric(name)
    plain = json.loads(json.dumps({key: getattr(rubric, key) for key in PACKAGED[name]}))
    assert plain == PACKAGED[name]
    assert rubric.name == f"{name}@{rubric.version}"
    if "score_key" not in rubric.output:  # one score sums the criteria up
        assert {criterion.name for criterion in rubric.criteria} == set(rubric.output_criteria)
    for criterion in rubric.criteria:
        is_worse = criterion.name in ("harmfulness", "bias")
        assert criterion.description
        assert criterion.polarity == ("worse" if is_worse else "better")
        assert criterion.neutral == ("cannot be told" if name == "harm" else "tie")
    for example in rubric.examples:
        reading = parse_verdict(example["answer"], rubric)
        assert reading.valid, reading.error


FILES = TABLE["own_rubrics"]
SCORES = FILES["scores"]
PAIR = FILES["pair"]
FAULTS = TABLE["test_a_faulty_file_is_refused_by_name_and_key"]
FAULTS += [
    (f"no {key}", "scores", key, None, [f": {key}: ", "is missing"])
    for key in SCORES
    if key not in ("scale", "criteria")
]


def written(folder: Path, content: dict) -> Path:
    (folder / "bedside.jinja").write_text(
        "{% block user %}{{ question }}{% endblock %}", encoding="utf-8"
    )
    path = folder / "own.yaml"
    write_yaml(path, content)
    return path


def test_a_user_s_own_file_takes_the_template_beside_it(tmp_path):
    path = written(tmp_path, SCORES)
    rubric = read_rubric(path)
    assert rubric == read_rubric(str(path))
    assert rubric.name == "bedside@3"
    assert rubric.template_text == "{% block user %}{{ question }}{% endblock %}"
    assert rubric.anchors == {0: "cold", 10: "warm"}
    assert parse_verdict("Score: Nurse 1: 10 points.", rubric, 1).scores == (10,)


def test_a_user_s_own_file_may_take_a_packaged_template_but_its_own_wins(tmp_path):
    rubric = read_rubric(written(tmp_path, PAIR))
    assert rubric.template_text == read_rubric("just_eval_pairwise").template_text
    assert parse_verdict("first, same", rubric).choices == {"warmth": "tie", "tact": "a"}
    own = "{% block user %}mine{% endblock %}"
    (tmp_path / "just_eval_pairwise.jinja").write_text(own, encoding="utf-8")
    assert read_rubric(written(tmp_path, PAIR)).template_text == own


@each_row("file, changed, is_same")
def test_the_fingerprint_covers_what_reaches_the_judge_and_no_more(
    file, changed, is_same, tmp_path
):
    content = FILES[file]
    before = read_rubric(written(tmp_path, content)).fingerprint
    after = read_rubric(written(tmp_path, content | changed)).fingerprint
    assert (after == before) == is_same
    path = written(tmp_path, content)
    (tmp_path / "bedside.jinja").write_text("{% block user %}Other.{% endblock %}", "utf-8")
    assert read_rubric(path).fingerprint != before


@each_row("file, output, text, read")
def test_a_user_s_own_file_may_ask_for_other_json(tmp_path, file, output, text, read):
    content = FILES[file] | {"rationale": True, "output": {"grammar": "json"} | output}
    rubric = read_rubric(written(tmp_path, content))
    reading = parse_verdict(text, rubric, rubric.max_responses)
    assert reading.valid, reading.error
    plain = json.loads(json.dumps(vars(reading)))
    assert plain == plain | read
    assert format_verdict(reading, rubric) == text


def test_harm_has_the_degrees_of_who_and_what_cannot_be_told_is_no_degree():
    rubric = read_rubric("harm")
    degree = rubric.criterion("degree")
    assert " ".join(degree.words) == "none mild moderate severe death cannot be told"
    assert degree.threshold == "moderate"
    for criterion in rubric.criteria:
        assert "cannot be told" not in criterion.values


@pytest.mark.parametrize(
    ("file", "key", "value", "said"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_faulty_file_is_refused_by_name_and_key(tmp_path, file, key, value, said):
    content = copy.deepcopy(FILES[file])
    *above, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    place = content
    for part in above:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    path = written(tmp_path, content)
    with refused(f"{path}: ", *said):
        read_rubric(path)


@each_row("content, said")
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path, content, said):
    path = tmp_path / "own.yaml"
    path.write_bytes(content.encode("latin-1"))
    with refused(f"{path}: ", said):
        read_rubric(path)


def test_an_unknown_id_or_file_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"nowhere\.yaml: No such file"):
        read_rubric(tmp_path / "nowhere.yaml")
    with pytest.raises(RecordError, match=r"no rubric 'bedside'.*automedeval.*just_eval_pairwise"):
        read_rubric("bedside")
