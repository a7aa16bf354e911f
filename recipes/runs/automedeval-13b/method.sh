# What run.sh and variants.sh share: the machine, one training, the curriculum, and the rounds of introspection.
base=models/MedLLaMA-13B # docs/reproducing.md has the lines for another one
data=instructions/wikidoc
wikidoc=responses/wikidoc/cases.jsonl
config=sft.yaml                # lora.yaml for adapters
stages=(stage1 stage2 stage3)  # what each stage of the curriculum trains on (Table 1)
suffix= own= books=            # a variant's -NAME after all that it makes, and its arguments of training and of discussions

# --- the machine: eight GPUs of 80 GB, or GPUS of them. An update has the paper's 128 rows on any number that divides 64.
# Several hosts, which see the same files: the same command on each at about the same time, with what accelerate calls NUM_MACHINES,
# MACHINE_RANK and MAIN_PROCESS_IP, and GPUS of all together. The first one, of rank 0, does every step. The others wait for its
# trainings, and take part in them: what is trained next, whether it is finished, and from where it goes on, the first one tells them.
NUM_MACHINES=${NUM_MACHINES:-1} MACHINE_RANK=${MACHINE_RANK:-0}
GPUS=${GPUS:-$((8 * NUM_MACHINES))}
launch=${LAUNCH:-accelerate launch --num_processes $((GPUS / NUM_MACHINES))}
machine=zero3 hosts='' trainings=0
if [ "$NUM_MACHINES" != 1 ]; then
  machine=zero3_multinode
  hosts="--num_machines $NUM_MACHINES --machine_rank $MACHINE_RANK --main_process_ip ${MAIN_PROCESS_IP:?is the address of the first host}"
  hosts+=" --rdzv_conf timeout=2000000" # seconds to wait for the first host, which may wait for people
  [ "$MACHINE_RANK" = 0 ] || follows=-host$MACHINE_RANK
fi
train=${TRAIN:-accelerate launch --config_file ${ZERO3:-accelerate_configs/$machine.yaml} --num_processes $GPUS}
rows=
[ "$GPUS" = 8 ] || rows="--gradient_accumulation_steps $((64 / GPUS))"
[ $((64 % GPUS)) = 0 ] || { echo "GPUS=$GPUS: must divide 64" >&2; exit 1; }

# judge MODEL ARGUMENTS...: a judge of Table 2 judges the test cases, a trained one too.
thrice="--runs 3 --temperature 0.5" # Paper: "We run models three times and report the average results"; no temperature
judge() { step "$1 judges the test cases" $launch recipes/judge.py --config $RUN/judge.yaml --judge "$1" $thrice "${@:2}"; }

# train ABOUT CHECKPOINT FROM DATASET SPLIT: one stage, one round, or one ablation. Of several hosts each training has a port of its own,
# so that none meets the one before.
train() {
  trainings=$((trainings + 1))
  step "training: $1" $train ${hosts:+$hosts --main_process_port $((29500 + trainings))} recipes/sft.py --config $RUN/$config \
    --model_name_or_path "$3" --dataset_name "$4" --dataset_train_split "$5" --output_dir checkpoints/wikidoc-"$2" $rows $own
}
# tested ABOUT CHECKPOINT NAME FROM DATASET SPLIT: train, and let the checkpoint judge the test cases.
tested() {
  train "$1" "$2" "${@:4}"
  judge checkpoints/wikidoc-"$2" --judge_name "$3"
}

# curriculum: three stages, each from the one before (section 3.2).
curriculum() {
  local from=$base at
  for at in 1 2 3; do
    tested "stage $at" stage$at$suffix stage$at$suffix "$from" "$data" "${stages[at - 1]}"
    from=checkpoints/wikidoc-stage$at$suffix
  done
}

# rounds CHECKPOINT NAME: two rounds of introspection on the training rows of $data (section 3.3, Algorithm 2).
rounds() {
  local from=checkpoints/wikidoc-$1 judge=$2 rows_of=$data round folder judged jury
  for round in 1 2; do
    folder=instructions/wikidoc-round$round$suffix judged=verdicts/${from##*/}-train jury=$folder.discussion/annotate.yaml
    [[ $follows ]] || estimate $round "$rows_of"
    judge_for_mistakes
    step "its mistakes are discussed" python recipes/introspect_discuss.py --config $RUN/discuss.yaml --dataset "$rows_of" \
      --verdicts "$judged" --output "$folder" $books
    [[ $dry_run || $follows || -e $jury ]] || sed "s/round1/round$round$suffix/" $RUN/annotate_jury.yaml >"$jury"
    revised "$folder" "$jury" python recipes/introspect_revise.py --dataset "$rows_of" --cases $wikidoc --output "$folder" \
      --training $RUN/sft.yaml # rows too long for it are dropped
    tested "round $round" round$round$suffix introspection$round$suffix "$from" "$folder" train
    from=checkpoints/wikidoc-round$round$suffix judge=introspection$round$suffix rows_of=$folder
  done
}
# Paper: the judge's mistakes are looked for on all of R (Algorithm 2), the rows that it was trained on. variants.sh out_of_fold looks
# elsewhere. A verdict each, greedily.
judge_for_mistakes() { judge_rows "$from" "$judge" "$judged"; }
# judge_rows CHECKPOINT NAME OUTPUT ARGUMENTS...: by the prompts of the training rows, in which the reference is a third response
judge_rows() {
  step "$2 judges training cases" $launch recipes/judge.py --config $RUN/judge.yaml --judge "$1" --judge_name "$2" \
    --cases $wikidoc --dataset "$rows_of" --output "$3" "${@:4}"
}

# estimate ROUND DATASET: what a round will ask, before it starts; of the round before, whose data set it is, the mistakes are known.
estimate() {
  local said=$2.discussion/discussion.jsonl cases mistakes calls
  if [[ -s $said && -s $2/statistics.json ]]; then # a round that waits for the jury has no statistics yet
    cases=$(sum cases "$2"/statistics.json) mistakes=$(sum mistakes "$2"/statistics.json)
    calls=$(awk '{n += 1 + gsub(/"goes_on"/, "")} END {print n}' "$said") # a message each, and its questions
    printf '\n-- round %d: about as many as round %d had: of %d cases %d mistakes (%d %%), %d calls with %d + %d tokens\n' "$1" $(($1 - 1)) \
      "$cases" "$mistakes" $((100 * mistakes / cases)) $calls "$(sum prompt_tokens "$said")" "$(sum completion_tokens "$said")"
  else
    printf '\n-- round %d: 8,611 cases; no written round says how many are mistakes; each takes 2 to 16 calls\n' "$1"
  fi
}
# sum KEY FILE: 0 without the key, as an endpoint may count no tokens
sum() { { grep -o "\"$1\": [0-9]*" "$2" || true; } | awk '{n += $2} END {print n + 0}'; }
