#!/usr/bin/env bash
# Run a whole study; recipes/reproduce.py describes it. PYTHON names the interpreter.
#   bash recipes/reproduce.sh recipes/runs/demo
#   bash recipes/reproduce.sh recipes/runs/automedeval-135m
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --runs 3
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --ablation no_curriculum
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --judges gpt-4-turbo-2024-04-09
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --base models/Qwen2.5-7B-Instruct
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --dry_run
#   bash recipes/reproduce.sh recipes/runs/automedeval-13b --rehearse
exec "${PYTHON:-python}" "$(dirname "$0")/reproduce.py" "$@"
