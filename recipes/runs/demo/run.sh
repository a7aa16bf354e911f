#!/usr/bin/env bash
# The demo, `make demo`: verdicts and a report before any training, then the steps of the small study, by its YAMLs, with small numbers.
# All is written below demo/, and every step goes on where it stopped.
#   bash recipes/runs/demo/run.sh --dry_run
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/demo} SMALL=${SMALL:-recipes/runs/automedeval-135m}
. recipes/runs/steps.sh

# --- an answer first
step "The packaged small judge scores three models' answers to 12 questions: first verdicts, before any training" \
  automedeval judge --config $SMALL/judge.yaml --judge small --encoder models/all-MiniLM-L6-v2 --limit 12 --output demo/verdicts/sample
step "A first report on these verdicts: which model is best, and may this judge be believed?" \
  automedeval report --config $SMALL/report.yaml --verdicts demo/verdicts/sample --encoder none --output demo/reports/sample-first
step "Where does a number of two bots' answers differ from the reference? Two of six dangerous answers have one" \
  automedeval check --config $SMALL/check.yaml --output demo/checks/two_bots

# --- the instruction data set
step "Two reference books go into a store, because the teachers look facts up in them" \
  python recipes/build_store.py --config $SMALL/build_store.yaml --store demo/stores/sample
step "A strong teacher (recorded) judges 30 training cases, because a judge learns from verdicts" \
  python recipes/distill.py --config $SMALL/distill.yaml --limit 30 --store demo/stores/sample --output demo/verdicts/sample-strong
step "A weak teacher (recorded) judges the same cases, for the first stages of training" \
  python recipes/distill.py --config $SMALL/distill.yaml --teacher weak --limit 30 --store demo/stores/sample --output demo/verdicts/sample-weak
step "Physicians' checks (simulated), quality, and a curriculum: verdicts become four training rows in three stages" \
  python recipes/build_dataset.py --config $SMALL/build_dataset.yaml --plan $RUN/plan.yaml \
  --verdicts demo/verdicts/sample-strong/verdicts.jsonl,demo/verdicts/sample-weak/verdicts.jsonl --output demo/instructions/sample

# --- training; the same test cases before and after it
judge() { step "$1" automedeval judge --config $SMALL/judge.yaml --limit 2 --max_new_tokens 48 --output demo/verdicts/sample "${@:2}"; }
train() { # ABOUT SPLIT FROM DATASET TO
  step "$1" python recipes/sft.py --config $SMALL/sft.yaml --gradient_accumulation_steps 1 --save_strategy no \
    --model_name_or_path "$3" --dataset_name "$4" --dataset_train_split "$2" --output_dir "$5"
}
checkpoints=demo/checkpoints/sample cases=src/automedeval/sample/train_cases.jsonl
judge "A language model of 135M parameters judges two test cases before it is trained, to compare with"
train "Training, stage 1: the form of a verdict, from the weak teacher" \
  stage1 models/SmolLM2-135M-Instruct demo/instructions/sample $checkpoints-stage1
train "Training, stage 2: from form to quality, from both teachers" \
  stage2 $checkpoints-stage1 demo/instructions/sample $checkpoints-stage2
train "Training, stage 3: quality, from the strong teacher" \
  stage3 $checkpoints-stage2 demo/instructions/sample $checkpoints-stage3
judge "The trained judge judges the same two cases: what has it learnt?" --judge $checkpoints-stage3 --judge_name stage3

# --- a round of introspection
step "It judges its training cases, to find the verdicts in which it differs from its teachers" \
  automedeval judge --config $SMALL/judge.yaml --judge $checkpoints-stage3 --judge_name stage3 --max_new_tokens 32 \
  --cases $cases --dataset demo/instructions/sample --output demo/verdicts/sample-stage3-train
step "These mistakes are discussed (recorded)" python recipes/introspect_discuss.py --config $SMALL/discuss.yaml \
  --dataset demo/instructions/sample --verdicts demo/verdicts/sample-stage3-train --output demo/instructions/sample-round1
step "The verdicts that both partners want revised are revised" python recipes/introspect_revise.py --dataset demo/instructions/sample \
  --cases $cases --output demo/instructions/sample-round1 --waiting keep_old --training $SMALL/sft.yaml
train "Training once more, on the revised verdicts" \
  train $checkpoints-stage3 demo/instructions/sample-round1 $checkpoints-round1
judge "The judge after this round judges the two cases" --judge $checkpoints-round1 --judge_name introspection1

# --- may it be believed?
step "The report on the two cases: every judge beside people's ratings and judges that need no model" \
  automedeval report --config $SMALL/report.yaml --rounds stage3,introspection1 --encoder none \
  --verdicts demo/verdicts/sample --output demo/reports/sample
step "An audit of the last judge on one case: do order, length, planted texts or the patient move its scores?" \
  automedeval audit --config $SMALL/audit.yaml --judge $checkpoints-round1 --limit 1 --encoder none --output demo/reports/sample-audit

[[ $dry_run ]] || cat <<END

== what was made
demo/reports/sample-first/report.html  the first report, by the packaged small judge
demo/checks/two_bots/check.html        the answers of two bots with the numbers marked
demo/reports/sample/report.html        the report on all judges
demo/reports/sample-audit/audit.html   the audit of the judge that was trained here
demo/verdicts/sample/verdicts.jsonl    the verdicts of all judges on the test cases
demo/instructions/sample               the instruction data set, with its card
demo/instructions/sample-round1        the same after a round of introspection
demo/checkpoints/sample-round1         the trained judge; so little training teaches the form of a verdict alone

== what to try next
Judge your own answers, by the packaged small judge:
  .venv/bin/automedeval judge my_cases.jsonl
Rate the sample yourself, on the physicians' page:
  .venv/bin/automedeval annotate --study recipes/runs/automedeval-135m/annotate.yaml
Run the whole study on the sample:
  make study
END
