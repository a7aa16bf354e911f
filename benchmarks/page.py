"""Write docs/performance.md from the JSON of the benchmarks.

    python benchmarks/page.py
    python benchmarks/page.py --results benchmarks/results --output docs/performance.md

Missed targets come first, then one table for each benchmark with its command and date.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment
from rows import figure

from automedeval.records.text import cell

ROOT = Path(__file__).parents[1]
TEMPLATE = """
{%- macro told(row, in_full) -%}
{{ "**" if row.met is sameas false }}
{{- (row.value | figure ~ (" " ~ row.unit | cell if in_full)) | trim }}
{%- if row.ratio is not none %}, {{ "%.2f" | format(row.ratio) }} ×{{ " " ~ row.peer | cell if in_full }}{% endif %}
{{- ", missed**" if row.met is sameas false }}
{%- endmacro -%}
# Performance

By the [benchmarks](../benchmarks/README.md). Agreement with people: [results](results.md).

"9 × peer" is 9 times as good as the peer in the same run; its target is of this ratio.

Machine: {{ usual.device }}; {{ usual.versions }}. Nothing else ran, if nothing is said.

## Missed targets

{{ missed | length }} of {{ judged | length }}: {% for title, rows in missed | groupby("title") -%}
  {{ title }} {{ rows | length }}{{ ", " if not loop.last }}
{%- else %}none{% endfor %}.
{% for title, group in records | groupby("title") %}
## {{ title }}

`{{ group[0].command }}`

| measured |{% for record in group %} {{ "value" if loop.first else "without bfloat16" }} |{% endfor %} target |
| --- |{{ " --- |" * group | length }} --- |
{% for row in group[0].rows if row.target or not group[0].rows | selectattr("target") | list -%}
| {{ row.name | cell }} |
{%- for record in group %} {{ told(record.rows[group[0].rows.index(row)], loop.first) }} |{% endfor %}
{{- " " ~ (row.target or "") | replace(">=", "≥") | replace("<=", "≤") }} |
{% endfor %}
{%- for note in group[0].notes %}
- {{ note }}
{%- endfor %}
{%- if group[0].notes %}
{% endif %}
{% for record in group -%}
{{ record.date }}, {{ "%.0f" | format(record.seconds) }} s
{%- if not record.idle %}; other programs used {{ "%g" | format(record.other_cores) }} cores{% endif -%}
; commit {{ record.commit }}.
{%- for said in ("device", "versions") if record.setting[said] != usual[said] %} {{ record.setting[said] }}.{% endfor %}
{% endfor -%}
{% endfor -%}
"""


def setting(record: dict[str, Any]) -> dict[str, str]:
    """Return the device and the versions of a record in words."""
    machine = record["machine"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    kind = "with" if machine["bfloat16"] else "without"
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    device = f"{machine['processor']}, {machine['cores']} cores {kind} bfloat16{gpu}"
    return {"device": device, "versions": versions}


def page(records: list[dict[str, Any]]) -> str:
    """Return the page of these records as Markdown; machine and versions are named where they are not the usual ones."""
    judged = []
    for record in records:
        record["setting"] = setting(record)
        judged += [row | {"title": record["title"]} for row in record["rows"] if row["target"]]
    settings = [record["setting"] for record in records]
    usual = max(settings, key=settings.count)
    missed = [row for row in judged if not row["met"]]
    layout = Environment(keep_trailing_newline=True)
    layout.filters |= {"cell": cell, "figure": figure}
    records = sorted(records, key=lambda record: not record["machine"]["bfloat16"])
    return layout.from_string(TEMPLATE).render(
        records=records, usual=usual, judged=judged, missed=missed
    )


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a folder."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--results", type=Path, default=ROOT / "benchmarks/results", help=shown)
    add("--output", type=Path, default=ROOT / "docs/performance.md", help=shown)
    args = parser.parse_args()
    args.output.write_text(page(read(args.results)), encoding="utf-8")


if __name__ == "__main__":
    main()
