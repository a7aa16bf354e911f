"""Put the features of a small encoder with a trained adapter together, on people's scale: the last step of a small judge.

    python recipes/fit_small_judge.py --config recipes/runs/small-judge/fit.yaml

Learns the weights of the features from the pairs that people put in an order, and the scale from their scores. Prints what each
feature and all of them reach on every set, by cross-fitting over cases, with a 95 % interval. Writes a folder for
recipes/judge.py --judge small:OUTPUT.
"""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.cli import check_patterns, comma_list, parse, record_run, run
from automedeval.judges.small import FEATURES, Scale, features_of, write_small_judge
from automedeval.meta_evaluation.calibration import check_enough
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import read_ratings
from automedeval.models.arguments import ENCODER
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.cross_encoder import load_cross_encoder
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, read_cases
from automedeval.records.journal import arithmetic
from automedeval.reports.text import span
from automedeval.rubrics import read_rubric
from automedeval.stats.agreement import Panel, accuracies
from automedeval.stats.bootstrap import Estimate, estimate
from automedeval.stats.calibration_error import FOLDS, calibration_error


@dataclass
class FitArguments:
    """The adapter, and the rated cases."""

    start: str = field(metadata={"help": "folder of a run of recipes/train_cross_encoder.py"})
    cases: list[str] = field(metadata={"help": "files of rated cases"})
    ratings: list[str] = field(metadata={"help": "people's ratings of them, one file for each of --cases"})
    rubric: str = field(metadata={"help": "rubric of the ratings' scale: a packaged one, or your own .yaml file"})
    output: str = field(metadata={"help": "folder of the small judge"})
    encoder: str = field(default=ENCODER, metadata={"help": "the encoder of the adapter, a folder or Hub id"})
    seen: str | None = field(
        default=None,
        metadata={"help": "regular expression; cases whose id has it taught the adapter, and are left out"},
    )
    only: str | None = field(
        default=None,
        metadata={"help": "regular expression; what is learnt is of cases whose id has it, not what is measured"},
    )
    device: str = field(default="auto", metadata={"help": "cpu, cuda, cuda:N, mps, or auto: a GPU if there is one"})

    def __post_init__(self) -> None:
        for name in ("cases", "ratings"):
            setattr(self, name, comma_list(getattr(self, name)))
        if len(self.ratings) != len(self.cases):
            raise RecordError(f"{len(self.cases)} files of --cases and {len(self.ratings)} of --ratings")
        check_patterns(self, "seen", "only")


@dataclass
class Rated:
    """The rated responses of one file: the features, people's scores as shares of their scale, and the cases."""

    name: str
    features: np.ndarray
    shares: np.ndarray
    panel: Panel
    learnt: np.ndarray  # bool [cases], whether it may be learnt from


def main() -> None:
    """Compute the features, learn, measure, and write."""
    (args,) = parse((FitArguments,), __doc__)
    rubric, output, adapter = read_rubric(args.rubric), Path(args.output), Path(args.start) / "adapter"
    if not rubric.scale:
        raise RecordError(f"--rubric {args.rubric}: gives choices, not scores")
    if output.exists() and {each.name for each in output.iterdir()} - {"adapter", "judge.json", "run.json"}:
        raise RecordError(f"{output}: holds files that are no small judge; choose another --output")
    base = checkpoint_folder(args.encoder)
    encoder = Encoder(args.encoder, args.device, "float32")
    cross_encoder = load_cross_encoder(base, adapter, encoder.device)
    sets = [rated(*files, args, rubric.scale, encoder, cross_encoder) for files in zip(args.cases, args.ratings)]
    features, shares, panel = together([(each, each.learnt) for each in sets])
    check_enough(panel.cases, shares)
    scale = Scale.fit(features, shares, panel)
    facts = {
        "sets": {each.name: measured(each, sets, rubric.scale) for each in sets},
        "only": args.only,
        "seen": args.seen,
    }
    output.mkdir(parents=True, exist_ok=True)
    shutil.copytree(adapter, output / "adapter", dirs_exist_ok=True)
    write_small_judge(output, scale, str(base), facts)
    record_run(output / "run.json", args)
    print(f"weights: {', '.join(f'{name} {weight:.3g}' for name, weight in zip(FEATURES, scale.weights))}")
    print(f"small judge: {output}")


def rated(
    path: str, ratings: str, args: FitArguments, scale: tuple[int, int], encoder: Encoder, cross_encoder: Any
) -> Rated:
    """Return the rated responses of a file of cases."""
    every = list(read_cases(path))
    cases = Cases([case for case in every if not (args.seen and re.search(args.seen, case.id))], path)
    print(arithmetic(f"{path}: cases", len(every), {"seen by the adapter": len(every) - len(cases)}))
    low, high = scale
    shares = (read_ratings(ratings, cases).scores - low) / (high - low)
    if np.nanmin(shares) < 0 or np.nanmax(shares) > 1:
        raise RecordError(f"{ratings}: a rating is off the scale {low} to {high}")
    features = features_of(cases.records, encoder, cross_encoder)
    known = ~np.isnan(shares) & ~np.isnan(features).any(axis=1)
    sizes = np.bincount(cases.panel.case[known], minlength=len(cases))
    learnt = np.array([args.only is None or bool(re.search(args.only, case.id)) for case in cases.records])
    name = "/".join(Path(path).parts[-2:])
    print(f"{name}: {known.sum():,} rated responses, {learnt.sum():,} cases to learn from")
    return Rated(name, features[known], shares[known], Panel.of_sizes(sizes[sizes > 0]), learnt[sizes > 0])


def together(parts: list[tuple[Rated, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, Panel]:
    """Return features, shares and panel of the chosen cases of several sets; `parts` has bool [cases] of each."""
    rows = [(each, chosen[each.panel.case]) for each, chosen in parts]
    sizes = np.concatenate([np.bincount(each.panel.case)[chosen] for each, chosen in parts])
    features = np.concatenate([each.features[row] for each, row in rows])
    return features, np.concatenate([each.shares[row] for each, row in rows]), Panel.of_sizes(sizes)


def measured(one: Rated, sets: list[Rated], scale: tuple[int, int]) -> dict[str, Any]:
    """Return the concordance of each feature and of the cross-fitted judge with people, and its calibration error in points."""
    fold = np.arange(one.panel.cases) % FOLDS
    shares = np.empty(len(one.shares))
    for number in range(FOLDS):
        held = fold == number
        parts = [(each, each.learnt & ~held if each is one else each.learnt) for each in sets]
        row = held[one.panel.case]
        shares[row] = Scale.fit(*together(parts)).shares(one.features[row])
    values = {**dict(zip(FEATURES, one.features.T)), "all": shares}
    relations = one.panel.relations(one.shares)
    tree: dict[str, Any] = {
        name: accuracies(one.panel, relations, one.panel.relations(each))["concordance"]
        for name, each in values.items()
    }
    points, people = (scale[0] + (scale[1] - scale[0]) * each for each in (shares, one.shares))
    tree["calibration_error"] = calibration_error(points, people, one.panel.case)
    found: dict[str, Estimate] = estimate(tree, one.panel.cases)
    print(f"{one.name}: " + ", ".join(f"{name} {span(each.to_dict())}" for name, each in found.items()))
    return {name: each.to_dict() for name, each in found.items()}


if __name__ == "__main__":
    run(main)
