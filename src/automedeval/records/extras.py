"""The extras of this package: which of their libraries are missing here, and the command that installs them."""

import shlex
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def missing_of(extra: str) -> list[Requirement]:
    """Return the requirements of an extra that are not installed, or not in a version that is allowed."""
    missing = []
    for requirement in map(Requirement, requires("automedeval") or ()):
        is_wanted = requirement.marker and requirement.marker.evaluate({"extra": extra})
        if is_wanted and not _is_installed(requirement):
            missing.append(requirement)
    return missing


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def install(extra: str) -> str:
    """Return the command that installs what an extra lacks here; where nothing is missing, the extra of a checkout.

    It names the libraries. The name of this package is not registered, so that anybody could own it.
    """
    libraries = [str(requirement).partition(";")[0].strip() for requirement in missing_of(extra)]
    return shlex.join(["pip", "install", *(libraries or [f".[{extra}]"])])
