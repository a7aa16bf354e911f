#!/usr/bin/env bash
# A study from top to bottom, each step one command; every step goes on from where it stopped.
#   bash recipes/reproduce.sh recipes/automedeval-135m
# Steps whose YAML a run's folder lacks are left out and said.
set -euo pipefail
[ $# -eq 1 ] && [ -d "$1" ] || { echo "usage: bash recipes/reproduce.sh RUN_FOLDER" >&2; exit 2; }
run=${1%/}
python=${PYTHON:-python}

step() {  # recipe, name of its YAML, what it does
  if [ -f "$run/$2.yaml" ]; then
    printf '\n== %s\n' "$3"
    "$python" "recipes/$1.py" --config "$run/$2.yaml"
  else
    printf '\n== %s: left out, %s has no %s.yaml\n' "$3" "$run" "$2"
  fi
}

# --- the instruction dataset (paper section 3.1)
step build_index build_index "reference books into the knowledge store"
step distill distill_strong "the strong teacher judges, with the knowledge completion chain"
step distill distill_weak "the weak teacher judges the same cases"
step build_dataset build_dataset "physicians' checks, quality, curriculum splits"

# --- judging and meta-evaluation (sections 4.3, 4.4)
step judge judge "the judge reads the test split"
step judge judge_likelihood "the same model as a likelihood judge"
step meta_evaluate report "the report"
