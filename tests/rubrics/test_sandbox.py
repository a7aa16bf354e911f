"""A rubric may come from anybody: its template runs no code and reads no file, and each attempt ends with one line."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import yaml
from doubles.case_criteria import read_rubric as with_criteria
from doubles.study_page import client_of, opened, write_study
from programs import ROOT, SAMPLE, error_line, run_recipe

from automedeval.models.tokenization import PromptEncoder
from automedeval.publishing.cards import front_matter
from automedeval.records import RecordError
from automedeval.rubrics import RubricError, packaged_rubrics, read_rubric
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.prompts import fenced, judge_messages

RUN = "system('touch MARK')"
ATTACKS = {
    "globals of a global": f"{{{{ cycler.__init__.__globals__.os.{RUN} }}}}",
    "globals of lipsum": f"{{{{ lipsum.__globals__['os'].{RUN} }}}}",
    "globals of a macro": f"{{% macro m() %}}{{% endmacro %}}{{{{ m._func.__globals__.os.{RUN} }}}}",
    "the template's context": "{{ self._TemplateReference__context.parent }}",
    "environment": "{{ self._TemplateReference__context.environment.from_string }}",
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "subclasses by subscript": "{{ ''['__class__']['__mro__'] }}",
    "subclasses by attr": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "attr with escapes": "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "names joined": "{{ ''|attr(['_' * 1, '_class__']|join) }}",
    "attr by map": "{{ (['']|map(attribute='__class__')|first).__mro__ }}",
    "a filter of attr": "{{ (['']|map('attr', '__class__')|first).__mro__ }}",
    "attr by groupby": "{{ (['']|groupby('__class__')|first).grouper.__mro__ }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "format by reference": "{% set f = '{0.__class__}'.format %}{{ f('') }}",
    "format by a filter": "{{ ['{0.__class__}'.format]|map('string')|list }}{{ ('{0.__class__}'|attr('format'))('') }}",
    "code of a method": "{{ rubric.criterion.__func__.__code__ }}",
    "globals of a method": f"{{{{ rubric.criterion.__globals__['Path'] }}}}{{{{ x.{RUN} }}}}",
    "class of the rubric": "{{ rubric.__class__.__init__.__globals__ }}",
    "frame of a generator": "{{ ([1]|map('string')).gi_frame.f_globals }}",
    "write to a list": "{% do responses.append('more') %}{{ responses.append('more') }}",
    "write to the rubric": "{{ rubric.anchors.update({5: 'always'}) }}",
    "write to an item": "{% set responses[0] = 'mine' %}",
    "clear": "{{ rubric.anchors.clear() }}",
    "include": "{% include '/etc/hostname' %}",
    "include or go on": "{% include ['/etc/hostname', '../own.yaml'] ignore missing %}",
    "import": "{% import '/etc/hostname' as x %}",
    "import a name": "{% from '../own.yaml' import x %}",
    "a huge range": "{% for n in range(10 ** 9) %}{% endfor %}",
    "a large range": "{% for n in range(1000000000) %}{% endfor %}",
    "ranges that write": "{% for n in range(99999) %}{% for m in range(99999) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    "a huge number": "{{ 9 ** 9 ** 9 ** 9 }}",
    "a huge text": "{{ 'a' * 99999999999 }}",
    "a huge list": "{{ [1] * 99999999999 }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "division": "{{ 1 / 0 }}",
    "a call of a text": "{{ question() }}",
    "debugging": "{% debug %}",
}


DOUBLED = "{% set a = 'abcd' %}" + "{% set a = OPERATION %}" * 40
KEPT = "{% set a = 'x y ' ~ responses[0] %}" + "{% set a = a ~ a %}" * 18  # about a million characters
# Each of these makes more than a gigabyte where nothing bounds it, most of them in one expression.
HUGE = {
    "a width by %": "{{ '%2000000000s' % 'a' }}",
    "a precision by %": "{{ '%.2000000000d' % 1 }}",
    "the filter format": "{{ '%2000000000s' | format('a') }}",
    "format with a star": "{{ '%*d' | format(2000000000, 1) }}",
    "format with a name": "{{ '%(a)2000000000s' | format(a=1) }}",
    "the method format": "{{ '{:>2000000000}'.format('a') }}",
    "format_map": "{{ '{a:>2000000000}'.format_map({'a': 1}) }}",
    "round": "{{ 1.5 | round(2000000000, 'ceil') }}",
    "center": "{{ 'a' | center(2000000000) }}",
    "indent": "{{ 'a\n' | indent(2000000000, true) }}",
    "tojson": "{{ [1] | tojson(2000000000) }}",
    "batch": "{{ [1] | batch(2000000000, 'a') | list }}",
    "slice": "{{ [1] | slice(2000000000) | list }}",
    "lipsum": "{{ lipsum(n=100000) }}{{ lipsum(n=9999999) }}",
    "ljust": "{{ 'a'.ljust(2000000000) }}",
    "zfill": "{{ 'a'.zfill(2000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(2000000000) }}",
    "bytes of a number": "{{ (1).to_bytes(2000000000, 'big') }}",
    "a method of marked text": "{% autoescape true %}{% set a %}x{% endset %}{{ a.center(2000000000) }}{% endautoescape %}",
    "a method by subscript": "{{ 'a'['rjust'](2000000000) }}",
    "bounds of a sum": "{{ range(99999) | sum(start=0) }}{{ [[1], [2]] | sum(start=[0] * 2000000000) }}",
    "text doubled by ~": DOUBLED.replace("OPERATION", "a ~ a"),
    "text doubled by +": DOUBLED.replace("OPERATION", "a + a"),
    "text doubled by join": DOUBLED.replace("OPERATION", "[a, a] | join"),
    "text doubled by replace": DOUBLED.replace("OPERATION", "a | replace('a', 'aa') | replace('b', 'bb')"),
    "text doubled by str.replace": DOUBLED.replace("OPERATION", "a.replace('a', 'aa').replace('b', 'bb')"),
    "text doubled by str.join": DOUBLED.replace("OPERATION", "a.join(['', '', ''])"),
    "text doubled by %": DOUBLED.replace("OPERATION", "'%s%s' % (a, a)"),
    "text doubled by a block": DOUBLED.replace("{% set a = OPERATION %}", "{% set a %}{{ a }}{{ a }}{% endset %}"),
    "text doubled by a macro": "{% macro m(a) %}{{ a }}{{ a }}{% endmacro %}" + DOUBLED.replace("OPERATION", "m(a)"),
    "text doubled by a call": "{% macro m(a) %}{{ caller() }}{{ a }}{% endmacro %}"
    + DOUBLED.replace("{% set a = OPERATION %}", "{% set a %}{% call m(a) %}{{ a }}{% endcall %}{% endset %}"),
    "text doubled by a filter of a block": DOUBLED.replace(
        "{% set a = OPERATION %}", "{% set a %}{% filter upper %}{{ a }}{{ a }}{% endfilter %}{% endset %}"
    ),
    "text doubled in a loop": "{% set n = namespace(a='ab') %}{% for i in range(40) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "a list doubled": "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = n.a + n.a %}{% endfor %}",
    "a list of lists written": "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}"
    "{% endfor %}{{ n.a }}",
    "a number squared": "{% set n = namespace(a=99) %}{% for i in range(40) %}{% set n.a = n.a * n.a %}{% endfor %}",
    "many slices": KEPT + "{{ [" + ", ".join(f"a[{n}:]" for n in range(1, 2000)) + "] | length }}",
    "many methods": KEPT + "{{ [" + ", ".join(["a.upper()"] * 2000) + "] | length }}",
    "many filters": KEPT + "{{ [" + ", ".join(["a | upper"] * 2000) + "] | length }}",
    "many arguments": KEPT + "{{ dict(" + ", ".join(f"a{n}=a[{n}:]" for n in range(1, 2000)) + ") | length }}",
    "many variables": KEPT + "".join(f"{{% set b{n} = a ~ {n} %}}" for n in range(2000)),
    "characters of a text": KEPT + "{{ [" + ", ".join(["a | list"] * 100) + "] | length }}",
    "words of a text": KEPT + "{{ [" + ", ".join(["a.split('a')"] * 200) + "] | length }}",
    "a block that repeats text": KEPT + "{% set b %}" + "{{ a }}" * 2000 + "{% endset %}",
    "a block that repeats itself": "{% set b %}{% for n in range(99999) %}{% for m in range(99999) %}xxxx{% endfor %}"
    "{% endfor %}{% endset %}",
    "a text written again": KEPT + "{{ a }}" * 2000,
    "a list joined": KEPT + "{{ [" + ", ".join(["a"] * 2000) + "] | join }}",
    "a text between": KEPT + "{{ range(99999) | join(a) }}",
    "map": KEPT + "{{ range(99999) | map('replace', '', a) | list | length }}",
}  # fmt: skip
LIMITED = """
import resource, sys
from automedeval.rubrics import RubricError, read_rubric
from automedeval.rubrics.prompts import judge_messages
with open("/proc/self/statm") as memory:
    now = int(memory.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 400 * 2**20,) * 2)
for file in sys.argv[1:]:
    try:
        print(sum(len(each["content"]) for each in judge_messages(read_rubric(file), "Why?", ["one", "two"])))
    except RubricError as error:
        print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_a_template_takes_no_gigabyte_before_it_is_refused(tmp_path: Path) -> None:
    files = [
        own_rubric(tmp_path / str(number), f"{{% block user %}}{template}{{% endblock %}}")
        for number, template in enumerate(HUGE.values())
    ]
    done = subprocess.run([sys.executable, "-c", LIMITED, *files], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = dict(zip(HUGE, done.stdout.splitlines(), strict=True))
    assert {name: line for name, line in told.items() if "own.jinja: " not in line or "MemoryError" in line} == {}


def own_rubric(folder: Path, text: str, **changes: object) -> Path:
    content = {
        "id": "own",
        "version": 1,
        "mode": "listwise",
        "inputs": ["question", "responses"],
        "max_responses": 9,
        "criteria": [{"name": "tact", "description": "Is it tactful?"}],
        "scale": {"minimum": 1, "maximum": 5, "anchors": {5: "good"}},
        "rationale": True,
        "output": {"grammar": "score_line"},
        "template": "own.jinja",
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.jinja").write_text(text, encoding="utf-8")
    (folder / "own.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "own.yaml"


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_template_runs_no_code_and_reads_no_file(tmp_path: Path, monkeypatch, attack: str) -> None:
    monkeypatch.chdir(tmp_path)
    template = f"{{% block user %}}{{{{ question }}}}{ATTACKS[attack]}{{% endblock %}}"
    rubric = read_rubric(own_rubric(tmp_path, template))
    responses, anchors = ["one", "two"], dict(rubric.anchors)
    with pytest.raises(RubricError) as error:
        judge_messages(rubric, "Why?", responses)
    line = str(error.value)
    assert line.startswith("own.jinja: ")
    assert len(line) > len("own.jinja: ")
    assert "\n" not in line
    assert (responses, rubric.anchors) == (["one", "two"], anchors)
    assert sorted(os.listdir(tmp_path)) == ["own.jinja", "own.yaml"]


def test_the_recipe_ends_with_the_line_and_the_code_did_not_run(tiny_model: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    attack = f"{{{{ cycler.__init__.__globals__.os.system('touch {mark}') }}}}"
    rubric = own_rubric(tmp_path, f"{{% block user %}}{attack}{{% endblock %}}")
    command = ("--judge", tiny_model, "--rubric", rubric, "--cases", SAMPLE / "test_cases.jsonl", "--limit", 1)
    line = error_line(run_recipe("judge", *command, "--output", tmp_path / "verdicts"))
    assert line == "error: own.jinja: access to attribute '__init__' of 'type' object is unsafe."
    assert not mark.exists()


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
    {% macro told(text) %}[{{ caller() }}{{ text | trim | upper }}]{% endmacro %}
    {% set n = namespace(at=1) %}
    {% for response in responses if response %}
    {% set n.at = n.at * 7 + loop.index %}
    {% call told(response[1:] ~ "!") %}{{ n.at % 3 }}, {{ loop.cycle("odd", "even") }}{% endcall %}
    {% endfor %}
    {% set all %}{{ responses | join(", ") | replace("o", "0") }}{% endset %}
    {{ all.split()[:3] }}{{ "%.2f" | format(n.at / 3) }}{{ all | length }}{{ -1 | abs }}{{ "ab" + "c" }}{{ [1, (2, "x")] }}
    {% filter lower %}A {{ rubric.criteria[0].name | capitalize }}{% endfilter %}
    {% for points, meaning in rubric.anchors.items() %}{{ points }}: {{ meaning }}{% endfor %}
    {{ rubric.none | default("none") }}{{ dict(a=1).get("a") }}{{ responses | first }}{{ 2.5 | int }}
    {% for each in [1, [2, 3]] recursive %}{{ loop(each) if each is iterable else each }}{% endfor %}
    {% endblock %}"""
    rubric = read_rubric(own_rubric(tmp_path, text))
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(text)
    given = {"rubric": rubric, "responses": ["one", "two or so", ""]}
    wanted = "".join(plain.blocks["user"](plain.new_context(given))).strip()
    assert judge_messages(rubric, "Why?", given["responses"]) == [{"role": "user", "content": wanted}]


# --- YAML -------------------------------------------------------------------------------------------------------------

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
PSEUDONYMS = ("--annotators_are_pseudonyms", "true")
FAULTY = {
    "an object of Python": ("id: !!python/object/apply:os.system ['touch mark']", "not YAML: could not determine"),
    "a module of Python": ("id: !!python/name:os.system", "not YAML: could not determine"),
    "aliases of aliases": (BOMB, "holds more than 100,000 values, with its aliases written out"),
    "a list that holds itself": ("id: &a [*a]", "holds more than 100,000 values"),
    "a date that is none": ("id: 2026-99-99", "not YAML: month must be in 1..12"),
    "a number of thousands of digits": (f"id: {'9' * 5000}", "not YAML: Exceeds the limit"),
    "lists in lists": (f"id: {'[' * 5000}", "not YAML: "),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_yaml_is_plain_values_of_bounded_number(tmp_path: Path, monkeypatch, fault: str) -> None:
    monkeypatch.chdir(tmp_path)
    text, told = FAULTY[fault]
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(RubricError) as error:
        read_rubric(file)
    assert str(error.value).startswith(f"{file}: {told}")
    assert len(str(error.value).splitlines()) == 1
    assert os.listdir(tmp_path) == ["own.yaml"]


@pytest.mark.parametrize("fault", FAULTY)
@pytest.mark.parametrize(("recipe", "option"), [("annotate", "--study"), ("judge", "--config")])
def test_a_study_and_a_run_are_read_alike(tmp_path: Path, recipe: str, option: str, fault: str) -> None:
    text, told = FAULTY[fault]
    file = tmp_path / "own.yaml"
    file.write_text(text)
    assert error_line(run_recipe(recipe, option, file)).startswith(f"error: {file}: {told}")


def test_a_card_is_read_alike() -> None:
    with pytest.raises(RecordError, match="the card: its front matter: holds more than 100,000 values"):
        front_matter(f"---\n{BOMB}---\n")


def test_the_words_of_a_study_are_text_and_no_template(tmp_path: Path) -> None:
    title = "Pain {{ cycler.__init__.__globals__ }}"
    with opened(write_study(tmp_path, title=title)) as store:
        assert f"<h1>{title}</h1>" in client_of(store).get("/").text
    line = error_line(run_recipe("publish", "page", tmp_path / "page", "--study", tmp_path / "study.yaml", *PSEUDONYMS))
    assert line.endswith("'{{ cycler.__init__.__globals__ }}' is not filled in")


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
    command = (
        "--judge",
        tiny_model,
        "--chat_template_path",
        file,
        "--cases",
        SAMPLE / "test_cases.jsonl",
        "--limit",
        1,
    )
    line = error_line(run_recipe("judge", *command, "--output", tmp_path / "verdicts"))
    assert json.dumps(line).count("\\n") == 0
