"""The plan of a study: its steps in order, where each starts, what an ablation changes, and where every path leads."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model
from programs import ROOT
from study_plan import PAPER, of, option, plan, recipe, reproduce, resolved, steps

from automedeval.rubrics import read_rubric

SMALL = "recipes/runs/automedeval-135m"
DEMO = "recipes/runs/demo"
ABLATIONS = ("no_chain", "no_curriculum", "no_introspection", "vanilla")
OTHERS = [
    *("gpt-3.5-turbo-0125", "gpt-4-turbo-2024-04-09", "gemini-2.0-flash"),
    *("Vicuna-7B", "Vicuna-13B", "DeepSeek-R1-Distill-Llama-8B", "PandaLM-7B"),
]
VARIANTS = {
    "study": [],
    **{name: ["--ablation", name] for name in ABLATIONS},
    "lora": ["--lora"],
    "base": ["--base", "models/Qwen-7B"],
}


def test_the_papers_study_from_top_to_bottom() -> None:
    assert "left out" not in reproduce(PAPER, "--dry_run").stdout
    commands = plan(PAPER)
    assert all(each["dry_run"] for each in of(commands, "publish")), "nothing is sent to the Hub"
    assert steps(commands) == [
        *("prepare_cases", "prepare_medtext", "generate_responses", "build_store"),
        *("distill_strong", "verify", "prepare_verified", "distill_weak"),
        *("build_dataset", "prepare_test", "generate_test"),
        *("judge", "judge_likelihood", *(["judge"] * len(OTHERS))),
        *("stage1", "judge", "stage2", "judge", "stage3", "judge"),
        *("judge_training1", "introspect1", "introspection1", "judge"),
        *("judge_training2", "introspect2", "introspection2", "judge"),
        *("report", "audit", "table2", "table3", "figure4"),
        *("publish_dataset", "publish_model", "publish_metric", "figure5"),
        *("prepare_calibration", "judge_likelihood_rated", "calibrate", "compare"),
    ]


def test_the_small_study_from_top_to_bottom() -> None:
    done = reproduce(SMALL, "--dry_run")
    assert "public questions: left out, there is no" in done.stdout
    assert steps(plan(SMALL)) == [
        *("build_store", "distill_strong", "distill_weak", "build_dataset", "judge", "judge_likelihood", "judge_small"),
        *("stage1", "judge", "stage2", "judge", "stage3", "judge"),
        *("judge_training1", "introspect1", "introspection1", "judge"),
        *("report", "audit", "judge_likelihood_rated", "calibrate", "compare"),
    ]


def test_the_demo_from_top_to_bottom() -> None:
    """Verdicts and a report before any training; then the small study's own steps, whose files it leaves alone."""
    commands = plan(DEMO)
    assert steps(commands) == [
        *("judge_small", "report", "check", "build_store", "distill_strong", "distill_weak"),
        *("build_dataset", "judge", "stage1", "stage2", "stage3", "judge", "judge_training1", "introspect1"),
        *("introspection1", "judge"),
        *("report", "audit"),
    ]
    runs = of(commands, "sft")
    starts = ["models/SmolLM2-135M-Instruct", *(run["output_dir"] for run in runs[:-1])]
    assert [run["model_name_or_path"] for run in runs] == starts
    judged = [each["judge"] for each in of(commands, "judge") + of(commands, "audit")]
    assert judged == ["small", starts[0], starts[3], starts[3], runs[-1]["output_dir"], runs[-1]["output_dir"]]
    for words in commands:
        made = [value for name, value in resolved(words).items() if name in ("output", "output_dir", "store")]
        assert made, words
        assert all(place.startswith("demo/") for place in made), made


LISTED = f"of: {SMALL}\nplace: demo\nsteps: "


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("study", f"of: {SMALL}\nsteps: []", "of, place and steps belong together: place is missing"),
        (
            "study",
            "of: {folder}\nplace: demo\nsteps: []",
            "study.yaml: lists its steps itself: `of` must name a folder",
        ),
        ("study", LISTED + "[{run: stage9, about: none}]", f"steps: there is no {SMALL}/stage9.yaml"),
        ("study", LISTED + "[{run: stage1}]", "steps: each has the keys run and about, and may have with"),
        ("study", LISTED + "[{run: stage1, about: x, wiht: {}}]", "steps: each has the keys run and about"),
        ("study", LISTED + "[stage1]", "steps: each has the keys run and about"),
        (
            "study",
            LISTED + "[{run: stage1, about: x}]",
            "instructions/sample/stage1.parquet: no earlier step writes it",
        ),
        ("judges", "judges: [models/x]", "entry 1 of judges must be a mapping of arguments, with judge: MODEL"),
        (
            "judges",
            "judges: [{rubric: pandalm}]",
            "entry 1 of judges must be a mapping of arguments, with judge: MODEL",
        ),
        ("judges", "judges: {judge: models/x}", "must have the keys every, a mapping of arguments, and judges, a list"),
        ("judges", "jugdes: []", "must have the keys every, a mapping of arguments, and judges, a list"),
        (
            "judges",
            "judges: [{judge: models/x}, {judge: a/x}]",
            "two judges are called x; give one of them a judge_name",
        ),
        (
            "judges",
            "judges: [{judge: models/x}]",
            "models/x: no earlier step writes it, and study.yaml does not list it",
        ),
        ("judges", "- a", "must be a mapping of arguments to values"),
    ],
)
def test_a_faulty_list_is_told_in_a_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = tmp_path / "automedeval-135m"
    shutil.copytree(ROOT / SMALL, folder)
    (folder / f"{file}.yaml").write_text(content.replace("{folder}", str(folder)))
    done = reproduce(folder, "--dry_run")
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[0]


def test_a_step_by_a_recipe_that_is_gone_names_what_to_use(tmp_path: Path) -> None:
    folder = tmp_path / "automedeval-135m"
    shutil.copytree(ROOT / SMALL, folder)
    (folder / "jury.yaml").write_text(f"# python recipes/jury.py --config {folder}/jury.yaml\noutput: verdicts/jury\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "study.yaml").write_text(f"of: {folder}\nplace: own\nsteps: [{{run: jury, about: x}}]")
    done = reproduce(tmp_path / "own", "--dry_run")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no such recipe: it is gone; compare the judges by `automedeval compare" in done.stderr


def test_a_study_that_lists_its_steps_takes_no_option_that_changes_them() -> None:
    for options in (
        ["--runs", 2],
        ["--ablation", "vanilla"],
        ["--base", "models/x"],
        ["--judges", "none"],
        ["--teacher", "strong=x"],
    ):
        done = reproduce(DEMO, *options, "--dry_run")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "lists its steps: it takes no option that changes them" in done.stderr


@pytest.mark.parametrize("folder", [SMALL, PAPER])
def test_each_training_starts_where_the_last_ended_and_is_judged(folder: str) -> None:
    commands, before = plan(folder), None
    for place, words in enumerate(commands):
        if recipe(words) == "sft":
            run = resolved(words)
            assert before is None or run["model_name_or_path"] == before
            before = run["output_dir"]
            assert (resolved(commands[place + 1])["judge"], steps(commands)[place + 1]) == (before, "judge")
        if recipe(words) == "introspect":
            judged, introspect = resolved(commands[place - 1]), resolved(words)
            assert (judged["judge"], judged["output"]) == (before, introspect["verdicts"])
            assert judged["cases"] in introspect["cases"]
    assert of(commands, "audit")[0]["judge"] == before


def test_the_test_set_is_that_of_the_paper() -> None:
    """958 cases of wikidoc and 172 of MedText, four candidates each (section 4.1), read by judge and report."""
    commands = plan(PAPER)
    by = dict(zip(steps(commands), map(resolved, commands)))
    assert yaml.safe_load((ROOT / by["build_dataset"]["plan"]).read_text())["test"]["take"] == 958
    assert by["prepare_medtext"]["sample"] == 172
    assert by["prepare_test"]["ids"][0] == f"{by['build_dataset']['output']}/test.parquet"
    training, new = by["generate_responses"]["candidates"], by["generate_test"]["candidates"]
    assert new[:2] == training
    assert (len(new), by["generate_test"]["candidates_per_case"]) == (4, read_rubric("automedeval").max_responses)
    formats = ROOT / by["generate_test"]["chat_template_path"]
    assert {file.stem for file in formats.glob("*.jinja")} == {Path(model).name for model in new}
    made = f"{by['generate_test']['output']}/cases.jsonl"
    assert {each["cases"] for each in of(commands, "report") + of(commands, "audit")} == {made}
    assert by["judge"]["cases"] == made


def name_of(judge: str) -> str:
    return re.split("[:/]", judge)[-1]


def test_the_other_judges_of_table_2_judge_the_test_cases() -> None:
    """Each three times, by what judge.yaml says unless judges.yaml says otherwise; the base model is one of the table's."""
    commands = [words for words in plan(PAPER) if recipe(words) == "judge" and option(words, "--runs")]
    judges = [resolved(words) for words in commands]
    assert [name_of(each["judge"]) for each in judges] == ["MedLLaMA-13B", *OTHERS]
    assert {(each["runs"], each["temperature"]) for each in judges} == {("3", "0.5")}
    assert {(each["cases"], each["output"]) for each in judges} == {("responses/test/cases.jsonl", "verdicts/wikidoc")}
    assert {each["judge"]: each["rubric"] for each in judges if each["rubric"] != "automedeval"} == {
        "models/PandaLM-7B": "pandalm"
    }
    # An endpoint is asked by one process; eight checkpoints take eight GPUs.
    assert [words[0] == "python" and "accelerate" not in words[2] for words in commands] == [
        each["judge"].startswith("openai:") for each in judges
    ]


def test_only_the_wanted_judges_are_asked_and_their_models_needed() -> None:
    for wanted, asked in (
        ("none", []),
        ("PandaLM-7B, gpt-4-turbo-2024-04-09", ["gpt-4-turbo-2024-04-09", "PandaLM-7B"]),
    ):
        done = reproduce(PAPER, "--judges", wanted, "--dry_run")
        assert (done.returncode, done.stderr) == (0, "")
        names = {name_of(each["judge"]) for each in of(plan(PAPER, "--judges", wanted), "judge")}
        assert [name for name in OTHERS if name in names] == asked
        for name in OTHERS:
            assert (f"{name} judges the test cases: left out by --judges" in done.stdout) == (name not in asked)
            assert (f"models/{name}: a judge of Table 2" in done.stdout) == (name in asked and "gpt" not in name)
    done = reproduce(PAPER, "--judges", "GPT-5", "--dry_run")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: --judges GPT-5: {PAPER}/judges.yaml has {', '.join(OTHERS)}\n"


def test_several_runs_differ_in_seed_and_place() -> None:
    commands = plan(SMALL, "--runs", 2, "--ablation", "no_introspection")
    runs = of(commands, "sft")
    assert [int(run["seed"]) for run in runs] == [0, 0, 0, 1, 1, 1]
    assert runs[3]["output_dir"] == "checkpoints/sample-stage1-run2"
    assert runs[4]["model_name_or_path"] == "checkpoints/sample-stage1-run2"
    assert runs[3]["model_name_or_path"] == "models/SmolLM2-135M-Instruct"
    assert len({run["output_dir"] for run in runs}) == 6
    names = [each["judge_name"] for each in of(commands, "judge") if "judge_name" in each]
    assert names == ["stage1", "stage2", "stage3", "stage1-run2", "stage2-run2", "stage3-run2"]


@pytest.mark.parametrize("folder", [SMALL, PAPER])
@pytest.mark.parametrize(
    ("ablation", "trained", "dataset"),
    [
        ("no_chain", ["stage1", "stage2", "stage3", "introspection1", "introspection2"], "-no_chain"),
        ("no_curriculum", ["no_curriculum", "introspection1", "introspection2"], ""),
        ("no_introspection", ["stage1", "stage2", "stage3"], ""),
        ("vanilla", ["vanilla", "vanilla_all"], "-vanilla"),
    ],
)
def test_an_ablation_changes_what_its_name_says(folder: str, ablation: str, trained: list[str], dataset: str) -> None:
    commands = plan(folder, "--ablation", ablation)
    found = [name for name, words in zip(steps(commands), commands) if recipe(words) == "sft"]
    assert found == [name for name in trained if (ROOT / folder / f"{name}.yaml").is_file()]
    built, runs = of(commands, "build_dataset")[-1], of(commands, "sft")
    assert built["output"].endswith(dataset)
    if "dataset_name" in runs[0]:
        assert runs[0]["dataset_name"] == built["output"]
    assert ("plan_vanilla" in str(built["plan"])) == (ablation == "vanilla")
    if dataset and folder == PAPER:  # no test case of the study is trained on
        assert "cases/test/cases.jsonl" in built["evaluation_cases"]
        assert built["on_leak"] == "drop"
    # Neither teachers nor suggestions have the books.
    taught = [each["knowledge"] for each in of(commands, "distill")]
    assert taught == ["chain"] * 2 + ["none"] * 2 * (ablation == "no_chain")
    if ablation == "no_chain":
        assert {each["knowledge"] for each in of(commands, "introspect")} == {"none"}
    # An ablation writes nothing where the study itself does.
    if ablation != "no_introspection":
        plain = {run["output_dir"] for run in of(plan(folder), "sft")}
        assert {run["output_dir"] for run in runs}.isdisjoint(plain)
    for name in ("audit", "report"):
        assert of(commands, name)[0]["output"].endswith(f"-{ablation}")


def test_the_judge_of_a_round_reads_the_rows_of_its_data_set() -> None:
    for more in ((), ("--ablation", "no_chain"), ("--lora",), ("--runs", 2)):
        commands = plan(PAPER, *more)
        training = [each for each in of(commands, "judge") if "dataset" in each]
        rounds = of(commands, "introspect")
        assert [each["dataset"] for each in training] == [each["dataset"] for each in rounds]
        assert [each["output"] for each in training] == [each["verdicts"] for each in rounds]


def test_adapters_are_trained_stage_by_stage() -> None:
    runs = of(plan(PAPER, "--lora"), "sft")
    assert [run["use_peft"] for run in runs] == [True] * 5
    assert [run["dataset_train_split"] for run in runs] == ["stage1", "stage2", "stage3", "train", "train"]
    for before, run in pairwise(runs):
        assert run["model_name_or_path"] == before["output_dir"]


def test_another_base_takes_the_place_of_the_studys_own() -> None:
    """Everything that comes of the base has its own name; what does not depend on it, or is another judge's, is shared."""
    plain, model, name = plan(PAPER, "--runs", 2), "models/Qwen-7B", "Qwen-7B"
    commands = plan(PAPER, "--runs", 2, "--base", model)
    text = "\n".join(shlex.join(words) for words in commands)
    assert "MedLLaMA" not in text
    runs = of(commands, "sft")
    starts = [run["model_name_or_path"] for run in runs]
    assert starts[0] == starts[5] == model
    assert starts[1:5] == [run["output_dir"] for run in runs[:4]]
    assert {run["chat_template_path"] for run in runs} == {"none"}
    # The other judges are asked as they are in the study.
    others = [words for words in plain if words[3:4] == ["--runs"] or option(words, "--runs")]
    assert [words for words in others[1:] if words not in commands] == []
    base = next(each for each in of(commands, "judge") if "runs" in each)
    assert (base["judge"], base["chat_template_path"]) == (model, "none")
    built = next(each for each in of(commands, "build_dataset") if "tokenizer" in each)
    assert (built["tokenizer"], built["chat_template_path"]) == (model, "none")
    (calibrated,) = of(commands, "calibrate")
    assert calibrated["judge"] == f"likelihood:{name}"
    # No output of a training, a round, a judge's reading, a report or a calibration is one of the study's.
    argument = {"sft": "output_dir"}
    for kind in ("sft", "build_dataset", "introspect", "audit", "report", "calibrate", "compare"):
        made, theirs = ({each[argument.get(kind, "output")] for each in of(some, kind)} for some in (commands, plain))
        assert made & theirs <= {"instructions/verified"}, kind  # physicians' checks of the teacher, before any base
    names = [each["judge_name"] for each in of(commands, "judge") if "judge_name" in each]
    assert len(names) == len({*names}) + 4  # of a training data set, and of the test cases
    assert {"stage3-Qwen-7B", "introspection2-Qwen-7B", "introspection2-Qwen-7B-run2"} <= {*names}
    tables = {Path(option(words, "--config")).stem: resolved(words) for words in commands if recipe(words) == "report"}
    assert tables.keys() == {"report", "table2", "table3", "figure4"}
    assert tables["table2"]["compare_to"] == tables["figure4"]["judges"] == "introspection2-Qwen-7B"
    rounds = "stage3-Qwen-7B,introspection1-Qwen-7B,introspection2-Qwen-7B"
    assert tables["report"]["rounds"] == tables["table3"]["rounds"] == tables["table3"]["judges"] == rounds
    assert "publish" not in set(map(recipe, commands))


def test_the_template_of_the_yamls_serves_a_base_without_one(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "bare", chat_template=None)
    runs = of(plan(PAPER, "--base", base), "sft")
    assert {run["chat_template_path"] for run in runs} == {"src/automedeval/models/templates/chat_template.jinja"}
    own = build_tiny_model(tmp_path / "own")
    for run in (own, base):  # older tokenizers hold their template in their settings
        (run / "chat_template.jinja").unlink(missing_ok=True)
    settings = own / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": CHAT_TEMPLATE}))
    assert {run["chat_template_path"] for run in of(plan(PAPER, "--base", own), "sft")} == {"none"}


def test_a_base_that_cannot_be_trained_is_named_before_the_first_step(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base")
    assert reproduce(PAPER, "--base", base, "--dry_run").returncode == 0
    (base / "model.safetensors").unlink()
    done = reproduce(PAPER, "--base", base, "--dry_run")
    assert done.returncode == 1
    assert f"error: {base}: 1 of what a base needs is missing or wrong: no weights in safetensors" in done.stderr


def test_the_studys_own_base_is_checked_before_the_first_step(tmp_path: Path) -> None:
    done = reproduce(with_other_base(tmp_path, build_tiny_model(tmp_path / "base", chat_template=None)))
    assert done.returncode == 1
    assert "what a base needs is missing or wrong: no chat template" in done.stderr
    assert "==" not in done.stdout


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_dry_run_finds_every_path(variant: str) -> None:
    done = reproduce(PAPER, *VARIANTS[variant], "--dry_run")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^(missing|there) +books/medical: ", done.stdout, re.M)


def paths(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, path) for every text in a YAML's content that is a path."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from paths(held, name)
    elif isinstance(value, list):
        for held in value:
            yield from paths(held, key)
    elif isinstance(value, str) and "/" in value and key not in ("base_model", "base_url") and "ORG/" not in value:
        yield key, re.split("[=:]", value)[-1]  # NAME=FILE, KIND:MODEL


def yaml_paths() -> list[tuple[str, str, str]]:
    """Return (YAML, key, path) for every path of the paper's run folder; also those of the first lines.

    The physicians' studies are no steps: tests/annotation/test_paper_study.py compares their paths with those of the steps.
    """
    found = []
    for file in sorted(set((ROOT / PAPER).glob("*.yaml")) - set((ROOT / PAPER).glob("annotate*.yaml"))):
        if file.stem == "study":
            content = yaml.safe_load(file.read_text())
            found += [(file.name, "brings", path) for path in content["brings"]]
            found += [(file.name, "leaves", path) for some in content["leaves"].values() for path in some]
            continue
        first, *_ = file.read_text().splitlines()
        if "recipes/" in first:
            found += [(file.name, "first line", word) for word in first.split() if "/" in word]
        found += [(file.name, *each) for each in dict.fromkeys(paths(yaml.safe_load(file.read_text())))]
    return found


def test_every_broken_path_is_named(tmp_path: Path) -> None:
    """Each path of each YAML is changed in turn: the dry run of the study, or of the variant that reads it, says which."""
    places, missed = yaml_paths(), []
    assert len(places) > 150
    assert {name for name, *_ in places} >= {"lora.yaml", "vanilla_all.yaml", "publish_model.yaml"}
    folder = tmp_path / "automedeval-13b"
    shutil.copytree(ROOT / PAPER, folder)
    for name, key, path in places:
        file = folder / name
        whole = file.read_text()
        stem, dot, suffix = path.rpartition(".") if re.search(r"\.\w+$", path) else (path, "", "")
        broken = f"{stem}-broken{dot}{suffix}"
        file.write_text(re.sub(rf"(?<![\w/.-]){re.escape(path)}(?![\w/.-])", broken, whole))
        assert file.read_text() != whole, (name, key, path)
        first = {"lora": "lora", "vanilla": "vanilla", "vanilla_all": "vanilla", "no_curriculum": "no_curriculum"}
        order = sorted(VARIANTS, key=lambda variant: variant != first.get(file.stem, "study"))
        for variant in order:
            done = reproduce(folder, *VARIANTS[variant], "--dry_run")
            if done.returncode:
                break
        if done.returncode != 1 or not (broken in done.stderr or path in done.stderr):
            missed.append((name, key, path, done.stderr))
        file.write_text(whole)
    assert missed == [], "\n".join(map(str, missed))


@pytest.mark.parametrize("variant", [*VARIANTS, "teacher"])
def test_every_printed_command_can_be_pasted(variant: str) -> None:
    """Each file that a command names is in the repository, brought by the user, or written by an earlier command."""
    options = VARIANTS.get(variant, ["--teacher", "strong=m"])
    printed = reproduce(PAPER, *options, "--dry_run").stdout
    brings = re.findall(
        r"^(?:missing|there|later|on the Hub) +(\S+): (.*)$", printed.partition("== what you bring")[2], re.M
    )
    # An ablation and another base take up what the study itself has made.
    present = {path for path, _ in brings} | {"ORG", "models/Qwen-7B"}
    present |= {f"{place}" for place in outputs(plan(PAPER))} if variant in ABLATIONS else set()
    for words in plan(PAPER, *options):
        made = outputs([words])
        for _, path in paths(resolved(words)):
            path = path.partition(",")[0]
            above = {path, *map(str, Path(path).parents)} - {"."}
            assert above & (present | made) or (ROOT / path).exists(), (words, path)
        present |= made
    for path, about in brings:
        command = about.rpartition("; ")[2].removesuffix(" (docs/annotation.md)").split()
        if command[:1] == ["python"]:
            assert (ROOT / command[1]).is_file()
            if "--study" in command:
                study = option(command, "--study")
                assert (ROOT / study).is_file() or (variant, study) == (
                    "teacher",
                    "ratings/automedeval-13b-annotate.yaml",
                )
                assert option(command, "--export") == str(Path(path).parent)
            else:
                assert path in command or Path(path).parent.name == option(command, "--output")


def outputs(commands: list[list[str]]) -> set[str]:
    """Return the places in which commands write."""
    names = ("output", "output_dir", "store")
    return {str(step[name]) for step in map(resolved, commands) for name in names if name in step}


def with_other_base(folder: Path, base: object) -> Path:
    """Copy the small study with another path of its base into a folder; return the study's folder."""
    copy = folder / "automedeval-135m"
    shutil.copytree(ROOT / SMALL, copy)
    for file in copy.glob("*.yaml"):
        file.write_text(file.read_text().replace("models/SmolLM2-135M-Instruct", str(base)))
    return copy


def test_what_is_missing_is_named_before_the_first_step(tmp_path: Path) -> None:
    done = reproduce(with_other_base(tmp_path, "models/no-such-135M-Instruct"))
    assert done.returncode == 1
    message = "error: models/no-such-135M-Instruct is missing: the base model. To get it: python recipes/get_models.py"
    assert message in done.stderr
    assert "==" not in done.stdout


def test_keys_of_endpoints_are_asked_for_before_the_first_step(tmp_path: Path) -> None:
    printed = reproduce(PAPER, "--dry_run").stdout
    assert re.search(r"^missing +OPENAI_API_KEY: the key with which the strong teacher judges", printed, re.M)
    assert re.search(
        r"^missing +GEMINI_API_KEY: the key with which gemini-2.0-flash judges the test cases", printed, re.M
    )
    assert "GEMINI_API_KEY" not in reproduce(PAPER, "--judges", "none", "--dry_run").stdout
    done = reproduce(PAPER)
    assert done.returncode == 1
    assert "error: GEMINI_API_KEY is not set: the key with which gemini-2.0-flash judges the test cases" in done.stderr
    assert "==" not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nowhere"],
        [SMALL, "--runs"],
        [SMALL, "--runs", "many"],
        [SMALL, "--ablation", "none"],
        [SMALL, "-x", "1"],
        [PAPER, "--lora", "--ablation", "vanilla"],
        [PAPER, "--base", "models/x", "--ablation", "no_curriculum"],
        [PAPER, "--base", ""],
    ],
)
def test_what_it_cannot_do_is_told_by_its_usage(arguments: list[str]) -> None:
    done = reproduce(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_a_step_that_fails_ends_the_study(tmp_path: Path) -> None:
    folder = tmp_path / "automedeval-135m"
    shutil.copytree(ROOT / SMALL, folder)
    (folder / "build_store.yaml").write_text((folder / "build_store.yaml").read_text() + "no_such_argument: 1\n")
    for brought in yaml.safe_load((folder / "study.yaml").read_text())["brings"]:
        if not (ROOT / brought).is_dir():
            pytest.skip(f"{brought} is not here; `make test` gets it")
    done = reproduce(folder)
    assert done.returncode == 1
    _, where, *_, last = done.stderr.splitlines()
    assert where == "build_store.yaml has failed; the last lines of logs/automedeval-135m/01-build_store.log:"
    assert "unknown key 'no_such_argument'" in last
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("==")]
    assert line.startswith("== 1/22 reference books into the knowledge store (")


def test_the_document_lists_every_decision_about_the_paper() -> None:
    listed = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8").partition("## Decisions")[2]
    for folder, root in ((ROOT / "src" / "automedeval", ROOT / "src" / "automedeval"), (ROOT / "recipes", ROOT)):
        marked = [file for file in folder.rglob("*.py") if "# Paper:" in file.read_text(encoding="utf-8")]
        assert [str(file) for file in marked if f"`{file.relative_to(root)}`" not in listed] == []
