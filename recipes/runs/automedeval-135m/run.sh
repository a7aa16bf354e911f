#!/usr/bin/env bash
# The paper's study with a model of 135M parameters on the packaged sample: a CPU, no key, no network. The teachers and the discussions
# are recordings. Every step goes on where it stopped. `make study` gets the models and runs it.
#   bash recipes/runs/automedeval-135m/run.sh --dry_run
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-135m}
. recipes/runs/steps.sh

# --- the instruction data set (sections 3.1 and 3.2)
step "reference books into the knowledge store" python recipes/build_store.py --config $RUN/build_store.yaml
step "the strong teacher judges, with the knowledge completion chain" python recipes/distill.py --config $RUN/distill_strong.yaml
step "the weak teacher judges the same cases" python recipes/distill.py --config $RUN/distill_weak.yaml
step "quality, curriculum splits" python recipes/build_dataset.py --config $RUN/build_dataset.yaml

# --- judges that are not trained, on the test cases
judge() { step "$1 judges the test cases" automedeval judge --config $RUN/judge.yaml --judge "$@"; }
judge models/SmolLM2-135M-Instruct
step "the base model as a likelihood judge" automedeval judge --config $RUN/judge_likelihood.yaml
step "the packaged small judge" automedeval judge --config $RUN/judge_small.yaml

# --- the curriculum (section 3.2): each stage starts from the one before, and judges the test cases
for stage in stage1 stage2 stage3; do
  step "training: $stage" python recipes/sft.py --config $RUN/$stage.yaml
  judge checkpoints/sample-$stage --judge_name $stage
done

# --- a round of introspection (section 3.3)
step "the judge judges its training cases" automedeval judge --config $RUN/judge_training1.yaml
step "its mistakes are discussed" python recipes/introspect_discuss.py --config $RUN/discuss1.yaml
step "what the partners agreed on is revised" python recipes/introspect_revise.py --config $RUN/revise1.yaml
step "training: round 1" python recipes/sft.py --config $RUN/introspection1.yaml
judge checkpoints/sample-round1 --judge_name introspection1

# --- may it be believed?
step "the report" automedeval report --config $RUN/report.yaml --rounds stage3,introspection1
step "the audit of the judge" automedeval audit --config $RUN/audit.yaml
step "the likelihood judge reads rated cases" automedeval judge --config $RUN/judge_likelihood_rated.yaml
step "it is put on the raters' scale by them" automedeval calibrate --config $RUN/calibrate.yaml

[[ $dry_run ]] || printf '%s\n' reports/sample/report.html reports/sample-audit/audit.html
