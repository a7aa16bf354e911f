"""The command that installs an extra: libraries by name, and never this package by a name that anybody could own."""

import re
import shlex

from programs import ROOT

from automedeval.records import extras
from automedeval.records.extras import install


def test_the_libraries_that_an_extra_lacks_are_named(monkeypatch):
    lacking = ["peft<9; extra == 'data'", "no-such[x]<3,>=1; extra == 'data'", "numpy>99"]
    for asked, words in ((lacking, "no-such[x]<3,>=1"), (lacking[:1], ".[data]")):
        monkeypatch.setattr(extras, "requires", lambda name, asked=asked: asked)
        assert shlex.split(install("data")) == ["pip", "install", words]


def test_nothing_installs_the_package_by_its_bare_name():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.*"), *(ROOT / "src").rglob("*")]
    by_name = re.compile(r"(?m)install[\w\s=-]*[\s\\'\"]automedeval(\[|==|$)")
    for page in pages:
        if page.suffix in (".md", ".ipynb", ".py", ".jinja", ".yaml", ".html"):
            assert not by_name.search(page.read_text(encoding="utf-8")), page
