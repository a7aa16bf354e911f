"""A rubric may come from anybody: its template runs no code and reads no file, and each attempt ends with one line."""

import os
from itertools import product

import jinja2
import pytest
from doubles.case_criteria import read_rubric as with_criteria
from doubles.own_rubric import own_rubric
from doubles.study_page import client_of, opened, write_study
from programs import ROOT, SAMPLE, error_line, flags, run_recipe
from tables import each_row, refused

from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.prompts import fenced, judge_messages


@each_row("template")
def test_a_template_runs_no_code_reads_no_file_and_writes_no_gigabyte(
    template, tmp_path, monkeypatch
):
    text = f"{{% block user %}}{template}{{% endblock %}}"
    rubric = read_rubric(own_rubric(tmp_path, text, examples=[{"a": 1}]))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    responses = ["one", "two"]
    anchors = dict(rubric.anchors)
    with pytest.raises(RecordError, match=r"\Aown\.jinja: .+\Z"):
        judge_messages(rubric, "Why?", responses)
    assert (responses, dict(rubric.anchors), os.listdir()) == (["one", "two"], anchors, [])


@each_row("name")
def test_a_template_stands_beside_its_rubric(tmp_path, name):
    (tmp_path / "secret.txt").write_text("{% block user %}a secret{% endblock %}", encoding="utf-8")
    own = own_rubric(tmp_path / "rubric", "{% block user %}mine{% endblock %}", template=name)
    said = r"own\.yaml: template: .*(name of a file without a folder|no file)"
    with pytest.raises(RecordError, match=said):
        read_rubric(own)


@pytest.mark.parametrize(
    "name", [*packaged_rubrics(), str(ROOT / "recipes/runs/automedeval-135m/feedbackqa.yaml")]
)
def test_prompts_are_what_plain_jinja_renders(name):
    rubric = with_criteria(name)
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    plain.filters["fenced"] = fenced
    template = plain.from_string(rubric.template_text)
    texts = ["Fine.\n~~~\n{{ rubric.id }}", "<b>No</b> & 100 %", "多喝水。"][: rubric.max_responses]
    for rationale, question in product((True, False), ("Why?", "Is {% raw %} safe?\n\n")):
        names = {"rubric": rubric, "question": question, "responses": texts, "reference": "Rest."}
        names |= {"rationale": rationale and rubric.rationale}
        names |= {"answer_form": answer_form(rubric, len(texts), rationale)}
        for message in judge_messages(rubric, question, texts, "Rest.", rationale):
            block = template.blocks[message["role"]]
            assert message["content"] == "".join(block(template.new_context(names))).strip()


def test_the_words_of_a_study_are_text_and_no_template(tmp_path):
    title = "Pain {{ cycler.__init__.__globals__ }}"
    with opened(write_study(tmp_path, title=title)) as store:
        assert f"<h1>{title}</h1>" in client_of(store).get("/").text


@each_row("attack")
def test_a_chat_template_runs_no_code_either(tiny_model, tmp_path, attack):
    file = tmp_path / "chat.jinja"
    file.write_text(attack)
    with refused(""):
        encoder = PromptEncoder.from_checkpoint(str(tiny_model), str(file))
        encoder.encode([[{"role": "user", "content": "Why?"}]])
    files = flags(judge=tiny_model, cases=SAMPLE / "test_cases.jsonl", output=tmp_path / "out")
    more = flags(limit=1, chat_template_path=file)
    assert "\n" not in error_line(run_recipe("judge", *files, *more))
