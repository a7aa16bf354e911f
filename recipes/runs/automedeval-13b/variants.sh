#!/usr/bin/env bash
# The study once more without one component (Table 2), with adapters on one GPU, or with another seed. run.sh comes first: what it made
# before training is shared, and all that a variant makes is called after it. The lines name what each changes.
#   bash recipes/runs/automedeval-13b/variants.sh no_chain|no_curriculum|no_introspection|vanilla|lora|run2|run3 [--dry_run]
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-13b}
. recipes/runs/steps.sh
. recipes/runs/automedeval-13b/machine.sh
name=${1:-none} base=models/MedLLaMA-13B data=instructions/wikidoc own= books=chain

# train ABOUT CHECKPOINT NAME CONFIG ARGUMENTS...: train, and let the checkpoint judge the test cases
train() {
  step "training: $1" $train recipes/sft.py --config $RUN/"$4" --output_dir "$2" $rows $own "${@:5}"
  step "$3 judges the test cases" $launch recipes/judge.py --config $RUN/judge.yaml --judge "$2" --judge_name "$3"
}

# curriculum: three stages, each from the one before (section 3.2); lora.yaml has the other arguments of every stage of adapters
curriculum() {
  local from=$base config
  for stage in stage1 stage2 stage3; do
    if [ "$name" = lora ]; then config=lora.yaml; else config=$stage.yaml; fi
    train "$stage" checkpoints/wikidoc-$stage-"$name" $stage-"$name" $config \
      --model_name_or_path "$from" --dataset_name $data --dataset_train_split $stage
    from=checkpoints/wikidoc-$stage-$name
  done
}

# rounds CHECKPOINT NAME: two rounds of introspection on the training rows of $data (section 3.3)
rounds() {
  local from=$1 judge=$2 rows_of=$data folder config
  for round in 1 2; do
    folder=instructions/wikidoc-round$round-$name
    step "$judge judges its training cases" $launch recipes/judge.py --config $RUN/judge_training$round.yaml \
      --judge "$from" --judge_name "$judge" --dataset "$rows_of" --output verdicts/wikidoc-before$round-"$name"
    step "its mistakes are discussed" python recipes/introspect_discuss.py --config $RUN/discuss$round.yaml --dataset "$rows_of" \
      --verdicts verdicts/wikidoc-before$round-"$name" --output "$folder" --knowledge $books
    revised "$folder" "a copy of $RUN/annotate_jury$round.yaml whose queue is $folder.discussion/jury.jsonl" \
      python recipes/introspect_revise.py --config $RUN/revise$round.yaml --training $RUN/stage1.yaml --dataset "$rows_of" --output "$folder"
    if [ "$name" = lora ]; then config=lora.yaml; else config=introspection$round.yaml; fi
    train "round $round" checkpoints/wikidoc-round$round-"$name" introspection$round-"$name" $config \
      --model_name_or_path "$from" --dataset_name "$folder" --dataset_train_split train
    from=checkpoints/wikidoc-round$round-$name judge=introspection$round-$name rows_of=$folder
  done
  report "$from" "$judge" --rounds "$2,introspection1-$name,introspection2-$name"
}

# report CHECKPOINT NAME ARGUMENTS...: the report on all judges, and the audit of this one
report() {
  step "the report" automedeval report --config $RUN/report.yaml --output reports/wikidoc-"$name" "${@:3}"
  step "the audit of $2" $launch recipes/audit.py --config $RUN/audit.yaml \
    --judge "$1" --judge_name "$2" --output reports/wikidoc-audit-"$name"
}

# instructions ARGUMENTS...: a data set of its own, without the study's test cases
instructions() {
  data=instructions/wikidoc-$name
  step "the instructions of $name" python recipes/build_dataset.py --config $RUN/build_dataset.yaml --plan $RUN/plan.yaml --training $RUN/stage1.yaml \
    --evaluation_cases cases/medtext/cases.jsonl,cases/test/cases.jsonl --output "$data" $unverified "$@"
}

case $name in
  no_chain) # neither teachers nor suggestions may ask the store; physicians' checks of the study's own texts do not count here
    books=none
    for teacher in strong weak; do
      step "the $teacher teacher judges, and may not ask" python recipes/distill.py --config $RUN/distill_$teacher.yaml \
        --knowledge none --cases cases/verified/cases.jsonl --output verdicts/wikidoc-$teacher-no_chain
    done
    instructions --verdicts verdicts/wikidoc-strong-no_chain/verdicts.jsonl,verdicts/wikidoc-weak-no_chain/verdicts.jsonl
    curriculum
    rounds checkpoints/wikidoc-stage3-no_chain stage3-no_chain
    ;;
  no_curriculum) # the same rows in one stage, with equally many tokens
    train "all rows at once" checkpoints/wikidoc-no_curriculum no_curriculum no_curriculum.yaml
    rounds checkpoints/wikidoc-no_curriculum no_curriculum
    ;;
  no_introspection) # the judge of stage 3, before the rounds
    report checkpoints/wikidoc-stage3 stage3
    ;;
  vanilla) # the rows of the strong teacher only: 5,000, and all there are
    instructions --plan $RUN/plan_vanilla.yaml
    train "5,000 rows" checkpoints/wikidoc-vanilla vanilla vanilla.yaml
    train "all rows" checkpoints/wikidoc-vanilla_all vanilla_all vanilla_all.yaml
    report checkpoints/wikidoc-vanilla_all vanilla_all
    ;;
  lora | run[2-9])
    if [ "$name" = lora ]; then
      train="${TRAIN:-accelerate launch --config_file accelerate_configs/single.yaml}" rows=
    else
      own="--seed $((${name#run} - 1))"
    fi
    curriculum
    rounds checkpoints/wikidoc-stage3-"$name" stage3-"$name"
    ;;
  *)
    sed -n 2,4p recipes/runs/automedeval-13b/variants.sh >&2
    exit 2
    ;;
esac
