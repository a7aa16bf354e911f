"""Read what `promptfoo eval --output results.json` writes (version 3 of its results) as a table with a row for each answer."""

import json
from collections.abc import Iterator
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.tables import packaged

NAMES: dict[str, list[str]] = packaged("records", "columns")["names"]


def answers_of(content: dict, file: str) -> Iterator[tuple[str, dict]]:
    """Yield (place, row) of every answer; an answer that failed is blank, one that is data is its JSON.

    The question is the variable that is called so (as columns are), else the only variable beside the reference, the topic and
    the id, else the prompt. A provider with several prompts is a model for each. RecordError if there is no list of results,
    or a result without a test, a provider or variables.
    """
    found = content["results"]
    results = found.get("results") if isinstance(found, dict) else found
    if not isinstance(results, list):
        raise RecordError(
            f"{file}: no results of promptfoo; of another harness give the log with the answers, not its figures"
        )
    try:
        used = sorted({(_provider(each), each["promptIdx"]) for each in results})
        for number, each in enumerate(results, 1):
            name, prompt = _provider(each), each["promptIdx"]
            prompts = [index for provider, index in used if provider == name]
            model = f"{name} prompt {prompts.index(prompt) + 1}" if len(prompts) > 1 else name
            output = (each.get("response") or {}).get("output")
            answer = (
                output if isinstance(output, str) else "" if output is None else json.dumps(output, ensure_ascii=False)
            )
            row = {"id": str(each["testIdx"]), "model": model, "answer": answer}
            yield f"{file}: result {number}", row | _variables(each)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file}: not results of promptfoo, version 3: {error} is missing or wrong") from None


def _provider(result: dict[str, Any]) -> str:
    return result["provider"].get("label") or result["provider"]["id"]


def _variables(result: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a test as columns; one that is called as a column of the results has `vars.` before its name."""
    texts = {name: str(value) for name, value in result["vars"].items() if isinstance(value, str | int | float)}
    if not any(name.casefold() in NAMES["question"] for name in texts):
        others = {each for role in ("reference", "topic", "id", "model", "answer") for each in NAMES[role]}
        asked = [name for name in texts if name.casefold() not in others]
        texts["question"] = texts.pop(asked[0]) if len(asked) == 1 else result["prompt"]["raw"]
    taken = {"id", *NAMES["model"], *NAMES["answer"]}
    return {f"vars.{name}" if name.casefold() in taken else name: value for name, value in texts.items()}
