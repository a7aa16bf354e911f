"""Print the size of a checkout: `python .ci/count_lines.py [CHECKOUT]`. Nothing of the checkout is imported."""

import ast
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if sys.argv[1:] else ".")
PAGES = ["README.md", "model_card.md", "CHANGELOG.md", "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
FILES = sorted(file for name in ("src", "recipes") for file in (ROOT / name).rglob("*.py"))
TREES = [ast.parse(file.read_text("utf-8")) for file in FILES]
CLASSES = {node.name: node for tree in TREES for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the fields of a dataclass of this repository and of its bases; those of a library's class are not counted."""
    body, bases = (classes[name].body, classes[name].bases) if name in classes else ([], [])
    own = {each.target.id for each in body if isinstance(each, ast.AnnAssign)}
    return own.union(*(fields(ast.unparse(base), classes) for base in bases))


def options(program: ast.Module) -> set[str]:
    """Return the options of a program, by its calls of `parse((Arguments, …), …)` and of `add_argument("--name")`."""
    found: set[str] = set()
    classes = CLASSES | {node.name: node for node in program.body if isinstance(node, ast.ClassDef)}
    for call in (node for node in ast.walk(program) if isinstance(node, ast.Call) and node.args):
        if ast.unparse(call.func) == "parse":
            names = [each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)]
            found = found.union(*(fields(name, classes) for name in names))
        if ast.unparse(call.func).endswith(".add_argument") and ast.unparse(call.args[0]).startswith("'--"):
            found.add(ast.literal_eval(call.args[0])[2:])
    return found


for name in ("src", "tests", "recipes", "benchmarks"):
    texts = [file.read_text("utf-8") for file in (ROOT / name).rglob("*.py")]
    print(f"{name}: {sum(text.count(chr(10)) for text in texts):,} lines in {len(texts)} files")
print(f"pages: {sum((ROOT / page).stat().st_size for page in PAGES):,} bytes in {len(PAGES)} files")
taken = [names for tree in TREES if (names := options(tree))]
helps = sum(text.count("'help': ") for text in map(ast.unparse, TREES))
accepted = f"{sum(map(len, taken))} of {len(taken)} programs, {len(set().union(*taken))} distinct"
print(f"options: {helps} declared, {accepted}")
