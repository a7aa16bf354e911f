"""Some of the packaged perturbations as a file of one's own, for an audit that is short."""

from pathlib import Path

from factories import read_yaml, write_yaml

from automedeval.audit.perturbations import SCORES, TEMPLATES


def some_of(folder: Path, *names: str) -> Path:
    """Write that verdicts can be read, and the packaged perturbations of scores with these names; return the file."""
    packaged = [entry for name in SCORES for entry in read_yaml(TEMPLATES / name)]
    chosen = [entry for entry in packaged if entry["name"] in ("reading", *names)]
    file = folder / "perturbations.yaml"
    write_yaml(file, chosen)
    return file
