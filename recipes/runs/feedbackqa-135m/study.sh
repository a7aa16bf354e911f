#!/usr/bin/env bash
# Run the study on FeedbackQA: a model of 135M parameters is trained on people's scores for 400 questions and evaluated on two other sets.
# Every step resumes where it stopped. `data` holds the public sets, split as docs/results.md describes.
#   ln -s "$AUTOMEDEVAL_DATA" data
#   bash recipes/runs/feedbackqa-135m/study.sh
set -euo pipefail

folder=recipes/runs/feedbackqa-135m
rubric=recipes/runs/automedeval-135m/feedbackqa.yaml base=models/SmolLM2-135M-Instruct
tests="feedbackqa_cdc_valid mediqa_validation" python=${PYTHON:-python}
[ -d data/feedbackqa ] || { echo "data/feedbackqa: not there; link the folder of the public sets to data" >&2 && exit 1; }

step() { # what it does, recipe, arguments
  printf '\n== %s\n' "$1"
  "$python" "recipes/$2.py" "${@:3}"
}

judge_listwise() { # name, checkpoint: judges the test sets as in the paper, with reasons and scores for several answers at once
  for set in $tests; do
    step "$1 judges $set" judge --judge "$2" --judge_name "$1" --rubric $rubric --max_new_tokens 160 --on_overlong clip \
      --cases "data/$set/cases.jsonl" --output "verdicts/feedbackqa-study/$set/$1"
  done
}

judge_likelihoods() { # name, judge: judges the test sets, and calibrates the verdicts with MEDIQA's training part
  for set in mediqa_train $tests; do
    step "$1 judges $set" judge --judge "$2" --judge_name "$1" --rubric $rubric --on_overlong clip \
      --dtype "${DTYPE:-bfloat16}" --cases "data/$set/cases.jsonl" --output "verdicts/feedbackqa-study/$set/$1-raw"
  done
  for set in $tests; do
    step "$1: onto the scale" calibrate --verdicts "verdicts/feedbackqa-study/$set/$1-raw" \
      --fit "verdicts/feedbackqa-study/mediqa_train/$1-raw" --ratings data/mediqa_train/ratings.jsonl --rubric $rubric \
      --judge_name "$1" --output "verdicts/feedbackqa-study/$set/$1"
  done
}

# --- people's verdicts as rows
step "people's verdicts" prepare --config $folder/prepare_cases.yaml
step "their rows" build_dataset --config $folder/build_dataset.yaml

# --- untrained
judge_listwise zero-shot $base
judge_likelihoods likelihood likelihood:$base

# --- the paper's form
for stage in stage1 stage2 stage3; do step "training: $stage" sft --config $folder/$stage.yaml; done
judge_listwise listwise-curriculum checkpoints/feedbackqa-stage3

# --- agreement with people
for set in $tests; do
  verdicts=()
  for name in zero-shot likelihood listwise-curriculum; do
    verdicts+=("$name=verdicts/feedbackqa-study/$set/$name/verdicts.jsonl")
  done
  step "$set: agreement with people" report --cases "data/$set/cases.jsonl" --ratings "data/$set/ratings.jsonl" \
    --rubric $rubric --raters anonymous --verdicts "${verdicts[@]}" --output "reports/feedbackqa-study-$set"
done
