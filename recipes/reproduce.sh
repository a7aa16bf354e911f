#!/usr/bin/env bash
# Run a whole study. Each step is one YAML of the run's folder and runs the command in the YAML's first line. Every step resumes
# where it stopped, so the same command resumes the study. A step without a YAML is skipped with a message.
#   bash recipes/reproduce.sh recipes/runs/automedeval-135m
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --runs 3
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --ablation no_curriculum
set -euo pipefail

usage() {
  echo "usage: bash recipes/reproduce.sh RUN_FOLDER [--rounds N] [--runs N] [--ablation no_chain|no_curriculum|no_introspection|vanilla]" >&2
  exit 2
}
[ $# -ge 1 ] && [ -d "$1" ] || usage
folder=${1%/} rounds=1 runs=1 ablation=
shift
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1=$2 in
    --rounds=[0-9]) rounds=$2 ;;
    --runs=[1-9]) runs=$2 ;;
    --ablation=no_chain | --ablation=no_curriculum) ablation=$2 ;;
    --ablation=no_introspection | --ablation=vanilla) ablation=$2 rounds=0 ;;
    *) usage ;;
  esac
  shift 2
done
python=${PYTHON:-python}
suffix=${ablation:+-$ablation} # for every folder that an ablation changes
[ "$ablation" != no_introspection ] || suffix= # the stages are the same, without rounds

value() { # YAML, key → its value, as the file has it
  sed -n "s/^$2: *\([^ #]*\).*/\1/p" "$folder/$1.yaml"
}

step() { # YAML, what it does, arguments that override the YAML's
  local yaml=$folder/$1.yaml about=$2 command
  shift 2
  if [ ! -f "$yaml" ]; then
    printf '\n== %s: left out, there is no %s\n' "$about" "$yaml"
    return
  fi
  printf '\n== %s\n' "$about"
  read -r -a command <<<"$(sed -n '1s/^# *//p' "$yaml")"
  case ${command[0]} in
    accelerate) command=("$python" -m accelerate.commands.accelerate_cli "${command[@]:1}") ;;
    python) command[0]=$python ;;
  esac
  "${command[@]}" "$@"
}

# --- the instruction data set (paper section 3.1)
step prepare_cases "public questions"
step generate_responses "the candidates answer them"
step build_store "reference books into the knowledge store"
data=$(value build_dataset output) changed=()
if [ "$ablation" = no_chain ]; then # Table 2: the teachers judge without the books
  # Physicians' checks of the other run's texts are left out: these have no verdict_digest, or that of another text.
  data+=$suffix changed=(--output "$data" --require_digest true --verdicts)
  for teacher in strong weak; do
    output=$(value "distill_$teacher" output)$suffix
    step "distill_$teacher" "the $teacher teacher judges, and may not ask" --knowledge none --output "$output"
    changed+=("$output/verdicts.jsonl")
  done
else
  step distill_strong "the strong teacher judges, with the knowledge completion chain"
  step distill_weak "the weak teacher judges the same cases"
fi
if [ "$ablation" = vanilla ]; then # Table 2: the strong teacher's verdicts alone
  data+=$suffix changed=(--output "$data" --plan "$folder/plan_vanilla.yaml")
fi
step build_dataset "physicians' checks, quality, curriculum splits" ${changed[@]+"${changed[@]}"}

# --- the model before any training
step judge "the base model judges the test split"
step judge_likelihood "the same model as a likelihood judge"

# --- hierarchical training (sections 3.2 and 3.3), once per run; the test split is judged after every stage
case $ablation in
  no_curriculum | vanilla) stages=("$ablation") ;;
  *) stages=(stage1 stage2 stage3) ;;
esac
train() { # YAML, what it does, arguments; starts from $model, and sets it to the trained checkpoint
  local yaml=$1 about=$2 name=$1 place
  shift 2
  [ "$yaml" = "$ablation" ] || name+=$suffix # the name of this YAML says it already
  name+=$again place=$(value "$yaml" output_dir)${name#"$yaml"}
  step "$yaml" "$about" --output_dir "$place" --seed "$((run - 1))" ${model:+--model_name_or_path "$model"} "$@"
  model=$place
  step judge "$name judges the test split" --judge "$model" --judge_name "$name"
  series+=("$name")
}

for ((run = 1; run <= runs; run++)); do
  again=$([ "$run" = 1 ] || echo "-run$run") model= trained_on=$data series=()
  for stage in "${stages[@]}"; do
    here=()
    [ "$stage" = no_curriculum ] || here=(--dataset_name "$data")
    train "$stage" "training: $stage" ${here[@]+"${here[@]}"}
  done
  series=("${series[-1]}")
  for ((round = 1; round <= rounds; round++)); do # Algorithm 2
    yaml=introspect$round
    [ -f "$folder/$yaml.yaml" ] || { printf '\n== round %s: left out, there is no %s\n' "$round" "$folder/$yaml.yaml" && break; }
    judged=$(value "$yaml" verdicts)$suffix$again revised=$(value "$yaml" output)$suffix$again
    step judge "${series[-1]} judges its training cases" \
      --judge "$model" --judge_name "${series[-1]}" --cases "$(value "$yaml" cases)" \
      --dataset "$trained_on" --output "$judged"
    step "$yaml" "its mistakes are discussed and revised" --dataset "$trained_on" --verdicts "$judged" --output "$revised"
    trained_on=$revised
    train "introspection$round" "training: round $round" --dataset_name "$revised"
  done
  [ "$run" != 1 ] || first=${series[*]} audited=$model # the report shows the rounds of one run
done

# --- meta-evaluation (sections 4.3, 4.4, Appendix F)
if [[ $first == *" "* ]]; then
  step report "the report" --rounds "${first// /,}"
else
  step report "the report"
fi

# --- calibration, comparison of the candidates with few ratings, and audit of the last round's judge
step judge_likelihood_rated "the likelihood judge reads rated cases"
step calibrate "and is put on the raters' scale by them"
step compare "the candidates, by many verdicts and few ratings"
step audit "the audit of ${first##* }" --judge "$audited" --judge_name "${first##* }" --output "$(value audit output)$suffix"
