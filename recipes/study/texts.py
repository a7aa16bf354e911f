"""Whether the texts of a study fit together: candidates and their formats, the layout of cases, and what people rated.

The recipes check the same when their step is due, which may be days after the first one.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from study.files import UserFile
from study.steps import Step, comma_list, has_template

from automedeval.records import RecordError, Verdict, read_lines, read_records
from automedeval.rubrics import RubricError, read_rubric

APART = ("likelihood", "small", "baseline")  # judges that read each response by itself


def layout_faults(steps: Sequence[Step]) -> Iterator[str]:
    """Yield, one line each, what keeps candidates from answering the cases, or the cases from being shown in one prompt."""
    responses: dict[
        str, int
    ] = {}  # file of cases → responses of each case, 0 where all candidates answer and groups of them are shown
    named: dict[Path, set[str]] = {}  # folder of formats → the candidates whose formats it has
    for step in steps:
        arguments = step.arguments
        if step.recipe == "generate_responses":
            candidates, count = comma_list(arguments["candidates"]), arguments.get("candidates_per_case")
            formats = Path(arguments.get("chat_template_path") or "")
            if formats.name and formats.is_dir():
                named.setdefault(formats, set()).update(Path(model).name for model in candidates)
            for model in candidates if formats in named else ():
                if not (formats / f"{Path(model).name}.jinja").is_file() and not has_template(model):
                    yield f"{step.file}: {model} has no prompt format: no {Path(model).name}.jinja in {formats}"
            if count and count > len(candidates):
                yield f"{step.file}: candidates_per_case: {count}, and candidates names only {len(candidates)}"
            responses[f"{arguments['output']}/cases.jsonl"] = count or 0
        if step.recipe not in ("judge", "distill") or arguments["judge"].partition(":")[0] in APART:
            continue
        count = len(comma_list(arguments["models"])) if "models" in arguments else responses.get(arguments["cases"], 0)
        shown = count + bool(count and arguments.get("reference_as_response"))
        try:
            rubric = read_rubric(arguments.get("rubric") or "automedeval")
        except RubricError as error:
            yield f"{step.file}: rubric: {error}"
            continue
        if rubric.mode == "listwise" and shown > rubric.max_responses:
            yield (
                f"{step.file} ({step.about}): a case shows {shown} responses, and a prompt of the rubric {rubric.name} "
                f"{rubric.max_responses} at most"
            )
    for formats, names in named.items():
        for file in sorted(formats.glob("*.jinja")):
            if file.stem not in names:
                yield f"{file}: a format of no candidate; they are {', '.join(sorted(names))}"


def rating_faults(brought: Iterable[UserFile], place: Path) -> Iterator[str]:
    """Yield a line for each file of ratings none of which is of the texts that the study has.

    Args:
        place: the working folder of the study.
    """
    for each in brought:
        files = [place / file for file in each.of]
        if not files or not each.there(place) or not all(file.is_file() for file in files):
            continue
        try:
            texts = {text for file in files for text in _texts(file)}
            rated = [_rated(line) for _, line in read_lines(place / each.path)]
        except RecordError:  # the step says it, or goes on behind a line that was cut off
            continue
        if texts.isdisjoint(rated):
            yield f"{each.path}: ratings of other texts: none of {len(rated):,} is of {' or '.join(each.of)}"


def _texts(file: Path) -> Iterator[tuple[object, object]]:
    """Yield (case, what can be rated of it): the model of a response; the digest and the judge of a verdict."""
    if file.name != "verdicts.jsonl":
        for _, case in read_lines(file):
            yield from ((case.get("id"), response["model"]) for response in case.get("responses", ()))
        return
    for verdict in read_records(file, Verdict):
        yield from ((verdict.case_id, text) for text in (verdict.digest, verdict.judge))


def _rated(line: dict[str, object]) -> tuple[object, object]:
    """Return (case, what was rated of it) of a rating, a verdict's rating, or a preference."""
    judges = line.get("judges")
    first = judges[0] if isinstance(judges, list) and judges else None
    return line.get("case_id"), line.get("verdict_digest") or line.get("model") or line.get("judge") or first
