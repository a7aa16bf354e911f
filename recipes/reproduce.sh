#!/usr/bin/env bash
# Run a whole study: bash recipes/reproduce.sh RUN_FOLDER; --help has the options. PYTHON names the interpreter.
exec "${PYTHON:-python}" "$(dirname "$0")/reproduce.py" "$@"
