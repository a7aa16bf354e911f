#!/usr/bin/env bash
# Does the recipe make a judge better? Public ratings of answers with written reasons (FeedbackQA) become a weak and a strong teacher's
# verdicts; the arms learn from them, and are compared on sources that no arm saw. Every step goes on where it stopped.
#   AUTOMEDEVAL_DATA=FOLDER OUTPUT=/var/tmp/feedbackqa bash recipes/runs/feedbackqa/run.sh [--dry_run] ARM...
# The arms: B the base, S the same rows shuffled, C the curriculum, O strong labels from the start; and from C one pass each, U on
# unrevised rows, I after introspection with mistakes found out of fold, X on as many rows revised at random.
# BASE names another base, CASES=12 takes so many cases of each source, SFT and JUDGE are more options.
cd "$(dirname "$0")/../../.."
RUN=recipes/runs/feedbackqa
arms='' options=''
for word in "$@"; do
  case $word in
  [BSCUIXO]) arms+=" $word" ;;
  *) options+=" $word" ;;
  esac
done
set -- $options
. recipes/runs/steps.sh

# glibc gives large blocks back after each use; kept, an update took 7.3 s instead of 8.9 s (two cores with bfloat16, 2026-11-29)
tunables=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.top_pad=1073741824
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-$tunables:glibc.malloc.trim_threshold=18446744073709551615}

BASE=${BASE:-models/SmolLM2-135M-Instruct}
ENCODER=${ENCODER:-models/all-MiniLM-L6-v2}
OUTPUT=${OUTPUT:-verdicts/feedbackqa}
DATA=$OUTPUT/data
bring "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}/feedbackqa" "cases.jsonl and ratings.jsonl of FeedbackQA" \
  "github.com/McGill-NLP/feedbackqa, in the layout of docs/judge.md"
bring "$BASE/config.json" "the base" "automedeval get-models"
all_there

# once FUNCTION NAME...: what several arms need is made once.
declare -A made
once() {
  [[ ${made[$2]:-} ]] || "$@"
  made[$2]=true
}

# --- ratings become verdicts of two teachers, and sources are left out
step "ratings become verdicts, and sources are left out" \
  python $RUN/verdicts.py "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}" $DATA ${CASES:-}
built() { # built FOLDER PLAN
  step "the data set $1" python recipes/build_dataset.py --cases $DATA/cases.jsonl --verdicts $DATA/weak.jsonl $DATA/strong.jsonl \
    --plan $RUN/$2.yaml --rubrics $RUN/rubric.yaml --training $RUN/sft.yaml --licenses UK=OGL-UK-3.0 Australia=CC-BY-4.0 \
    --evaluation_cases $DATA/left_out.jsonl $DATA/mediqa.jsonl --output $OUTPUT/$1
}

# --- an arm is trained, and judges what was left out
trained() { # trained NAME START DATASET SPLIT
  step "training: $1" python recipes/sft.py --config $RUN/sft.yaml --model_name_or_path $2 --dataset_name $OUTPUT/$3 \
    --dataset_train_split "$4" --output_dir $OUTPUT/checkpoints/$1 ${SFT:-}
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
curriculum() { # curriculum ARM DATASET: three stages, each from the one before; the first two judge the cases of the curve alone
  local stage before=$BASE
  for stage in stage1 stage2 stage3; do
    trained $1-$stage $before $2 $stage
    before=$OUTPUT/checkpoints/$1-$stage
    [[ $stage == stage3 ]] || judged $1-$stage curve --judge $before
  done
}
all=stage1+stage2+stage3
first='stage1[:50%]+stage2[:50%]+stage3[:50%]' second='stage1[50%:]+stage2[50%:]+stage3[50%:]'
fold() { # fold NAME SPLIT OTHER: a judge learns from half of the rows, and judges the others
  trained $1 $BASE instructions "$2"
  step "$1 judges the rows that it has not seen" automedeval judge --cases $DATA/cases.jsonl --dataset $OUTPUT/instructions \
    --split "$3" --rubric $RUN/rubric.yaml --rationale false --judge $OUTPUT/checkpoints/$1 --judge_name $1 \
    --output $OUTPUT/verdicts/$1 ${JUDGE:-}
}
round_of() { # round_of ARM ROWS: the second rater discusses mistakes, or all rows
  local about="--dataset $OUTPUT/instructions --cases $DATA/cases.jsonl --rubrics $RUN/rubric.yaml --output $OUTPUT/instructions-$1"
  local said=recording:$OUTPUT/partners-$1.jsonl
  step "what the partners of $1 say" python $RUN/partners.py "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}" $OUTPUT $1
  step "they discuss the rows of $1" python recipes/introspect_discuss.py $about --verdicts $OUTPUT/verdicts/F1 $OUTPUT/verdicts/F2 \
    --rows $2 --suggester $said --reviewer $said --store none
  step "the rows of $1 are revised" python recipes/introspect_revise.py $about --training $RUN/sft.yaml
}

for arm in $arms; do
  case $arm in
  B)
    tested B $BASE
    for cases in left_out mediqa; do
      step "the base's likelihood of $cases" automedeval judge --cases $DATA/$cases.jsonl --judge likelihood:$BASE \
        --output $OUTPUT/verdicts/$cases
      step "the small judge judges $cases" automedeval judge --cases $DATA/$cases.jsonl --judge small \
        --encoder $ENCODER --output $OUTPUT/verdicts/$cases
    done
    ;;
  S) built shuffled plan_shuffled && curriculum S shuffled ;;
  O) built strong plan_strong && curriculum O strong ;;
  [CUIX]) once built instructions plan && once curriculum C instructions ;;
  esac
  case $arm in
  U) trained U $OUTPUT/checkpoints/C-stage3 instructions $all ;;
  [IX])
    once fold F1 "$first" "$second"
    once fold F2 "$second" "$first"
    once round_of I mistakes
    [[ $arm == I ]] || once round_of X all
    trained $arm $OUTPUT/checkpoints/C-stage3 instructions-$arm train
    ;;
  esac
  case $arm in
  [SCO]) tested $arm $OUTPUT/checkpoints/$arm-stage3 ;;
  [UIX]) tested $arm $OUTPUT/checkpoints/$arm ;;
  esac
  [[ $arm != X ]] || step "the third rater on what was revised" \
    python $RUN/partners.py "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}" $OUTPUT precision
done

# --- the table: what was left out, in clusters of cases around a passage; the contrasts of the arms that are there
there() { [[ $dry_run ]] || grep -q "\"judge\": \"$1\"" $OUTPUT/verdicts/left_out/verdicts.jsonl; }
compared() { # compared FIRST=SECOND...: the option of a report for those of the pairs whose arms are there
  local pair pairs=''
  for pair in "$@"; do
    if there ${pair%=*} && there ${pair#*=}; then pairs+=" $pair"; fi
  done
  echo "${pairs:+--contrasts$pairs}"
}
report() { # report NAME CASES RATINGS OPTIONS VERDICTS...
  step "the report $1" automedeval report --cases $DATA/$2.jsonl --ratings "$3" --raters anonymous --rubric $RUN/rubric.yaml \
    --encoder $ENCODER --output $OUTPUT/reports/$1 $4 --verdicts "${@:5}"
}
report left_out left_out $DATA/left_out_ratings.jsonl "$(compared C=S I=U)" $OUTPUT/verdicts/left_out
report secondary left_out $DATA/left_out_ratings.jsonl "$(compared C=B I=X C=O)" $OUTPUT/verdicts/left_out
report mediqa mediqa "${AUTOMEDEVAL_DATA:-AUTOMEDEVAL_DATA}/mediqa_validation/ratings.jsonl" "" $OUTPUT/verdicts/mediqa
if [[ $dry_run || -d $OUTPUT/verdicts/curve ]]; then
  report curve curve $DATA/left_out_ratings.jsonl "" $OUTPUT/verdicts/curve $OUTPUT/verdicts/left_out
fi
step "what is kept of the arms, without a text" python $RUN/records.py $OUTPUT $OUTPUT/records
