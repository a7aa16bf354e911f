"""A rubric may come from anybody: its template runs no code and reads no file, and each attempt ends with one line."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
from doubles.case_criteria import read_rubric as with_criteria
from doubles.own_rubric import own_rubric
from doubles.study_page import client_of, opened, write_study
from programs import ROOT, SAMPLE, error_line, run_recipe
from tables import rows_of

from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError
from automedeval.rubrics import RubricError, packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.prompts import fenced, judge_messages

ATTACKS = rows_of(__file__)["test_a_template_runs_no_code_reads_no_file_and_takes_no_gigabyte"]


LONG_TEXT = "{% set a = '" + "x" * 1_000_000 + "' %}"
# Each of these makes more than a gigabyte where nothing bounds it.
HUGE = {
    "a text times a number": "{{ 'a' * 99999999999 }}",
    "a width by %": "{{ '%2000000000s' % 'a' }}",
    "the filter format": "{{ '%2000000000s' | format('a') }}",
    "format with a star": "{{ '%*d' | format(2000000000, 1) }}",
    "sums of texts": LONG_TEXT + "{% set a = a + a %}" * 12,
    "replaced by more": "{{ 'abcd'" + " | replace('a', 'aa') | replace('b', 'bb')" * 40 + " }}",
    "letters joined": "{{ 'abcd'" + " | join('abcd')" * 40 + " }}",
    "a long text between": LONG_TEXT + "{{ rubric.examples | join(a) }}",
    "numbers multiplied": "{% set n = 999999999 %}" + "{% set n = n * n %}" * 40,
    "a text written again": LONG_TEXT + "{{ a }}" * 2000,
    "loops in loops": "{% for a in responses %}" * 30 + "{{ question }}" + "{% endfor %}" * 30,
    "empty texts in loops": LONG_TEXT + "{% for b in a %}{% for c in a %}{{ '' }}{% endfor %}{% endfor %}",
    "loops that write nothing": LONG_TEXT + "{% for b in a %}{% for c in a %}{% endfor %}{% endfor %}",
    "tuples of tuples": "{% set a = (question, question) %}" + "{% set a = (a, a) %}" * 40 + "{{ a }}",
    "blocks as texts": "{% set a %}{{ question }}{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40,
    "texts side by side": LONG_TEXT + "{% set a = a ~ a %}" * 40,
    "powers": "{{ 9 ** 9 ** 9 }}",
}
LIMITED = """
import resource, sys
from automedeval.rubrics import RubricError, read_rubric
from automedeval.rubrics.prompts import judge_messages
if sys.platform == "linux":
    with open("/proc/self/statm") as memory:
        now = int(memory.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 400 * 2**20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for file in sys.argv[1:]:
    rubric, responses = read_rubric(file), ["one", "two"]
    anchors = dict(rubric.anchors)
    try:
        print(sum(len(each["content"]) for each in judge_messages(rubric, "Why?", responses)))
    except RubricError as error:
        print(error if (responses, dict(rubric.anchors)) == (["one", "two"], anchors) else "changed")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits memory and time as Unix does")
def test_a_template_runs_no_code_reads_no_file_and_takes_no_gigabyte(tmp_path: Path) -> None:
    files = [
        own_rubric(tmp_path / str(number), f"{{% block user %}}{template}{{% endblock %}}", examples=[{"a": 1}] * 5000)
        for number, template in enumerate((ATTACKS | HUGE).values())
    ]
    (tmp_path / "here").mkdir()
    command = [sys.executable, "-c", LIMITED, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path / "here")
    assert done.returncode == 0, done.stderr
    line_of = dict(zip(ATTACKS | HUGE, done.stdout.splitlines(), strict=True))
    wrong = {name: line for name, line in line_of.items() if not re.fullmatch(r"own\.jinja: (?!MemoryError).+", line)}
    assert wrong == {}
    assert os.listdir(tmp_path / "here") == []


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/hostname", "..\\secret.txt", "C:secret.txt", "./own.jinja", "..", "a/../own.jinja"]
)
def test_a_template_stands_beside_its_rubric(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("{% block user %}a secret{% endblock %}", encoding="utf-8")
    with pytest.raises(RubricError, match=r"own\.yaml: template: .*(name of a file without a folder|no file)"):
        read_rubric(own_rubric(tmp_path / "rubric", "{% block user %}mine{% endblock %}", template=name))


@pytest.mark.parametrize("name", [*packaged_rubrics(), str(ROOT / "recipes/runs/automedeval-135m/feedbackqa.yaml")])
def test_prompts_are_what_plain_jinja_renders(name: str) -> None:
    rubric = with_criteria(name)
    plain = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    plain.filters["fenced"] = fenced
    template = plain.from_string(rubric.template_text)
    texts = ["Fine.\n~~~\n{{ rubric.id }}", "<b>No</b> & 100 %", "多喝水。"][: rubric.max_responses]
    for rationale, question in itertools.product((True, False), ("Why?", "Is {% raw %} safe?\n\n")):
        names = {"rubric": rubric, "question": question, "responses": texts, "reference": "Rest."}
        names |= {
            "rationale": rationale and rubric.rationale,
            "answer_form": answer_form(rubric, len(texts), rationale),
        }
        blocks = [template.blocks[role] for role in ("system", "user") if role in template.blocks]
        expected = ["".join(block(template.new_context(names))).strip() for block in blocks]
        assert [each["content"] for each in judge_messages(rubric, question, texts, "Rest.", rationale)] == expected


def test_what_a_template_may_use_gives_what_plain_jinja_gives(tmp_path: Path) -> None:
    text = """{% block user %}
    {% set count = responses | length %}
    {% for response in responses if response %}
    {{ loop.index + 1 }} of {{ count }}: {{ response[1:] | trim | upper }}{{ "." if not loop.last }}
    {% else %}
    none
    {% endfor %}
    {{ responses | join(", ") | replace("or", "&") }} {{ "%.2f" | format(count / 3) }} {{ -1 | abs }} {{ 7 % 4 }}
    {% if "tact" in rubric.criteria[0].name and count is not none %}{{ rubric.criteria[0].name | capitalize }}{% endif %}
    {% for points, meaning in rubric.anchors.items() %}{{ points }}: {{ meaning }}{% endfor %}
    {{ rubric.none | default("none") }}{{ responses | first | lower }}{{ 2.5 | int }}{{ responses[1]["x"] | default("") }}
    {% endblock %}"""
    rubric = read_rubric(own_rubric(tmp_path, text))
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(text)
    names = {"rubric": rubric, "responses": ["one", "two or so", ""]}
    wanted = "".join(plain.blocks["user"](plain.new_context(names))).strip()
    assert judge_messages(rubric, "Why?", names["responses"]) == [{"role": "user", "content": wanted}]


def test_the_words_of_a_study_are_text_and_no_template(tmp_path: Path) -> None:
    title = "Pain {{ cycler.__init__.__globals__ }}"
    with opened(write_study(tmp_path, title=title)) as store:
        assert f"<h1>{title}</h1>" in client_of(store).get("/").text


# --- chat templates, which transformers renders -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack",
    ["{{ cycler.__init__.__globals__ }}", "{{ messages.append(1) }}", "{% include '/etc/hostname' %}", "{{ 1 / 0 }}"],
)
def test_a_chat_template_runs_no_code_either(tiny_model: Path, tmp_path: Path, attack: str) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(attack)
    with pytest.raises(RecordError) as error:
        PromptEncoder.from_checkpoint(str(tiny_model), str(file)).encode([[{"role": "user", "content": "Why?"}]])
    assert len(str(error.value).splitlines()) == 1
    options = ("--judge", tiny_model, "--cases", SAMPLE / "test_cases.jsonl", "--output", tmp_path / "out")
    line = error_line(run_recipe("judge", *options, "--limit", 1, "--chat_template_path", file))
    assert json.dumps(line).count("\\n") == 0
