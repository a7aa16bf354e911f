"""Measure what the tests catch: small changes of the source, one at a time, each run against the tests that reach its line.

    python tests/mutations.py cover   which lines each file of tests reaches; takes longer than `make test`
    python tests/mutations.py run     sixty changes
    python tests/mutations.py list    the same changes, not run

Both run what `make test` runs, and with `--slow` what `make test-all` runs.

A change is drawn by the hash of its place (file, function, text, number of the same before it), not by its line. So the same
seed draws the same places of two versions of the source, except for what was written or removed between them.
The tests in the folder of a line's room run first. It is not part of `make test`.
"""

import argparse
import ast
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "src/automedeval"
ROOMS = [
    "stats",
    "meta_evaluation",
    "judges",
    "evidence",
    "records",
    "study",
]
SEED = 20261125
SECONDS = 900  # for one change; a test that hangs has noticed it
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
MARKS = {False: ["-m", "not slow"], True: []}  # without and with the slow tests
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


@dataclass(frozen=True)
class Mutation:
    """A change: `start` to `end` (offsets in bytes) of a file becomes `text`."""

    file: str
    line: int
    function: str
    start: int
    end: int
    text: str
    before: str
    number: int

    @property
    def draw(self) -> str:
        """Return the hash by which changes are drawn."""
        place = f"{SEED} {self.file} {self.function} {self.before} {self.text} {self.number}"
        return hashlib.sha256(place.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function} {self.before!r} -> {self.text.strip() or 'without not'!r}"


def changes(source: bytes, tree: ast.Module) -> Iterator[tuple[ast.AST, str, int, int, str]]:
    """Yield each possible change: its node, its function, and the replaced bytes with their new text."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def at(node: ast.AST, end: bool = False) -> int:
        line, column = (
            (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        )
        return begins[line - 1] + column

    def walk(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, int, int, str]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            yield from walk(child, f"{function}.{child.name}" if named else function)
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield node, function, at(left, True), at(right), f" {COMPARISONS[type(operator)]} "
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                yield node, function, at(left, True), at(right), f" {ARITHMETIC[type(operator)]} "
            case ast.BoolOp(op=operator, values=[left, right, *_]):
                yield (
                    node,
                    function,
                    at(left, True),
                    at(right),
                    " or " if isinstance(operator, ast.And) else " and ",
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, function, at(node), at(operand), ""
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield node, function, at(node), at(node, True), str(value + 1)

    yield from walk(tree, "")


def mutations(root: Path) -> list[Mutation]:
    """Return every possible change of the rooms, in the order in which they are drawn."""
    drawn: list[Mutation] = []
    for path in sorted(path for room in ROOMS for path in (root / PACKAGE / room).rglob("*.py")):
        source = path.read_bytes()
        seen: Counter[tuple[str, bytes, str]] = Counter()
        for node, function, start, end, text in changes(source, ast.parse(source)):
            between = source[start:end]
            if any(
                mark in between for mark in b"()#\n"
            ):  # these belong to the parts beside the operator
                continue
            before = ast.unparse(node)
            seen[function, before, text] += 1
            place = str(path.relative_to(root))
            number = seen[function, before, text]
            drawn.append(Mutation(place, node.lineno, function, start, end, text, before, number))
    return sorted(drawn, key=lambda each: each.draw)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note for coverage which file of tests runs, in this process and in those that it starts."""
    import coverage

    file = item.nodeid.partition("::")[0]
    os.environ["TEST_FILE"] = file
    if current := coverage.Coverage.current():
        current.switch_context(file)


def environment(root: Path, **more: str) -> dict[str, str]:
    """Return the environment in which the tests of a copy of the source run."""
    paths = os.pathsep.join([str(root / "src"), str(root / "tests")])
    own = {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "true",
    }
    return os.environ | own | more


def cover(workers: str, files: list[str], slow: bool) -> None:
    """Run the tests, or those of some files, and write which files of tests reach each line."""
    from coverage import Coverage

    with tempfile.TemporaryDirectory() as place:
        data = Path(place, "coverage")
        started = {"COVERAGE_PROCESS_START": str(ROOT / "setup.cfg"), "COVERAGE_FILE": str(data)}
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            "-m",
            "pytest",
            "-p",
            "mutations",
            *MARKS[slow],
        ]
        command += [
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            "--numprocesses",
            workers,
            *files,
        ]
        subprocess.run(command, cwd=ROOT, env=environment(ROOT, **started))
        os.environ["TEST_FILE"] = ""
        whole = Coverage(data_file=str(data), config_file=str(ROOT / "setup.cfg"))
        whole.combine([place])
        share = whole.report(file=io.StringIO(), ignore_errors=True, include=[f"{PACKAGE}/*"])
        print(f"coverage of {PACKAGE}: {share:.2f} %")
        reached = {}
        for file in map(Path, whole.get_data().measured_files()):
            lines = whole.get_data().contexts_by_lineno(str(file))
            name = str(file).rpartition(f"{PACKAGE}/")[2]
            reached[f"{PACKAGE}/{name}"] = {
                line: sorted({*tests} - {""}) for line, tests in lines.items()
            }
    (ROOT / "coverage.json").write_text(json.dumps({"percent": share, "reached": reached}), "utf-8")


def run(count: int, slow: bool) -> None:
    """Apply each drawn change to a checkout of the last commit, run the tests that reach it, and print what became of it."""
    reached = json.loads((ROOT / "coverage.json").read_text("utf-8"))["reached"]
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "copy")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", copy], cwd=ROOT, check=True
        )
        try:
            for name in (".venv", "models"):
                (copy / name).symlink_to(ROOT / name)
            for number, each in enumerate(mutations(ROOT)[:count], 1):
                begun = time.monotonic()
                end = outcome(copy, each, reached.get(each.file, {}).get(str(each.line), []), slow)
                ends[end.partition(" ")[0]] += 1
                print(f"{number} {each}: {end}, {time.monotonic() - begun:.0f} s", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=ROOT, check=True)
    print(", ".join(f"{number} {end}" for end, number in ends.items()))


def outcome(copy: Path, mutation: Mutation, tests: list[str], slow: bool) -> str:
    """Return whether the tests that reach a change caught it: first those of its file, then of its room, then the others."""
    file = copy / mutation.file
    source = file.read_bytes()
    room = f"tests/{mutation.file.removeprefix(f'{PACKAGE}/').partition('/')[0]}/"
    own = [test for test in tests if test.endswith(f"/test_{file.stem}.py")]
    near = [test for test in tests if test.startswith(room) and test not in own]
    far = [test for test in tests if test not in own + near]
    file.write_bytes(source[: mutation.start] + mutation.text.encode() + source[mutation.end :])
    until = time.monotonic() + SECONDS
    try:
        for some in filter(None, (own, near, far)):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-qx",
                "-p",
                "no:cacheprovider",
                *MARKS[slow],
                *some,
            ]
            try:
                left = until - time.monotonic()
                options = {
                    "cwd": copy,
                    "env": environment(copy),
                    "capture_output": True,
                    "text": True,
                }
                done = subprocess.run(command, timeout=left, **options)
            except subprocess.TimeoutExpired:
                return f"undecided after {SECONDS} s in {some[0]} and {len(some) - 1} more"
            if done.returncode == 1:
                failed = re.search(r"^(?:FAILED|ERROR) ([^:\s]+)", done.stdout, re.M)
                return f"caught by {failed[1] if failed else some[0]}"
    finally:
        file.write_bytes(source)
    return f"survived {len(tests)} files of tests"


def main() -> None:
    """Read the command line and run one of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["cover", "run", "list"])
    parser.add_argument("--count", type=int, default=60, help="how many changes")
    parser.add_argument("--slow", action="store_true", help="also the tests with the mark `slow`")
    parser.add_argument("--workers", default="2", help="how many processes at once `cover` uses")
    parser.add_argument("files", nargs="*", help="files of tests for `cover`; all if none is named")
    given = parser.parse_args()
    if given.what == "cover":
        cover(given.workers, given.files, given.slow)
    elif given.what == "run":
        run(given.count, given.slow)
    else:
        print(*mutations(ROOT)[: given.count], sep="\n")


if __name__ == "__main__":
    main()
