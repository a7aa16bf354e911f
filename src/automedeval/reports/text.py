"""Tables and percentages as plain text."""

from typing import Any


def percent(share: float) -> str:
    """Return a share in whole per cent; what is nearly nothing or nearly all does not become it."""
    if 0 < share < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 < share < 1 else f"{100 * share:.0f} %"


def real_judges(result: dict[str, Any]) -> dict[str, dict]:
    """Return the records of judges that are no baselines."""
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


def format_table(rows: list[dict[str, str | float | int]], most: int = 20) -> str:
    """Lay rows out as a plain text table, the first `most` of them."""
    if not rows:
        return "no valid verdict"
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names] + [
        [f"{row[name]:.2f}" if isinstance(row.get(name), float) else str(row.get(name, "–")) for name in names]
        for row in rows[:most]
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        )
        for line in cells
    ]
    if len(rows) > most:
        lines.append(f"… and {len(rows) - most} more")
    return "\n".join(line.rstrip() for line in lines)
