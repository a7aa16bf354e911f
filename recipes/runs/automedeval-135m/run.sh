#!/usr/bin/env bash
# The paper's study with a model of 135M parameters on the packaged sample: a CPU, no key, no network. The teachers and the discussions
# are recordings. Every step goes on where it stopped. `make study` gets the models and runs it.
#   bash recipes/runs/automedeval-135m/run.sh --dry_run
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-135m}
. recipes/runs/steps.sh
base=models/SmolLM2-135M-Instruct cases=src/automedeval/sample/train_cases.jsonl

# --- the instruction data set (sections 3.1 and 3.2)
step "reference books into the knowledge store" python recipes/build_store.py --config $RUN/build_store.yaml
step "the strong teacher judges, with the knowledge completion chain" python recipes/distill.py --config $RUN/distill.yaml
step "the weak teacher judges the same cases" python recipes/distill.py --config $RUN/distill.yaml --teacher weak --output verdicts/sample-weak
step "quality, curriculum splits" python recipes/build_dataset.py --config $RUN/build_dataset.yaml

# --- judges that are not trained, on the test cases
judge() { step "$1 judges the test cases" automedeval judge --config $RUN/judge.yaml --judge "$@"; }
judge $base
judge likelihood:$base # how likely does each response make the question? A baseline that sees relevance only
# the packaged one; how to read a reference it learnt from the sample's training cases too, and it never saw these
judge small --encoder models/all-MiniLM-L6-v2

# --- the curriculum (section 3.2): each stage starts from the one before, and judges the test cases
train() { # ABOUT FROM DATASET SPLIT TO NAME
  step "training: $1" python recipes/sft.py --config $RUN/sft.yaml --model_name_or_path "$2" --dataset_name "$3" \
    --dataset_train_split "$4" --output_dir "$5"
  judge "$5" --judge_name "$6"
}
data=instructions/sample last=$base
for stage in stage1 stage2 stage3; do
  train $stage $last $data $stage checkpoints/sample-$stage $stage
  last=checkpoints/sample-$stage
done

# --- a round of introspection (section 3.3, Algorithm 2)
step "the judge judges its training cases" automedeval judge --config $RUN/judge.yaml --judge $last --judge_name stage3 \
  --cases $cases --dataset $data --output verdicts/sample-stage3-train
step "its mistakes are discussed" python recipes/introspect_discuss.py --config $RUN/discuss.yaml
# this study has no jury; Paper: a chief physician decides, so that no case waits
step "what the partners agreed on is revised" python recipes/introspect_revise.py --dataset $data --cases $cases \
  --output $data-round1 --waiting keep_old --training $RUN/sft.yaml
train "round 1" $last $data-round1 train checkpoints/sample-round1 introspection1

# --- may it be believed?
step "the report" automedeval report --config $RUN/report.yaml --rounds stage3,introspection1
step "the audit of the judge" automedeval audit --config $RUN/audit.yaml
step "the likelihood judge reads thirty of the training cases, which have ratings" automedeval judge --config $RUN/judge.yaml \
  --judge likelihood:$base --cases $cases --limit 30 --output verdicts/sample-likelihood-rated
step "it is put on the raters' scale by them" automedeval calibrate --verdicts verdicts/sample-likelihood-rated,verdicts/sample \
  --judge likelihood:"${base#models/}" --ratings src/automedeval/sample/train_ratings.jsonl --rubric automedeval --output verdicts/sample-calibrated

[[ $dry_run ]] || printf '%s\n' reports/sample/report.html reports/sample-audit/audit.html
