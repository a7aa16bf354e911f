"""Print the size of a checkout beside its limits: `python .ci/count_lines.py [CHECKOUT]`; exit status 1 above one of them.

Nothing of the checkout is imported. A limit is raised by a commit of its own, which says what the reader gets for it.
"""

import ast
import sys
from pathlib import Path

LIMITS = {
    "src, lines of Python": 27_320,
    "tests, lines of Python": 28_210,
    "recipes, lines of Python": 1_958,
    "benchmarks, lines of Python": 2_938,
    "recipes, lines of YAML": 1_568,
    "docs/*.md, bytes": 108_300,
    "options declared": 191,
    "rooms": 17,
    "arrows between rooms": 89,
}
ROOT = Path(sys.argv[1] if sys.argv[1:] else ".")
PACKAGE = ROOT / "src/automedeval"
# A room is a folder or a module of the package.
ROOMS = {place.stem for place in PACKAGE.iterdir() if place.suffix == ".py" or any(place.glob("*.py"))} - {"__init__"}


def lines(folder: str, *endings: str) -> int:
    """Return the lines of the files of a folder whose names end so."""
    files = [file for ending in endings for file in (ROOT / folder).rglob(f"*{ending}")]
    return sum(file.read_text("utf-8").count("\n") for file in files)


def imported(tree: ast.Module) -> set[str]:
    """Return the rooms that a module imports anywhere."""
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [each.name for each in node.names]
        if isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{each.name}" for each in node.names]
    return {module.split(".")[1] for module in modules if module.startswith("automedeval.")} & ROOMS


options, arrows = 0, set()
for file in [file for name in ("src", "recipes", "benchmarks") for file in (ROOT / name).rglob("*.py")]:
    tree = ast.parse(file.read_text("utf-8"))
    code = ast.unparse(tree)
    options += code.count("'help': ") + code.count(" = option(")  # the fields of a dataclass
    home = PACKAGE if file.is_relative_to(PACKAGE) else ROOT  # recipes and benchmarks import rooms, and are none
    room = file.relative_to(home).parts[0].removesuffix(".py")
    arrows |= {(room, name) for name in imported(tree) - {room}}
sizes = {
    **{f"{name}, lines of Python": lines(name, ".py") for name in ("src", "tests", "recipes", "benchmarks")},
    "recipes, lines of YAML": lines("recipes", ".yaml", ".yml"),
    "docs/*.md, bytes": sum(page.stat().st_size for page in (ROOT / "docs").glob("*.md")),
    "options declared": options,
    "rooms": len(ROOMS),
    "arrows between rooms": len(arrows),
}
for what, size in sizes.items():
    print(f"{what}: {size:,}, at most {LIMITS[what]:,}")
if above := [what for what, size in sizes.items() if size > LIMITS[what]]:
    sys.exit(f"above the limit: {', '.join(above)}")
