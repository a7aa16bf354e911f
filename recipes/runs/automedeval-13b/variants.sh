#!/usr/bin/env bash
# The study once more without one component (Table 2), with adapters on one GPU, or with another seed. run.sh comes first: what it made
# before training is shared, and all that a variant makes is called after it. The lines name what each changes.
#   bash recipes/runs/automedeval-13b/variants.sh no_chain|no_curriculum|no_introspection|out_of_fold|vanilla|lora|run2|run3 [--dry_run]
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-13b}
. recipes/runs/steps.sh
. recipes/runs/automedeval-13b/method.sh
name=${1:-none} suffix=-$name

# report CHECKPOINT NAME ARGUMENTS...: the report on all judges, and the audit of this one
report() {
  step "the report" automedeval report --config $RUN/report.yaml --output reports/wikidoc"$suffix" "${@:3}"
  step "the audit of $2" $launch recipes/audit.py --config $RUN/audit.yaml \
    --judge checkpoints/wikidoc-"$1" --judge_name "$2" --output reports/wikidoc-audit"$suffix"
}
# introspected CHECKPOINT NAME: the rounds, and their report
introspected() {
  rounds "$1" "$2"
  report round2"$suffix" introspection2"$suffix" --rounds "$2,introspection1$suffix,introspection2$suffix"
}
# instructions PLAN ARGUMENTS...: a data set of its own, without the study's test cases
instructions() {
  data=instructions/wikidoc$suffix
  step "the instructions of $name" python recipes/build_dataset.py --config $RUN/build_dataset.yaml --plan $RUN/"$1".yaml \
    --training $RUN/sft.yaml --evaluation_cases cases/medtext/cases.jsonl,cases/test/cases.jsonl --output "$data" $unverified "${@:2}"
}
case $name in
  no_chain) # neither teachers nor suggestions may ask the store; physicians' checks of the study's own texts do not count here
    books="--store none"
    for teacher in strong weak; do
      step "the $teacher teacher judges, and may not ask" python recipes/distill.py --config $RUN/distill.yaml --teacher $teacher \
        --judge openai:teacher:$teacher --store none --cases cases/verified/cases.jsonl --output verdicts/wikidoc-$teacher"$suffix"
    done
    instructions plan --verdicts verdicts/wikidoc-strong"$suffix"/verdicts.jsonl,verdicts/wikidoc-weak"$suffix"/verdicts.jsonl
    curriculum
    introspected stage3"$suffix" stage3"$suffix"
    ;;
  no_curriculum) # the same rows in an order that says nothing, in parts as large as the stages: three cycles of the rate here too
    stages=('stage1[:22%]+stage2[:22%]+stage3[:22%]' 'stage1[22%:72%]+stage2[22%:72%]+stage3[22%:72%]'
      'stage1[72%:]+stage2[72%:]+stage3[72%:]')
    curriculum
    introspected stage3"$suffix" stage3"$suffix"
    ;;
  no_introspection) # the judge of stage 3, before the rounds; and as a control as much more training, on rows that nobody revised
    tested "as long as round 1, unrevised" unrevised1 unrevised1 checkpoints/wikidoc-stage3 $data stage1+stage2+stage3
    tested "as long as round 2, unrevised" unrevised2 unrevised2 checkpoints/wikidoc-unrevised1 $data stage1+stage2+stage3
    report stage3 stage3 --rounds stage3,unrevised1,unrevised2
    ;;
  out_of_fold) # mistakes on rows that a judge has not seen: two judges each learn from a half of the rows, and judge the other half
    halves=('[:50%]' '[50%:]')
    judge_for_mistakes() {
      local fold half split=stage1@+stage2@+stage3@
      [[ $round == 1 ]] || split=train@
      judged=
      for fold in 0 1; do
        half=round$round-half$((fold + 1))$suffix
        train "$half" "$half" $base "$rows_of" "${split//@/${halves[fold]}}"
        judge_rows checkpoints/wikidoc-"$half" "$half" verdicts/wikidoc-"$half" --split "${split//@/${halves[1 - fold]}}"
        judged+=${judged:+,}verdicts/wikidoc-$half
      done
    }
    introspected stage3 stage3
    ;;
  vanilla) # the rows of the strong teacher only: 5,000, and all there are
    instructions plan_vanilla
    tested "5,000 rows" vanilla vanilla $base "$data" vanilla       # Paper: "5,000 GPT-4 instructions"
    tested "all rows" vanilla_all vanilla_all $base "$data" vanilla+others # Paper: "9,000": all 8,611, as there are not 9,000
    report vanilla_all vanilla_all
    ;;
  lora | run[2-9])
    if [ "$name" = lora ]; then
      [ "$NUM_MACHINES" = 1 ] || { echo "lora: takes one GPU of one host" >&2; exit 1; }
      train="${TRAIN:-accelerate launch --config_file accelerate_configs/single.yaml}" rows= config=lora.yaml
    else
      own="--seed $((${name#run} - 1))"
    fi
    curriculum
    introspected stage3"$suffix" stage3"$suffix"
    ;;
  *)
    sed -n 2,4p recipes/runs/automedeval-13b/variants.sh >&2
    exit 2
    ;;
esac
