"""Read what `promptfoo eval --output results.json` writes (version 3 of its results) as a table with a row for each answer."""

import json
from collections.abc import Iterator

from automedeval.records.errors import RecordError
from automedeval.records.tables import packaged

_NAMES: dict[str, list[str]] = packaged("records", "columns")["names"]
_TAKEN = {"id", *_NAMES["model"], *_NAMES["answer"]}


def answers_of(content: dict, file: str) -> Iterator[tuple[str, dict]]:
    """Yield (place, row) of every answer; an answer that failed is blank, one that is data is its JSON.

    The variables of a test are columns; one that is called as a column of the results has `vars.` before its name. With
    several prompts each of a provider's is a model. RecordError if there is no list of results, or a result without a test,
    a provider or variables.
    """
    found = content["results"]
    results = found.get("results") if isinstance(found, dict) else found
    if not isinstance(results, list):
        raise RecordError(f"{file}: no results of promptfoo; of another harness give the log with the answers")
    try:
        several = len({each["promptIdx"] for each in results}) > 1
        for number, each in enumerate(results, 1):
            model = each["provider"].get("label") or each["provider"]["id"]
            said = (each.get("response") or {}).get("output")
            answer = said if isinstance(said, str) else "" if said is None else json.dumps(said, ensure_ascii=False)
            row = {"id": str(each["testIdx"]), "answer": answer}
            row["model"] = f"{model} prompt {each['promptIdx'] + 1}" if several else model
            for name, value in each["vars"].items():
                if isinstance(value, str | int | float):
                    row[f"vars.{name}" if name.casefold() in _TAKEN else name] = str(value)
            yield f"{file}: result {number}", row
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file}: not results of promptfoo, version 3: {error} is missing or wrong") from None
