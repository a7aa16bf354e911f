#!/usr/bin/env bash
# Does the recipe make a judge better? Public ratings of answers with written reasons (FeedbackQA) become a weak and a strong teacher's
# verdicts; the arms learn from them, and are compared on sources that no arm saw. Every step goes on where it stopped.
#   AUTOMEDEVAL_DATA=FOLDER OUTPUT=/var/tmp/feedbackqa bash recipes/runs/feedbackqa/run.sh [--dry_run] ARM...
# The arms: B the base, S the same rows shuffled, C the curriculum, O strong labels from the start.
# BASE names another base, ADAPTER=true trains an adapter, CASES=12 takes so many cases of each source, SFT and JUDGE are more options.
cd "$(dirname "$0")/../../.."
RUN=recipes/runs/feedbackqa
arms='' options=''
for word in "$@"; do
  case $word in
  [BSCO]) arms+=" $word" ;;
  *) options+=" $word" ;;
  esac
done
set -- $options
. recipes/runs/steps.sh

BASE=${BASE:-models/SmolLM2-135M-Instruct}
OUTPUT=${OUTPUT:-verdicts/feedbackqa}
DATA=$OUTPUT/data
bring "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}/feedbackqa" "cases.jsonl and ratings.jsonl of FeedbackQA" \
  "github.com/McGill-NLP/feedbackqa, in the layout of docs/records.md"
bring "$BASE/config.json" "the base" "automedeval get-models"
all_there

# --- ratings become verdicts of two teachers, and sources are left out
step "ratings become verdicts, and sources are left out" \
  python $RUN/verdicts.py "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}" $DATA ${CASES:-}
built() { # built FOLDER PLAN
  step "the data set $1" python recipes/build_dataset.py --cases $DATA/cases.jsonl --verdicts $DATA/weak.jsonl $DATA/strong.jsonl \
    --plan $RUN/$2.yaml --rubrics $RUN/rubric.yaml --training $RUN/sft.yaml --licenses UK=OGL-UK-3.0 Australia=CC-BY-4.0 \
    --evaluation_cases $DATA/left_out.jsonl $DATA/mediqa.jsonl --output $OUTPUT/$1
}

# --- an arm is trained, and judges what was left out
adapter="--use_peft true --lora_r 8 --lora_alpha 16 --lora_target_modules q_proj k_proj v_proj o_proj --learning_rate 2.0e-4"
trained() { # trained NAME START DATASET SPLIT
  step "training: $1" python recipes/sft.py --config $RUN/sft.yaml --model_name_or_path $2 --dataset_name $OUTPUT/$3 \
    --dataset_train_split $4 --output_dir $OUTPUT/checkpoints/$1 ${ADAPTER:+$adapter} ${SFT:-}
}
judged() { # judged NAME CASES OPTION...
  local name=$1 cases=$2
  shift 2
  step "$name judges $cases" automedeval judge --cases $DATA/$cases.jsonl --rubric $RUN/rubric.yaml --rationale false \
    --output $OUTPUT/verdicts/$cases --judge_name $name "$@" ${JUDGE:-}
}
tested() { # tested NAME CHECKPOINT
  judged $1 left_out --judge $2
  judged $1 mediqa --judge $2
}
curriculum() { # curriculum ARM DATASET: three stages, each from the one before; the first two judge CDC's cases alone
  local stage before=$BASE
  for stage in stage1 stage2 stage3; do
    trained $1-$stage $before $2 $stage
    before=$OUTPUT/checkpoints/$1-$stage
    [[ $stage == stage3 ]] || judged $1-$stage left_out --judge $before --limit ${CASES:-108}
  done
}

for arm in $arms; do
  case $arm in
  B)
    tested B $BASE
    for cases in left_out mediqa; do
      step "the base's likelihood of $cases" automedeval judge --cases $DATA/$cases.jsonl --judge likelihood:$BASE \
        --output $OUTPUT/verdicts/$cases
      step "the small judge judges $cases" automedeval judge --cases $DATA/$cases.jsonl --judge small \
        --encoder models/all-MiniLM-L6-v2 --output $OUTPUT/verdicts/$cases
    done
    ;;
  C) built instructions plan && curriculum C instructions ;;
  S) built shuffled plan_shuffled && curriculum S shuffled ;;
  O) built strong plan_strong && curriculum O strong ;;
  esac
  [[ $arm == B ]] || tested $arm $OUTPUT/checkpoints/$arm-stage3
done
