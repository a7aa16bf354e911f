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
    together = []
    plain = inspect_scorer.score_answers

    def counted(judge, answers):
        together.append(len(answers))
        return plain(judge, answers)

    inspect_scorer.score_answers = counted
    pattern = "(?s)^(?:Question: )?(.+?)(?:\nAnswer:)?$"
    scorer = inspect_scorer.judge(config=settings, question_pattern=pattern)
    scored = score(read_eval_log(log), scorer, action="append", display="none")
    scores = [sample.scores["judge"] for sample in scored.samples]
    (whole,) = [result for result in scored.results.scores if result.name == "judge"]
    told = [{"value": score.value, "reason": score.reason} for score in scores]
    mean = whole.metrics["mean"].value
    print("\n" + json.dumps({"scores": told, "mean": mean, "together": together}))
