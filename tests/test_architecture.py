"""The house: floors, doors for outside libraries, sizes, names, and what ships with the package."""

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "automedeval"
# By name: `records`, `annotation.study`. The metrics' folders import nothing of ours, and stand by themselves.
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in sorted([*SOURCE.glob("*.py"), *(SOURCE / "annotation").glob("*.py")])
}
RECIPES = {path.stem: path for path in sorted((ROOT / "recipes").glob("*.py")) if path.stem != "__init__"}

# Each floor is a flight of steps; a module imports only from lower steps.
FLOORS = {
    "F0": [
        {"records", "resampling"},
        {"rubrics", "journal"},
    ],
    "F1": [
        {
            "verdicts",
            "planning",
            "ranking",
            "agreement",
            "reliability",
            "baselines",
            "overlap",
            "rationales",
            "verification",
            "judged_cases",
            "forecast",
            "scaling",
            "prediction_powered",
            "sampling",
            "length_control",
            "thresholds",
        },
        {"prompts", "cases", "corruption", "curriculum", "calibration", "abstention", "ensemble", "tone"},
        {"attribution", "instructions", "layouts", "found_verdicts", "topics", "perturbations", "readings"},
        {"mistakes", "leakage", "trials"},
    ],
    "F2": [
        {"checkpoints", "completions", "decoding", "figures", "books", "recorded_chat", "rule_on_ratings"},
        {"encoding"},
        {"chat", "local_chat"},
        {"embeddings"},
        {"knowledge"},
    ],
    "F3": [
        {
            "verdict_log",
            "base_judge",
            "people",
            "evidence",
            "candidates",
            "generation",
            "quality",
            "dataset_folder",
            "jury",
            "hub_card",
            "annotator_names",
            "preferences",
        },
        {"likelihood_judge", "baseline_judge"},
        {"judging"},
        {
            "rows",
            "completion_chain",
            "instruction_set",
            "stages",
            "publishing",
            "similarity",
            "audits",
            "audit_verdicts",
        },
        {
            "meta_evaluation",
            "confidence",
            "uncertainty",
            "comparison",
            "summary",
            "rounds",
            "repeats",
            "discussion",
            "trained_positions",
            "hub",
        },
        {"illustrations", "partners"},
        {"report", "introspection"},
        {"model_card", "audit_report", "comparison_page"},
    ],
    "F4": [
        {"arguments"},
        {"annotation.order", "annotation.disputes", "annotation.database", "annotation.security"},
        {"annotation.study"},
        {"annotation.content", "annotation.assignment", "annotation.space"},
        {"annotation.store"},
        {"annotation.export", "annotation.sheets", "annotation.item_view", "annotation.progress"},
        {"annotation.coordinator"},
        {"annotation.app"},
    ],
}
PACKAGES = {"__init__", "annotation.__init__"}
STEPS = {
    name: number for number, step in enumerate(step for floor in FLOORS.values() for step in floor) for name in step
}

# Which modules may import an outside library, anywhere in their text. What is not named may not be imported at all.
ARRAYS = {
    "resampling", "agreement", "reliability", "ranking", "baselines", "cases", "people", "evidence", "rows", "candidates",
    "meta_evaluation", "report", "overlap", "quality", "embeddings", "forecast", "calibration",
    "similarity", "abstention", "audits", "comparison", "confidence", "ensemble", "length_control", "prediction_powered",
    "preferences", "baseline_judge", "readings", "sampling", "scaling", "trials", "uncertainty", "annotation.progress",
}  # fmt: skip
DOORS = {
    "accelerate": {"arguments"},
    "argon2": {"annotation.coordinator"},
    "datasets": {"records", "layouts", "stages"},
    "fastapi": {"annotation.app", "annotation.coordinator"},
    "httpx": {"knowledge"},
    "huggingface_hub": {"checkpoints", "hub"},
    "jinja2": {
        "prompts",
        "encoding",
        "report",
        "dataset_folder",
        "stages",
        "model_card",
        "annotation.app",
        "annotation.space",
    },
    "markupsafe": {"report", "illustrations", "audit_report", "comparison_page"},
    "matplotlib": {"figures"},
    "numpy": ARRAYS,
    "openai": {"chat"},
    "pyarrow": {"dataset_folder", "publishing"},
    "pypdf": {"books"},
    "qdrant_client": {"knowledge"},
    "rapidfuzz": {"baselines"},
    "scipy": {
        "resampling",
        "ranking",
        "forecast",
        "calibration",
        "abstention",
        "ensemble",
        "length_control",
        "prediction_powered",
        "sampling",
        "scaling",
    },
    "sentence_transformers": {"embeddings"},
    "sklearn": {"quality", "topics"},
    "skops": {"quality"},
    "sqlalchemy": {"annotation.assignment", "annotation.database", "annotation.store", "annotation.study"},
    "starlette": {"annotation.app", "annotation.coordinator", "annotation.security"},
    "torch": {"decoding", "local_chat", "embeddings"},
    "tqdm": {"instruction_set", "audit_verdicts"},
    "transformers": {"decoding", "encoding", "local_chat", "arguments"},
    "yaml": {
        "rubrics",
        "arguments",
        "report",
        "curriculum",
        "layouts",
        "hub_card",
        "annotator_names",
        "model_card",
        "perturbations",
        "thresholds",
        "tone",
        "annotation.space",
        "annotation.study",
    },
}


def imports(path: Path) -> set[str]:
    """Return the dotted names of all modules that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}: a relative import"
            if node.module in (
                "automedeval",
                "automedeval.annotation",
            ):  # `from automedeval import chat` is automedeval.chat
                folder = node.module.removeprefix("automedeval").lstrip(".")
                own = {name for alias in node.names if (name := f"{folder}.{alias.name}".lstrip(".")) in MODULES}
                names |= {f"automedeval.{name}" for name in own}
                if len(own) == len(node.names):
                    continue
            names.add(node.module)
    return names


def test_every_module_has_its_floor() -> None:
    assert set(STEPS) == set(MODULES) - PACKAGES


def test_the_documents_name_every_module() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for floor, steps in FLOORS.items():
        (row,) = re.findall(rf"^\| {floor} \| ([^|]+) \|", text, re.M)
        assert [set(re.findall(r"`([\w.]+)`", step)) for step in row.split("then")] == steps


@pytest.mark.parametrize("name", sorted(set(MODULES) - PACKAGES))
def test_a_module_imports_only_from_lower_steps(name: str) -> None:
    ours = {module.partition(".")[2] for module in imports(MODULES[name]) if module.startswith("automedeval.")}
    assert {module for module in ours if STEPS.get(module, len(STEPS)) >= STEPS[name]} == set()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_outside_libraries_enter_by_their_doors(name: str) -> None:
    packages = {module.split(".")[0] for module in imports(MODULES[name])} - {"automedeval"}
    outside = packages - set(sys.stdlib_module_names)
    assert {package for package in outside if name not in DOORS.get(package, ())} == set()


def test_every_door_is_used() -> None:
    for package, modules in DOORS.items():
        for name in modules:
            assert package in {module.split(".")[0] for module in imports(MODULES[name])}, f"{name}: {package}"


def test_the_package_imports_no_recipe() -> None:
    for name, path in MODULES.items():
        found = {module.split(".")[0] for module in imports(path)}
        assert not found & {"recipes", "tests", "benchmarks", *RECIPES}, name


def test_trl_is_launched_by_one_recipe_alone() -> None:
    files = [*MODULES.values(), *RECIPES.values()]
    found = [path.stem for path in files if "trl" in {module.split(".")[0] for module in imports(path)}]
    assert found == ["sft"]


def test_no_recipe_hides_another_module() -> None:
    # A recipe's folder comes first on sys.path while it runs: recipes/datasets.py would be imported as `datasets`.
    assert RECIPES
    assert not set(RECIPES) & (set(packages_distributions()) | set(sys.stdlib_module_names))


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "training"}
    names = {path.stem for folder in (SOURCE, ROOT / "recipes") for path in folder.rglob("*")}
    assert not names & drawers


def test_files_stay_small() -> None:
    lengths = [(path, 400) for path in SOURCE.rglob("*.py")] + [(path, 250) for path in RECIPES.values()]
    lengths += [(path, 400) for path in (ROOT / "tests").glob("*.py")]
    assert [str(path) for path, most in lengths if len(path.read_text(encoding="utf-8").splitlines()) > most] == []


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import automedeval", {"torch", "transformers", "openai", "datasets", "accelerate", "huggingface_hub"}),
        ("from automedeval import Judge", {"torch", "transformers", "openai", "datasets"}),
        ("from automedeval import OpenAIChat", {"torch", "transformers", "datasets"}),
    ],
)
def test_what_an_import_does_not_load(statement: str, absent: set[str]) -> None:
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(shown))
    assert "automedeval.rubrics" in loaded
    assert loaded & absent == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the checkout, which the build would otherwise litter; return its path."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(checkout)], check=True, capture_output=True, text=True)
    (built,) = folder.glob("automedeval-*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    files = {path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if path.suffix != ".pyc"}
    assert any(name.startswith("automedeval/assets/") for name in expected)
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected


def test_a_rubric_is_read_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})\n"
        "import automedeval\n"
        "print(automedeval.__file__)\n"
        "for name in automedeval.packaged_rubrics():\n"
        "    print(automedeval.read_rubric(name).name)"
    )
    # -I: neither the checkout nor PYTHONPATH is looked at
    shown = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    file, *rubrics = shown.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert rubrics == ["automedeval@1", "instruction_pairwise@1", "just_eval_pairwise@1", "medical_pairwise@1"]
