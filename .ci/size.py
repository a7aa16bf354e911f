"""Print the size of a checkout beside its limits: `python .ci/size.py [CHECKOUT]`; exit status 1 above one of them.

Size is counted in syntax nodes, the expressions and statements of Python's own parser: how code is broken into lines changes
nothing. Nodes a statement say how dense it is to read. Nothing of the checkout is imported. A limit is raised by a commit of
its own, which says what the reader gets for it.
"""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

LIMITS = {
    "src, nodes": 127_360,
    "tests, nodes": 141_120,
    "recipes, nodes": 9_330,
    "benchmarks, nodes": 14_300,
    "src, nodes a statement": 6.8,
    "tests, nodes a statement": 7.2,
    "lines above 100 columns": 2_650,
    "docs/*.md, bytes": 100_000,
    "YAML and Jinja in src, bytes": 160_000,
    "recipes, lines of YAML": 760,
    "options declared": 159,
    "rooms": 13,
    "arrows between rooms": 68,
    "circles of modules": 0,
}
ROOT = Path(sys.argv[1] if sys.argv[1:] else ".")
PACKAGE = ROOT / "src/automedeval"
FOLDERS = ("src", "tests", "recipes", "benchmarks")
TREES = {
    file: ast.parse(file.read_text("utf-8"))
    for folder in FOLDERS
    for file in sorted((ROOT / folder).rglob("*.py"))
}


def trees(*folders: str) -> dict[Path, ast.Module]:
    """Return the parsed files of some folders."""
    return {
        file: tree for file, tree in TREES.items() if file.relative_to(ROOT).parts[0] in folders
    }


def count(folder: str, *kinds: type[ast.AST]) -> int:
    """Return how many nodes of these kinds the files of a folder hold."""
    return sum(
        isinstance(node, kinds) for tree in trees(folder).values() for node in ast.walk(tree)
    )


def files_of(folder: str, *endings: str) -> list[Path]:
    """Return the files of a folder whose names end so."""
    return [file for ending in endings for file in (ROOT / folder).rglob(f"*{ending}")]


def size_of(files: Iterable[Path]) -> int:
    """Return the bytes of some files."""
    return sum(file.stat().st_size for file in files)


def imported(tree: ast.Module) -> set[str]:
    """Return every dotted name of the package that a module imports anywhere, without the package's own."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.removeprefix("automedeval.") for name in names if name.startswith("automedeval.")}


def module_name(file: Path) -> str:
    """Return the dotted name of a file of the package; of a recipe or benchmark, its folder."""
    if not file.is_relative_to(PACKAGE):
        return file.relative_to(ROOT).parts[0]
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def module_graph() -> dict[str, set[str]]:
    """Return which modules of the package each module imports."""
    names = {module_name(file): tree for file, tree in trees("src").items()}
    graph = {}
    for name, tree in names.items():
        targets = {
            target if target in names else target.rpartition(".")[0] for target in imported(tree)
        }
        graph[name] = targets & set(names) - {name}
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> frozenset[str]:
    """Return the modules that a module imports, directly or through others."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return frozenset(seen)


def circles() -> set[frozenset[str]]:
    """Return the groups of modules that import each other."""
    graph = module_graph()
    reach = {name: reachable(graph, name) for name in graph}
    return {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }


def arrows() -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second; recipes and benchmarks import rooms, and are none."""
    pairs = set()
    for file, tree in trees("src", "recipes", "benchmarks").items():
        room = module_name(file).partition(".")[0]
        targets = {target.partition(".")[0] for target in imported(tree)}
        pairs |= {(room, target) for target in targets & ROOMS - {room}}
    return pairs


def options() -> int:
    """Return how many command-line options are declared, by their help texts."""
    code = "\n".join(ast.unparse(tree) for tree in trees("src", "recipes", "benchmarks").values())
    return code.count("'help': ") + code.count(" = option(")


# A room is a folder or a module of the package.
ROOMS = {
    place.stem for place in PACKAGE.iterdir() if place.suffix == ".py" or any(place.glob("*.py"))
} - {"__init__"}


def density(folder: str) -> float:
    """Return the nodes a statement of a folder, to two decimals."""
    return round(count(folder, ast.expr, ast.stmt) / count(folder, ast.stmt), 2)


def long_lines() -> int:
    """Return the lines of Python that are longer than 100 columns."""
    return sum(len(line) > 100 for file in TREES for line in file.read_text("utf-8").splitlines())


sizes: dict[str, float] = {
    **{f"{folder}, nodes": count(folder, ast.expr, ast.stmt) for folder in FOLDERS},
    **{f"{folder}, nodes a statement": density(folder) for folder in ("src", "tests")},
    "lines above 100 columns": long_lines(),
    "docs/*.md, bytes": size_of((ROOT / "docs").glob("*.md")),
    "YAML and Jinja in src, bytes": size_of(files_of("src", ".yaml", ".jinja")),
    "recipes, lines of YAML": sum(
        file.read_text("utf-8").count("\n") for file in files_of("recipes", ".yaml", ".yml")
    ),
    "options declared": options(),
    "rooms": len(ROOMS),
    "arrows between rooms": len(arrows()),
    "circles of modules": len(circles()),
}
for what, size in sizes.items():
    print(f"{what}: {size:,}, at most {LIMITS[what]:,}")
if above := [what for what, size in sizes.items() if size > LIMITS[what]]:
    sys.exit(f"above the limit: {', '.join(above)}")
