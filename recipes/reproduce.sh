#!/usr/bin/env bash
# Run a whole study; recipes/reproduce.py describes it. PYTHON names the interpreter.
#   bash recipes/reproduce.sh recipes/runs/demo
#   bash recipes/reproduce.sh recipes/runs/automedeval-135m
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --runs 3
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --ablation no_curriculum
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --judges gpt-4-turbo-2024-04-09
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --base models/Qwen2.5-7B-Instruct
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --dry_run
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rounds 2 --rehearse
exec "${PYTHON:-python}" "$(dirname "$0")/reproduce.py" "$@"
