# What the scripts of whole studies share; each sources this file. With --dry_run every command is printed, and nothing runs; with
# --unverified a study that has physicians verify the strong teacher's verdicts (section 3.1) goes on without them.
set -euo pipefail
export PYTHONUNBUFFERED=1
dry_run='' unverified='' number=0 absent=''
follows='' # of several hosts: one that takes part in the trainings of the first, and does nothing else
for word in "$@"; do
  case $word in
  --dry_run) dry_run=true ;;
  --unverified) unverified="--verdict_ratings none" ;;
  *)
    if [[ $word == -* || $0 != *variants.sh ]]; then # the name of a variant
      echo "error: $word: there are --dry_run and --unverified (docs/reproducing.md)" >&2
      exit 2
    fi
    ;;
  esac
done

# step ABOUT COMMAND...: run a step. The terminal shows a line for it; all that it prints is in its log.
step() {
  local about=$1 word before='' name=step made=''
  shift
  for word in "$@"; do # the log is called after the program, and the output if the command names one
    case $before in
    automedeval) name=$word ;;
    --output | --output_dir) made=-$(basename "$word") ;;
    esac
    [[ $word != recipes/*.py ]] || name=$(basename "$word" .py)
    before=$word
  done
  number=$((number + 1))
  [[ ! $follows || $name == sft ]] || return 0
  if [[ $dry_run ]]; then
    printf '\n== %d %s\n$' $number "$about"
    printf ' %q' "$@"
    echo
    return
  fi
  log=logs/$(basename "$RUN")/$(printf %02d $number)-$name$made$follows.log
  mkdir -p "$(dirname "$log")"
  printf '== %d %s' $number "$about"
  SECONDS=0
  if "$@" >"$log" 2>&1; then
    printf ' (%d s, %s)\n' $SECONDS "$log"
  elif grep -q 'no verdict is valid' "$log"; then # a judge of which nothing can be read is a result
    printf '\n   no verdict is valid: the tables show this judge so (%s)\n' "$log"
  else
    printf '\n%s has failed; the last lines of %s:\n' "$about" "$log" >&2
    tail -n 12 "$log" >&2
    exit 1
  fi
}

# bring PATH WHAT GET: say what is missing of the files that you bring; `all_there` stops where one is.
bring() {
  if [[ ! -e $1 ]]; then
    absent=true
    echo "missing: $1: $2. To get it: $3" >&2
  fi
}
# extras NAME...: say which of the package's extras lack something here.
extras() {
  local name
  for name in "$@"; do
    [[ $dry_run ]] || python -c "from automedeval.records.extras import missing_of; exit(bool(missing_of('$name')))" 2>/dev/null ||
      bring "pip install -e .[$name]" "libraries of a step" "see docs/reproducing.md"
  done
}
all_there() { [[ $dry_run || ! $absent ]] || exit 1; }

# due FILE WHAT COMMAND: stop with one line where people's answers are due. The program PEOPLE, if there is one, is asked first.
due() {
  if [[ $dry_run || $follows || -s $1 ]] || ${PEOPLE:-false} "$1"; then return; fi
  echo "$1 is due: $2. To get it: $3; then the same command goes on from here" >&2
  exit 1
}

# revised FOLDER STUDY REVISE...: write a round's data set; where cases wait for the jury, stop until it has decided.
revised() {
  local folder=$1 get="automedeval annotate --study $2 --export $1.discussion/decided"
  shift 2
  step "what the partners agreed on is revised" "$@"
  if waits; then
    due "$folder.discussion/decided/jury.jsonl" "a chief physician's decisions on the cases without a consensus (section 3.3)" "$get"
    step "what the jury decided is taken" "$@"
    if waits; then
      echo "$folder is due: more decisions of the chief physician. To get it: $get; then the same command goes on from here" >&2
      exit 1
    fi
  fi
}
# waits: whether the last step was the revision of a round, and stopped because cases wait for the jury.
waits() { [[ ! $dry_run && ! $follows ]] && grep -q 'then run the same command again' "$log"; }
