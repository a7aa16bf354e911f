"""Run a whole study: every step of the paper, from public questions to the report and the Hub.

    bash recipes/reproduce.sh recipes/runs/demo
    bash recipes/reproduce.sh recipes/runs/automedeval-135m
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --runs 3
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --ablation no_curriculum
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --judges gpt-4-turbo-2024-04-09
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --base models/Qwen2.5-7B-Instruct
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --dry_run
    bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --rehearse

Each step is one YAML of the run's folder and runs the command in the YAML's first line. Before the first step every path is
checked: what a step reads is written by an earlier step, held by the repository, or listed in the folder's study.yaml as
brought by the user. Every step resumes where it stopped, so the same command resumes the study. The terminal shows the results
and progress of each step; all that it prints is in logs/.

Exit status: that of the step that failed; 1 if a path leads nowhere or something is missing; with --dry_run 0 if only what
the user brings is missing.
"""

import argparse
import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from study.base import Base, check_command
from study.estimate import estimate
from study.files import Lists, faults, keys, read_lists, reads
from study.logs import last_lines, run_logged
from study.rehearsal import Rehearsal
from study.steps import ABLATIONS, Options, Step, Study, StudyError

ROOT = Path(__file__).resolve().parents[1]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="bash recipes/reproduce.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a folder of recipes/runs/ with a study.yaml")
    parser.add_argument("--rounds", type=int, default=1, choices=range(10), help="rounds of introspection")
    parser.add_argument("--runs", type=int, default=1, choices=range(1, 10), help="how often training is repeated")
    parser.add_argument("--ablation", choices=ABLATIONS, help="repeat the study without one component (Table 2)")
    parser.add_argument(
        "--waiting",
        choices=("leave_out", "keep_old"),
        help="go on while cases wait for the jury: leave them out of the round, or keep their old verdicts "
        "(default: stop, so that the jury can decide)",
    )
    parser.add_argument(
        "--judges",
        metavar="NAMES",
        help="of the other judges in judges.yaml ask only these, as A,B; none: none of them (default: all)",
    )
    parser.add_argument("--lora", action="store_true", help="train adapters on one GPU, by lora.yaml")
    parser.add_argument(
        "--base",
        metavar="MODEL",
        help="the folder of a chat model in the place of the study's base; its checkpoints, judges and reports are called "
        "after it",
    )
    parser.add_argument(
        "--publish", metavar="ORG", help="send data set, judge and metric to this organisation of the Hub"
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print the plan, what is missing and what it takes; run nothing"
    )
    parser.add_argument(
        "--rehearse",
        nargs="?",
        const="rehearsals",
        metavar="FOLDER",
        help="run every step with tiny models, few rows and a double of the endpoint, in FOLDER (default: rehearsals)",
    )
    args = parser.parse_args(words)
    if not args.folder.is_dir():
        parser.error(f"{args.folder}: no such folder")
    if args.lora and args.ablation:
        parser.error("--lora and --ablation exclude each other: the ablations are compared with the full training")
    if args.publish and (args.rehearse or args.ablation or args.base):
        parser.error("--publish takes neither --rehearse, --ablation nor --base: only the study itself is published")
    if args.base and args.ablation in ("no_curriculum", "vanilla"):
        parser.error(f"--base does not take --ablation {args.ablation}: its YAML lists data of the study's own base")
    if args.base is not None and not Path(args.base).name:
        parser.error(f"--base {args.base!r}: must be the folder of a model")
    if args.judges is not None:
        args.judges = tuple(name.strip() for name in args.judges.split(",") if name.strip() not in ("", "none"))
    if args.ablation in ("no_introspection", "vanilla"):
        args.rounds = 0
    return args


def main() -> int:
    """Plan, check, and run; return the exit status."""
    args = parse()
    options = Options(
        args.rounds, args.runs, args.ablation, args.lora, args.publish, args.waiting, args.base, args.judges
    )
    folder = args.folder.resolve()
    place = Path(args.rehearse, folder.name).resolve() if args.rehearse else ROOT
    folder = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    try:
        lists = read_lists(ROOT / folder, ROOT)
        if lists.listed and options != Options():
            raise StudyError(f"{folder} lists its steps: of the options it takes --dry_run and --rehearse alone")
        rehearsal = Rehearsal(ROOT, place, lists) if args.rehearse else None
        os.chdir(place)
        base = None
        if args.base:  # a rehearsal writes its stand-in, and nowhere but in its folder
            base = Base(folder, f"models/{Path(args.base).name}" if rehearsal else str(Path(args.base)))
            lists = base.lists(lists)
        adapts = [each.adapt for each in (base, rehearsal) if each]
        study = Study(folder, options, adapts, lists.listed)
        variant = variant_of(args)
        if variant or lists.listed:  # it needs only a part of what the study takes
            lists = lists.read_by(study.steps)
        wrong = faults(study.steps, lists, variant)
        for note in study.left_out:
            print(note)
        if args.dry_run:
            show(study.steps, lists, place)
            if base and Path(base.model).is_dir():
                wrong += base_faults(study.steps, os.environ)
        for line in wrong:
            print(f"error: {line}", file=sys.stderr)
        if wrong or args.dry_run:
            return int(bool(wrong))
        with locked(place / f".{folder.name}.lock") as lock:
            logs = Path("logs", "-".join(filter(None, (folder.name, base and Path(base.model).name, variant))))
            status = run(study.steps, lists, place, rehearsal, lock, logs)
        if not status:
            conclude(lists, variant)
        return status
    except StudyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def variant_of(args: argparse.Namespace) -> str | None:
    """Return what makes this another study than the folder's own; None for that one."""
    if args.base:
        return "base"
    if args.lora:
        return "lora"
    return args.ablation or ("judges" if args.judges is not None else None)


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Hold a lock, whose file descriptor the steps inherit: a step that outlives this program, killed, keeps it.

    Raises:
        StudyError: another process holds it.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise StudyError(f"a step of this study still runs ({file} is locked); start again when it has ended") from None
    finally:
        os.close(descriptor)


def run(steps: Sequence[Step], lists: Lists, place: Path, rehearsal: Rehearsal | None, lock: int, logs: Path) -> int:
    """Run the steps in the working folder `place`; return the exit status of the last one that ran."""
    brought = lists.brings.values()
    if rehearsal:
        for each in brought:
            if not each.of:
                rehearsal.bring(each)
    else:
        due = [each for each in brought if not each.hub and not each.of and not each.there(place)]
        told = [f"{each.path} is missing: {each.what}. To get it: {each.get}" for each in due]
        told += [f"{name} is not set: the key with which {step.about}" for name, step in missing_keys(steps)]
        for line in told:
            print(f"error: {line}", file=sys.stderr)
        if told:
            return 1
    known = not rehearsal and all(step.seconds for step in steps)
    about = f", about {sum(step.seconds for step in steps) / 60:.0f} minutes on two cores" if known else ""
    print(f"{len(steps)} steps{about}; the logs are in {logs}", flush=True)
    environment = rehearsal.environment() if rehearsal else os.environ
    if wrong := base_faults(steps, environment):
        print(f"error: {wrong[0]}", file=sys.stderr)
        return 1
    for number, step in enumerate(steps, 1):
        for each in (lists.brings[read.path] for read in reads(step) if read.path in lists.brings):
            if rehearsal:
                rehearsal.bring(each, step.arguments.get("judges") or ())
            if each.of and not each.there(place):
                rated = " and ".join(each.of)
                print(f"error: {step.about} ({step.file}) needs {each.path}: {each.what}, of {rated}.", file=sys.stderr)
                print(f"To get it: {each.get}; then the same command goes on from here.", file=sys.stderr)
                return 1
        takes = f" (about {step.seconds} s)" if step.seconds and not rehearsal else ""
        print(f"\n== {number}/{len(steps)} {step.about}{takes}", flush=True)
        command, started = step.command(sys.executable), time.monotonic()
        log = logs / f"{number:02}-{step.name}.log"
        status = run_logged(command, log, environment, lock)
        if status and rehearsal and rehearsal.decide(step):
            status = run_logged(command, log, environment, lock)
        if status:
            print(
                f"\n{step.file.name} has failed; the last lines of {log}:", *last_lines(log), sep="\n", file=sys.stderr
            )
            return status
        print(f"{step.file.name}: {time.monotonic() - started:,.0f} s; log: {log}", flush=True)
    return 0


def conclude(lists: Lists, variant: str | None) -> None:
    """Print what the study has left, and what to try next."""
    left = lists.leaves.get(variant or "study", {})
    width = max(map(len, left), default=0)
    if left:
        print("\n== what was made")
    for path, what in left.items():
        print(f"{path:<{width}}  {what}".rstrip())
    if lists.then and not variant:
        print("\n== what to try next")
        for what, command in lists.then.items():
            print(f"{what}:\n  {command}")


def missing_keys(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """Return the keys of endpoints that are not in the environment, each with a step that needs it."""
    served = "OPENAI_API_KEY" if os.environ.get("OPENAI_BASE_URL") else None  # a server of one's own may need no key
    return [(name, step) for name, step in keys(steps).items() if name != served and not os.environ.get(name)]


def base_faults(steps: Sequence[Step], environment: Mapping[str, str]) -> list[str]:
    """Return what the model lacks from which training starts; the check is a program of its own, because it loads torch."""
    command = check_command(steps, sys.executable)
    if command is None:
        return []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return [] if not done.returncode else [done.stderr.strip().splitlines()[-1].removeprefix("error: ")]


def show(steps: Sequence[Step], lists: Lists, place: Path) -> None:
    """Print the steps with their commands, what the user brings, and what the study takes."""
    for step in steps:
        print(f"\n== {step.about}\n$ {shlex.join(step.command('python'))}")
    print("\n== what you bring")
    for each in lists.brings.values():
        state = "on the Hub" if each.hub else "there" if each.there(place) else "later" if each.of else "missing"
        print(f"{state:<10}  {each.path}: {each.what}" + ("" if state in ("there", "on the Hub") else f"; {each.get}"))
    absent = {name for name, _ in missing_keys(steps)}
    for name, step in keys(steps).items() if place == ROOT else ():
        print(f"{'missing' if name in absent else 'there':<10}  {name}: the key with which {step.about}")
    if place == ROOT:
        print("\n== what it takes")
        for line in estimate(steps, lists.sizes):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
