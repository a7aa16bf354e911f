"""Load the templates of reports, cards and pages."""

from pathlib import Path

import jinja2

from automedeval.records import text
from automedeval.records.journal import write_whole
from automedeval.records.types import JsonObject

_FILTERS = (
    text.cell,
    text.in_a_row,
    text.interval,
    text.number,
    text.p_value,
    text.percent,
    text.several,
    text.span,
)


def environment(room: str, **more: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the environment of a room's templates: HTML is escaped, and a name that is not there is an error.

    "shared/…" names a template that all rooms share; `more` are loaders of further ones by the folder that names them.
    """
    shared = jinja2.PrefixLoader({"shared": jinja2.PackageLoader("automedeval.records"), **more})
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(room), shared]),
        autoescape=lambda name: ".html" in (name or ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {function.__name__: function for function in _FILTERS}
    return made


def write_readme(folder: Path, room: str, template: str, facts: JsonObject) -> None:
    """Write the README.md of a folder by a template of a room."""
    readme = environment(room).get_template(template).render(facts)
    write_whole(folder / "README.md", readme.rstrip() + "\n")
