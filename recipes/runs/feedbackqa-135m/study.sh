#!/usr/bin/env bash
# Run the study on FeedbackQA: a small judge is trained on people's scores for 400 questions and evaluated on two other sets.
# Every step resumes where it stopped. `data` holds the public sets, split as docs/results.md describes.
#   ln -s "$AUTOMEDEVAL_DATA" data
#   bash recipes/runs/feedbackqa-135m/study.sh
set -euo pipefail

listwise=recipes/runs/feedbackqa-135m channel=recipes/runs/feedbackqa-135m-channel
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

# Results in docs/results.md use bfloat16, in which a channel judge is not reproducible; float32, the default, is slower.
judge_likelihoods() { # name, judge: judges the test sets, and calibrates the verdicts with MEDIQA's training part
  for set in mediqa_train $tests; do
    step "$1 judges $set" judge --judge "$2" --judge_name "$1" --rubric $rubric --on_overlong clip \
      --dtype "${DTYPE:-bfloat16}" --cases "data/$set/cases.jsonl" --output "verdicts/feedbackqa-study/$set/$1-raw"
  done
  for set in $tests; do
    calibrate "$1" "verdicts/feedbackqa-study/$set/$1-raw" "verdicts/feedbackqa-study/$set/$1"
  done
}

calibrate() { # name, verdicts, output
  step "$1: onto the scale" calibrate --verdicts "$2" --fit "verdicts/feedbackqa-study/mediqa_train/$1-raw" \
    --ratings data/mediqa_train/ratings.jsonl --rubric $rubric --judge_name "$1" --output "$3"
}

# --- verdicts as rows for a listwise judge and for a channel judge
step "people's verdicts" prepare_cases --config $listwise/prepare_cases.yaml
step "their rows" build_dataset --config $listwise/build_dataset.yaml
step "their rows, turned round" build_channel_dataset --config $channel/dataset.yaml
step "weak verdicts" prepare_cases --config $channel/prepare_medquad.yaml
step "their rows" build_dataset --config $channel/build_medquad.yaml
step "their rows, turned round" build_channel_dataset --config $channel/medquad_dataset.yaml

# --- untrained
judge_listwise zero-shot $base
judge_likelihoods likelihood likelihood:$base
judge_likelihoods channel-zero-shot channel:$base

# --- the paper's form
for stage in stage1 stage2 stage3; do step "training: $stage" sft --config $listwise/$stage.yaml; done
judge_listwise listwise-curriculum checkpoints/feedbackqa-stage3

# --- the channel: the same rows at once, in stages, and in stages after the weak verdicts
step "training: no curriculum" sft --config $channel/no_curriculum.yaml
judge_likelihoods no_curriculum channel:checkpoints/feedbackqa-channel-no_curriculum
model=$base
for stage in stage1 stage2 stage3; do
  place=checkpoints/feedbackqa-channel-$stage-alone
  step "training: $stage, without weak verdicts" sft --config $channel/$stage.yaml --model_name_or_path $model --output_dir $place
  model=$place
done
judge_likelihoods curriculum channel:$model
for stage in weak stage1 stage2 stage3; do step "training: $stage" sft --config $channel/$stage.yaml; done
name=weak-curriculum model=checkpoints/feedbackqa-channel-stage3
judge_likelihoods $name channel:$model

# --- rounds of introspection, with the other raters' scores as the jury
for round in 1 2; do
  step "$name judges its training cases" judge --judge channel:$model --judge_name $name --rubric $rubric \
    --on_overlong clip --dtype "${DTYPE:-bfloat16}" --cases cases/feedbackqa/cases.jsonl --output verdicts/feedbackqa-round$round-raw
  calibrate $name verdicts/feedbackqa-round$round-raw verdicts/feedbackqa-round$round
  step "round $round" introspect --config $channel/introspect$round.yaml
  step "round $round, turned round" build_channel_dataset --config $channel/dataset.yaml \
    --dataset instructions/feedbackqa-round$round --output instructions/feedbackqa-round$round-channel
  step "training: round $round" sft --config $channel/introspection$round.yaml
  name=round$round model=checkpoints/feedbackqa-channel-introspection$round
  judge_likelihoods $name channel:$model
done

# --- round 1 again, with the cases that were judged correctly besides the revised ones (Table 1: "All Blocks")
all=instructions/feedbackqa-round1-all model=checkpoints/feedbackqa-channel-introspection1-all
step "round 1 with all cases" introspect --config $channel/introspect1.yaml --train_on all --output $all
step "round 1 with all cases, turned round" build_channel_dataset --config $channel/dataset.yaml --dataset $all --output $all-channel
step "training: round 1 with all cases" sft --config $channel/introspection1.yaml --dataset_name $all-channel --output_dir $model
judge_likelihoods round1-all channel:$model

# --- agreement with people
for set in $tests; do
  verdicts=()
  for name in zero-shot likelihood channel-zero-shot listwise-curriculum no_curriculum curriculum weak-curriculum round1 round2 round1-all; do
    verdicts+=("$name=verdicts/feedbackqa-study/$set/$name/verdicts.jsonl")
  done
  step "$set: agreement with people" meta_evaluate --cases "data/$set/cases.jsonl" --ratings "data/$set/ratings.jsonl" \
    --rubric $rubric --raters anonymous --verdicts "${verdicts[@]}" --output "reports/feedbackqa-study-$set"
done
