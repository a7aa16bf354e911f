"""Run a whole study: every step of the paper, from public questions to the report and the checks before publishing.

    bash recipes/reproduce.sh recipes/runs/demo
    bash recipes/reproduce.sh recipes/runs/automedeval-135m
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --runs 3
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --ablation no_curriculum
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --judges gpt-4-turbo-2024-04-09
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --base models/Qwen2.5-7B-Instruct
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --teacher strong=MODEL --dry_run --check_endpoints
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --num_processes 4 --accelerate_config MACHINE.yaml
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --dry_run

Each step is one YAML of the run's folder and runs the command in the YAML's first line. Before the first step every path is
checked: what a step reads is written by an earlier step, held by the repository, or listed in the folder's study.yaml as
brought by the user. So are the layout of cases, the candidates' formats, and ratings that are there. Every step resumes where
it stopped, so the same command resumes the study. The terminal shows one line for each step; all that it prints is in logs/.

Exit status: that of the step that failed; 1 if something does not fit or is missing; with --dry_run 0 if only what the user
brings is missing.
"""

import argparse
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from study.counts import count_table
from study.files import Lists, UserFile, faults, read_lists, reads
from study.logs import last_lines, run_logged
from study.machine import Machine
from study.plan import ABLATIONS, Options, Study, listed_steps
from study.steps import Step, StudyError, read_yaml
from study.teachers import Teachers, keys, missing_keys
from study.texts import layout_faults, rating_faults

from automedeval.records import gone

COUNTS = Path("reports", "counts.md")
NOTHING_VALID = "no verdict is valid"  # what recipes/judge.py says of a judge of which nothing could be read
ROOT = Path(__file__).resolve().parents[1]


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="bash recipes/reproduce.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="RUN_FOLDER", help="a folder of recipes/runs/ with a study.yaml")
    add("--runs", type=int, default=1, choices=range(1, 10), help="how often training is repeated")
    variant = parser.add_mutually_exclusive_group()
    variant.add_argument("--ablation", choices=ABLATIONS, help="repeat the study without one component (Table 2)")
    variant.add_argument("--lora", action="store_true", help="train adapters on one GPU, by lora.yaml")
    add("--judges", metavar="NAMES", help="of the other judges in judges.yaml ask only A,B; none: none (default: all)")
    add("--base", metavar="MODEL", help="the folder of a chat model in the place of the study's base")
    roles = "another model in a role of teachers.yaml, wherever it is asked; ROLE=MODEL@URL at an endpoint of your own"
    add("--teacher", action="append", default=[], metavar="ROLE=MODEL", help=roles)
    add("--accelerate_config", metavar="FILE", help="accelerate's configuration for every step that it launches")
    add("--num_processes", type=int, metavar="N", help="processes of these steps, one a GPU (default: the file's)")
    add("--check_endpoints", action="store_true", help="ask endpoints whether they serve the models; nothing is paid")
    add("--dry_run", action="store_true", help="print the plan and what is missing; run nothing")
    args, rest = parser.parse_known_args()
    if rest:
        names = (word.lstrip("-") for word in rest)
        parser.error(gone.explain(f"unrecognized arguments: {' '.join(rest)}", *names))
    if not args.folder.is_dir():
        parser.error(f"{args.folder}: no such folder")
    if args.base and args.ablation in ("no_curriculum", "vanilla"):
        parser.error(f"--base does not take --ablation {args.ablation}: its YAML lists data of the study's own base")
    if args.num_processes is not None and args.num_processes < 1:
        parser.error("--num_processes must be at least 1")
    if args.base is not None and not Path(args.base).name:
        parser.error(f"--base {args.base!r}: must be the folder of a model")
    if args.judges is not None:
        args.judges = tuple(name.strip() for name in args.judges.split(",") if name.strip() not in ("", "none"))
    return args


def main(rehearse: Callable[[Path, Lists], Any] | None = None, rehearsals: Path = ROOT) -> int:
    """Plan the study, check its paths, and run it.

    Args:
        rehearse: makes a rehearsal (tests/rehearse.py) in a folder of `rehearsals`, which takes the place of this machine.
    """
    args = parse()
    folder = args.folder.resolve()
    place = (rehearsals / folder.name).resolve() if rehearse else ROOT
    folder, machine_file = (
        path and (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
        for path in (folder, args.accelerate_config and Path(args.accelerate_config).resolve())
    )
    try:
        machine = Machine(machine_file and str(machine_file), args.num_processes)
        lists = read_lists(ROOT / folder, ROOT)
        rehearsal = rehearse(place, lists) if rehearse else None
        os.chdir(place)
        base = args.base and str(Path(args.base))
        if base and rehearsal:  # a rehearsal writes its stand-in, and nowhere but in its folder
            base = f"models/{Path(base).name}"
        options = Options(args.runs, args.ablation, args.lora, base, args.judges, tuple(args.teacher))
        if lists.listed:
            if options != Options():
                raise StudyError(f"{folder} lists its steps: it takes no option that changes them")
            teachers = Teachers(Path(lists.listed["of"]))
            steps = listed_steps(teachers, lists.listed["place"], lists.listed["steps"])
        else:
            if base:
                what = "the base model, any chat model (docs/train.md, Base models)"
                get = f"hf download ORG/{Path(base).name} --local-dir {base}"
                replaced = read_yaml(folder / "judge.yaml")["judge"]
                kept = {path: user_file for path, user_file in lists.brings.items() if path != replaced}
                lists = lists._replace(brings={base: UserFile(base, what, get, "chat_llama")} | kept)
            study = Study(folder, options)
            steps, teachers = study.steps, study.teachers
            print(*study.left_out, sep="\n", end="\n" if study.left_out else "")
        steps = list(map(rehearsal.adapt if rehearsal else machine.adapt, steps))
        variant = "base" if base else args.ablation or ("lora" if args.lora else None)
        variant = variant or ("judges" if args.judges is not None else None)
        if variant or lists.listed:  # it needs only a part of what the study takes
            lists = lists.read_by(steps)
        lists, page_studies = teachers.page_studies(lists)
        errors = [*faults(steps, lists, variant), *layout_faults(steps), *rating_faults(lists.brings.values(), place)]
        if args.dry_run:
            show(steps, lists, place)
            if base and Path(base).is_dir():
                errors += base_faults(steps, os.environ)
            if not rehearsal and shutil.which("nvidia-smi"):  # the study may be planned on a machine without GPUs
                errors += machine.faults(steps, sys.executable)
        if args.check_endpoints:
            print("\n== endpoints")
            errors += teachers.faults(steps)
        if print_errors(errors) or args.dry_run:
            return int(bool(errors))
        with locked(place / f".{folder.name}.lock") as lock:
            logs = Path("logs", "-".join(filter(None, (folder.name, base and Path(base).name, variant))))
            for path, text in page_studies.items():
                Path(path).parent.mkdir(exist_ok=True)
                Path(path).write_text(text, encoding="utf-8", newline="\n")
            status = run(steps, lists, place, rehearsal, machine, lock, logs)
        if not status:
            conclude(lists, variant, place, rehearsal.share if rehearsal else 1.0)
        return status
    except StudyError as error:
        print_errors([str(error)])
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def print_errors(errors: Sequence[str]) -> bool:
    """Print errors, a line each; return whether there are any."""
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    return bool(errors)


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Hold a lock, whose file descriptor the steps inherit: a step that outlives this program, killed, keeps it.

    StudyError if another process holds it.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise StudyError(f"a step of this study still runs ({file} is locked); start again when it has ended") from None
    finally:
        os.close(descriptor)


def run(
    steps: Sequence[Step], lists: Lists, place: Path, rehearsal: Any, machine: Machine, lock: int, logs: Path
) -> int:
    """Run the steps in the working folder `place`; return the exit status of the last one that ran."""
    if rehearsal:
        for user_file in lists.brings.values():
            if not user_file.of:  # ratings come when their step does: until then what is rated may be half written
                rehearsal.bring(user_file)
        environment = rehearsal.environment()
    else:
        environment = os.environ
        due = (each for each in lists.brings.values() if not (each.hub or each.of or each.there(place)))
        errors = [f"{each.path} is missing: {each.what}. To get it: {each.get}" for each in due]
        errors += [f"{name} is not set: the key with which {step.about}" for name, step in missing_keys(steps).items()]
        errors += machine.faults(steps, sys.executable)
        if print_errors(errors):
            return 1
    print(f"{len(steps)} steps; the logs are in {logs}", flush=True)
    if print_errors(base_faults(steps, environment)):
        return 1
    for number, step in enumerate(steps, 1):
        for user_file in (lists.brings[path] for path, _ in reads(step) if path in lists.brings):
            if rehearsal:
                rehearsal.bring(user_file, step.arguments.get("judges") or ())
            if user_file.of and not user_file.there(place):
                rated = " and ".join(user_file.of)
                print_errors([f"{step.about} ({step.file}) needs {user_file.path}: {user_file.what}, of {rated}."])
                print(f"To get it: {user_file.get}; then the same command goes on from here.", file=sys.stderr)
                return 1
            if print_errors(list(rating_faults([user_file], place))):
                return 1
        command, heading = step.command(sys.executable), f"== {number}/{len(steps)} {step.about}"
        log = logs / f"{number:02}-{step.file.stem}.log"
        status = run_logged(command, log, environment, lock, heading)
        if status and rehearsal and rehearsal.decide(step):
            status = run_logged(command, log, environment, lock, heading)
        if status and step.recipe == "judge" and any(NOTHING_VALID in line for line in last_lines(log)):
            print(f"   {NOTHING_VALID}: the tables show this judge so", flush=True)
            status = 0
        if status:
            print(f"\n{step.file.name} has failed; the last lines of {log}:", file=sys.stderr)
            print(*last_lines(log), sep="\n", file=sys.stderr)
            return status
    return 0


def conclude(lists: Lists, variant: str | None, place: Path, share: float) -> None:
    """Print what the study has left and counted, and what to try next; `share` is its size beside the paper's."""
    left = lists.leaves.get(variant or "study", {})
    width = max(map(len, left), default=0)
    if left:
        print("\n== what was made")
    for path, what in left.items():
        print(f"{path:<{width}}  {what}".rstrip())
    if lists.counts and not variant:
        table = count_table(place, lists.counts, share)
        (place / COUNTS).write_text(table, encoding="utf-8", newline="\n")
        print(f"\n== the paper's counts and these, also in {COUNTS}\n{table}", end="")
    if lists.then and not variant:
        print("\n== what to try next")
        for what, command in lists.then.items():
            print(f"{what}:\n  {command}")


def base_faults(steps: Sequence[Step], environment: Mapping[str, str]) -> list[str]:
    """Return what the model lacks from which training starts; the check is a program of its own, because it loads torch."""
    first = next((step.arguments for step in steps if step.recipe == "sft"), None)
    if first is None:
        return []
    command = [sys.executable, "recipes/check_base.py", "--model", first["model_name_or_path"]]
    for name in ("chat_template_path", "max_length"):
        command += [f"--{name}", str(first[name])] if first.get(name) else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return [] if not done.returncode else [done.stderr.strip().splitlines()[-1].removeprefix("error: ")]


def show(steps: Sequence[Step], lists: Lists, place: Path) -> None:
    """Print the steps with their commands, and what the user brings."""
    for step in steps:
        print(f"\n== {step.about}\n$ {shlex.join(step.command('python'))}")
    print("\n== what you bring")
    for each in lists.brings.values():
        state = "on the Hub" if each.hub else "there" if each.there(place) else "later" if each.of else "missing"
        print(f"{state:<10}  {each.path}: {each.what}" + ("" if state in ("there", "on the Hub") else f"; {each.get}"))
    absent = missing_keys(steps)
    for name, step in keys(steps).items() if place == ROOT else ():
        print(f"{'missing' if name in absent else 'there':<10}  {name}: the key with which {step.about}")


if __name__ == "__main__":
    sys.exit(main())
