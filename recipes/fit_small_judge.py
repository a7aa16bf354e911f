"""Put the features of a small encoder with a trained adapter together, on people's scale: the last step of a small judge.

    python recipes/fit_small_judge.py --config recipes/runs/small-judge/fit.yaml

Learns the weights of the features from the pairs that people put in an order, and the scale from their scores: once without
references, and once beside the references of the cases; where cases have none, the best answer of a case is the reference of
its other ones. Prints what each feature and all of them reach on every set, by cross-fitting over cases, with a 95 % interval.
Writes a folder for recipes/judge.py --judge small:OUTPUT.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from automedeval.judges.features import FEATURES, read_responses
from automedeval.judges.small import ADAPTER, CHUNK, SCALES, Scale, write_small_judge
from automedeval.meta_evaluation.calibration.scores import FEWEST
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import read_ratings
from automedeval.models.arguments import EncoderArguments
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.pair_reader import PairReader
from automedeval.records import Case, RecordError, check_patterns, option
from automedeval.records.arguments import TableArguments, comma_list
from automedeval.records.command_line import parse, run
from automedeval.records.journal import arithmetic
from automedeval.records.run_record import record_run
from automedeval.records.tables.cases import read_cases
from automedeval.records.text import span
from automedeval.rubrics import read_rubric
from automedeval.stats.agreement import Panel, accuracies
from automedeval.stats.bootstrap import estimate
from automedeval.stats.calibration_error import calibration_error
from automedeval.stats.folds import FOLDS

GOOD = (
    2 / 3
)  # share of the scale from which on the best answer of a case may be the reference of the other ones


@dataclass
class FitArguments(TableArguments):
    """The adapter, and the rated cases."""

    relevance: str = option("folder of a run of recipes/train_cross_encoder.py")
    cases: list[str] = option("files of rated cases")
    ratings: list[str] = option("people's ratings of them, one file for each of --cases")
    rubric: list[str] = option(
        "rubrics of the ratings' scales: one for all, or one for each of --cases; packaged, or .yaml files"
    )
    output: str = option("folder of the small judge")
    seen: str | None = option(
        "regular expression; cases whose id has it taught the adapter, and are left out", None
    )
    only: str | None = option(
        "regular expression; what is learnt is of cases whose id has it, not what is measured", None
    )

    def __post_init__(self) -> None:
        for name in ("cases", "ratings", "rubric"):
            setattr(self, name, comma_list(getattr(self, name)))
        self.rubric *= len(self.cases) if len(self.rubric) == 1 else 1
        if not len(self.ratings) == len(self.rubric) == len(self.cases):
            counts = f"{len(self.cases)} files of --cases, {len(self.ratings)} of --ratings, {len(self.rubric)} of --rubric"
            raise RecordError(counts)
        check_patterns(self, "seen", "only")


@dataclass
class Rated:
    """Rated responses: their features, people's scores as shares of their scale, and the cases."""

    name: str
    scale: str  # one of SCALES
    range: tuple[int, int]  # of people's scores
    features: np.ndarray  # float [responses, FEATURES]
    shares: np.ndarray
    panel: Panel
    ids: Sequence[str]
    learnt: np.ndarray  # bool [cases], whether it may be learnt from

    def part(self, cases: np.ndarray) -> "Rated":
        """Return the chosen cases; bool [cases]."""
        rows = cases[self.panel.case]
        panel = Panel.of_sizes(np.bincount(self.panel.case, minlength=self.panel.cases)[cases])
        ids = [name for name, kept in zip(self.ids, cases) if kept]
        return replace(
            self,
            features=self.features[rows],
            shares=self.shares[rows],
            panel=panel,
            ids=ids,
            learnt=self.learnt[cases],
        )


def main() -> None:
    """Read the responses, learn, measure, and write."""
    args, encoder_args = parse((FitArguments, EncoderArguments), __doc__)
    output, ranges = Path(args.output), []
    for name in args.rubric:
        if (scale := read_rubric(name).scale) is None:
            raise RecordError(f"--rubric {name}: gives choices, not scores")
        ranges.append(scale)
    if output.exists() and {path.name for path in output.iterdir()} - {
        ADAPTER,
        "judge.json",
        "run.json",
    }:
        raise RecordError(f"{output}: holds files that are no small judge; choose another --output")
    base = checkpoint_folder(encoder_args.place)
    adapter = Path(args.relevance) / "adapter"
    reader = PairReader(encoder_args.load(), adapter)
    sets: list[Rated] = []
    for path, ratings, scale in zip(args.cases, args.ratings, ranges):
        sets += rated(path, ratings, args, scale, reader)
    scales = {}
    for name in SCALES:
        parts = [rated_set.part(rated_set.learnt) for rated_set in sets if rated_set.scale == name]
        try:
            scales[name] = fitted(SCALES[name], parts)
        except RecordError as error:
            if name == "question":
                raise
            print(f"references will not be read: {error}")
            continue
        weights = ", ".join(
            f"{feature} {weight:.3g}" for feature, weight in scales[name].weights.items()
        )
        print(f"weights of what is read beside the {name}: {weights}")
    sets = [rated_set for rated_set in sets if rated_set.scale in scales]
    facts: dict[str, Any] = {
        "sets": {rated_set.name: measured(rated_set, sets) for rated_set in sets}
    }
    facts |= {name: getattr(args, name) for name in ("only", "seen")}
    output.mkdir(parents=True, exist_ok=True)
    shutil.copytree(adapter, output / ADAPTER, dirs_exist_ok=True)
    write_small_judge(output, scales, base, facts)
    record_run(output / "run.json", args, encoder_args)
    print(f"small judge: {output}")


def rated(
    path: str, ratings: str, args: FitArguments, scale: tuple[int, int], reader: PairReader
) -> list[Rated]:
    """Return the rated responses of a file of cases: beside the references that the cases have.

    If no case has one, the responses are returned twice, without a reference and beside the best response of their case.
    """
    all_cases = list(read_cases(path, **args.table))
    unseen = [case for case in all_cases if not (args.seen and re.search(args.seen, case.id))]
    cases = Cases(unseen, path)
    seen = {"seen by the adapter": len(all_cases) - len(cases)}
    print(arithmetic(f"{path}: cases", len(all_cases), seen))
    low, high = scale
    shares = (read_ratings(ratings, cases).scores - low) / (high - low)
    if np.nanmin(shares) < 0 or np.nanmax(shares) > 1:
        raise RecordError(f"{ratings}: a rating is off the scale {low} to {high}")
    name = "/".join(Path(path).parts[-2:])
    if any(case.reference for case in unseen):
        features = read(cases.records, reader, name)
        return [
            kept(
                f"{name}, beside references",
                "reference",
                cases.records,
                features,
                shares,
                scale,
                args,
            )
        ]
    beside, left = beside_the_best(cases, shares)
    # A case and the same case with a reference are read one after the other: their texts are encoded once.
    both = [*enumerate(cases.records), *((cases.index[case.id], case) for case in beside)]
    both = [case for _, case in sorted(both, key=itemgetter(0))]
    features = read(both, reader, name)
    rows = np.repeat(
        [case.reference is not None for case in both], [len(case.responses) for case in both]
    )
    sets = [kept(name, "question", cases.records, features[~rows], shares, scale, args)]
    if beside:
        sets.append(
            kept(
                f"{name}, beside the best answer",
                "reference",
                beside,
                features[rows],
                left,
                scale,
                args,
            )
        )
    for rated_set in sets:
        print(
            f"{rated_set.name}: {len(rated_set.shares):,} rated responses, {rated_set.learnt.sum():,} cases to learn from"
        )
    return sets


def read(cases: Sequence[Case], reader: PairReader, name: str) -> np.ndarray:
    """Return the features of every response: float [responses, FEATURES]."""
    features = []
    with tqdm(total=len(cases), unit="case", desc=name) as bar:
        for start in range(0, len(cases), CHUNK):
            features.append(read_responses(cases[start : start + CHUNK], reader))
            bar.update(len(cases[start : start + CHUNK]))
    return np.concatenate(features)


def beside_the_best(cases: Cases, shares: np.ndarray) -> tuple[list[Case], np.ndarray]:
    """Return the cases with their best response as the reference of the others, if people found it good; shares as `rated`."""
    made, left = [], [np.empty(0)]
    ends = np.cumsum([len(case.responses) for case in cases.records])
    for case, end in zip(cases.records, ends):
        values = shares[end - len(case.responses) : end]
        best = int(np.nanargmax(values)) if not np.isnan(values).all() else 0
        if values[best] >= GOOD and len(values) > 2:
            others = [number for number in range(len(values)) if number != best]
            responses = tuple(case.responses[number] for number in others)
            made.append(replace(case, reference=case.responses[best].text, responses=responses))
            left.append(values[others])
    return made, np.concatenate(left)


def kept(
    name: str,
    scale: str,
    cases: Sequence[Case],
    features: np.ndarray,
    shares: np.ndarray,
    range_: tuple[int, int],
    args: FitArguments,
) -> Rated:
    """Return a set without the responses that have no words or no rating; features as `read`."""
    panel = Panel.of_sizes([len(case.responses) for case in cases])
    columns = [FEATURES.index(feature) for feature in SCALES[scale]]
    complete = ~np.isnan(shares) & ~np.isnan(features[:, columns]).any(axis=1)
    sizes = np.bincount(panel.case[complete], minlength=len(cases))
    ids = [case.id for case, size in zip(cases, sizes) if size]
    learnt = np.array([args.only is None or bool(re.search(args.only, case_id)) for case_id in ids])
    return Rated(
        name,
        scale,
        range_,
        features[complete],
        shares[complete],
        Panel.of_sizes(sizes[sizes > 0]),
        ids,
        learnt,
    )


def fitted(names: Sequence[str], parts: Sequence[Rated]) -> Scale:
    """Learn a scale of some features from several sets; RecordError if they have too few cases, or nothing to learn."""
    parts = [part for part in parts if len(part.shares)]
    shares = np.concatenate([[], *(part.shares for part in parts)])
    if (count := sum(part.panel.cases for part in parts)) < FEWEST:
        raise RecordError(f"{count} rated cases; a small judge needs {FEWEST} at least")
    if np.ptp(shares) == 0:
        raise RecordError("every response has the same rating: there is nothing to learn")
    sizes = np.concatenate([np.bincount(part.panel.case) for part in parts])
    return Scale.fit(
        names, np.concatenate([part.features for part in parts]), shares, Panel.of_sizes(sizes)
    )


def cross_fitted(rated_set: Rated, sets: Sequence[Rated]) -> np.ndarray:
    """Return the shares of a set, each by a scale that learnt nothing of its case: float [responses]."""
    fold, shares = np.arange(rated_set.panel.cases) % FOLDS, np.empty(len(rated_set.shares))
    for number in range(FOLDS):
        held = fold == number
        parts = [
            training.part(training.learnt & ~held if training is rated_set else training.learnt)
            for training in sets
            if training.scale == rated_set.scale
        ]
        scale = fitted(SCALES[rated_set.scale], parts)
        row = held[rated_set.panel.case]
        shares[row] = scale.shares(rated_set.features[row])
    return shares


def measured(rated_set: Rated, sets: Sequence[Rated]) -> dict[str, Any]:
    """Return the concordance of each feature and of the cross-fitted judge with people, and its calibration error in points."""
    everything, panel = cross_fitted(rated_set, sets), rated_set.panel
    values = {name: rated_set.features[:, FEATURES.index(name)] for name in SCALES[rated_set.scale]}
    relations = panel.relations(rated_set.shares)
    tree: dict[str, Any] = {
        name: accuracies(panel, relations, panel.relations(scores))["concordance"]
        for name, scores in (values | {"all": everything}).items()
    }
    low, high = rated_set.range
    points, people = (low + (high - low) * shares for shares in (everything, rated_set.shares))
    tree["calibration_error"] = calibration_error(points, people, panel.case, panel.cases)
    figures = {name: figure.to_dict() for name, figure in estimate(tree, panel.cases).items()}
    print(
        f"{rated_set.name}: {', '.join(f'{name} {span(figure)}' for name, figure in figures.items())}"
    )
    return figures


if __name__ == "__main__":
    run(main)
