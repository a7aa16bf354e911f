"""Commands and options that are gone, each with what to use instead: one line tells who still names one.

An option is a key of a run's YAML file as well, or of a study's. One that other programs still have stands behind the name of
its own, as "audit verdicts"; NAME=VALUE is one value of an option that stays. The table stands until the first release.
"""

CRITERIA = "criteria are written by people, or come with the data"
PAGE = "a container serves the physicians' page, see docs/annotation.md"
PERTURBATIONS = "use --perturbations FILE, in the format of audit/templates/basics.yaml"
RISK = "use `automedeval calibrate --risk R`"
PAIRS = "use `automedeval export --to preferences`"
COMMANDS: dict[str, str] = {
    "abstain": RISK,
    "draft-criteria": CRITERIA,
    "dossier": "the folders of `automedeval judge` and `automedeval report` hold the records of their runs",
    "introspect": "use recipes/introspect_discuss.py, then recipes/introspect_revise.py",  # recipes/introspect.py
    "jury": "compare the judges by `automedeval compare --verdicts A B`",
    "page": PAGE,  # recipes/publish.py page
    "panel": "judge the kept cases again, and use `automedeval compare --fail_if_worse`, see docs/ci-gate.md",
    "preferences": PAIRS,  # recipes/preferences.py
}
OPTIONS: dict[str, str] = {
    "abstain_at": RISK,
    "uncertified": PAIRS,
    "delta": "the certificate may be false with a probability of 0.1",
    "system": "a case's question may begin with a system message",
    "criterion_labels": "--ratings takes labels of criteria as well",
    "harm_ratings": "--ratings takes ratings of harm as well",
    "report choices": "--ratings takes choices as well",
    "report preferences": "--ratings takes preferences as well",
    "report verdict_ratings": "--ratings takes ratings of verdicts as well",
    "approve": f"{CRITERIA}; the version that began this study exports its answers",  # a kind of a study of annotate
    "attacks": "use --edits N",
    "harms": "use --edits N",
    "attack_file": PERTURBATIONS,
    "harm_file": PERTURBATIONS,
    "thresholds": f"limits stand in the perturbations: {PERTURBATIONS}",
    "own": "`automedeval report --ratings` has a judge's order of the models beside people's",
    "audit verdicts": "`automedeval report` has what order and length do to recorded verdicts",
    "audit ratings": "`automedeval report --ratings` compares a judge with people",
    "audit raters": "`automedeval report --ratings` compares a judge with people",
    "publish study": PAGE,
    "batch_answers": "put the answers into FILE.answers.jsonl beside FILE.jsonl of --batch_file",
    "layout=medquad": "use --columns question=question reference=answer topic=focus",
    "layout=pandalm": "write cases.jsonl with model and text of each response, and choices.jsonl",
    "split:": "name the chat alone; the statements are the sentences",  # of check --checker
    "partners": "without --suggester and --reviewer every mistake goes to the jury",
    "train_on": "a round's data set has all rows (paper: Table 1)",
    "check_base rubric": "answers with scores and with choices are both checked",
    "readings": "use --jury readings:FILE",  # of introspect_revise.py
    "introspect_discuss seed": "partners answer greedily, or sample with seed 0",
    "introspect_discuss shuffle": "a recording is shown the responses in the order of the case, other models are not",
    "distill shuffle": "a recording is shown the responses in the order of the case, other models are not",
    "report limit": "put the cases to compare into a file of their own",
    "layout=table": "leave it out, or use --columns",
    "structured_output": "leave it out; --score_decoding constrained asks an endpoint for each score as a typed question",
}


def explain(message: str, *names: str) -> str:
    """Return an error's message, with what to use instead of the first of these names that is gone."""
    known = COMMANDS | OPTIONS
    return next((f"{message}: it is gone; {known[name]}" for name in names if name in known), message)
