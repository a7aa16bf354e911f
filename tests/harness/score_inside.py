"""Score the answers of a log of inspect_ai inside it; print what inspect_ai makes of the scores.

    PYTHON tests/harness/score_inside.py LOG SETTINGS

SETTINGS is a YAML file of the judge. The last line is JSON.
"""

import json
import sys

from inspect_ai import score
from inspect_ai.log import read_eval_log

from automedeval.harness import inspect_scorer

if __name__ == "__main__":
    log, settings = sys.argv[1:]
    together, whole = [], inspect_scorer.score_answers

    def counted(judge, answers):
        together.append(len(answers))
        return whole(judge, answers)

    inspect_scorer.score_answers = counted
    pattern = "(?s)^(?:Question: )?(.+?)(?:\nAnswer:)?$"
    scorer = inspect_scorer.judge(config=settings, question_pattern=pattern)
    scored = score(read_eval_log(log), scorer, action="append", display="none")
    scores = [each.scores["judge"] for each in scored.samples]
    (metrics,) = [each.metrics for each in scored.results.scores if each.name == "judge"]
    told = {f"{name}s": [getattr(each, name) for each in scores] for name in ("value", "reason")}
    told |= {"mean": metrics["mean"].value, "together": together}
    print("\n" + json.dumps(told))
