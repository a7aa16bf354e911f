"""The extras of this package: which of their libraries are missing here, and the command that installs them."""

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def missing_of(extra: str) -> list[Requirement]:
    """Return the requirements of an extra that are not installed, or not in a version that is allowed."""
    return [requirement for requirement in _requirements(extra) if not _is_there(requirement)]


def install(extra: str, *options: str) -> str:
    """Return the command that installs what an extra lacks here.

    It names the libraries. The name of this package is not registered, so that anybody could own it.
    """
    try:
        lacks = missing_of(extra) or list(_requirements(extra))
        libraries = [str(requirement).partition(";")[0].strip() for requirement in lacks]
    except PackageNotFoundError:  # a checkout that was not installed
        libraries = [f".[{extra}]"]
    return shlex.join(["pip", "install", *options, *libraries])


def _requirements(extra: str) -> Iterator[Requirement]:
    for requirement in map(Requirement, requires("automedeval") or ()):
        marker = requirement.marker
        # Else it is a requirement of the package itself.
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield requirement


def _is_there(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False
