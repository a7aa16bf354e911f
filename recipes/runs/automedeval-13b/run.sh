#!/usr/bin/env bash
# The paper's study, from public questions to its tables and figures. Every step goes on where it stopped, so the same command goes on
# after an interruption, and after the physicians' answers that it stops for. docs/reproducing.md has hours and costs of the steps.
#   bash recipes/runs/automedeval-13b/run.sh --dry_run
#   bash recipes/runs/automedeval-13b/run.sh
#   bash recipes/runs/automedeval-13b/run.sh --unverified    without the physicians of section 3.1; cards and counts say so
#   RUN=FOLDER bash recipes/runs/automedeval-13b/run.sh    takes the YAMLs of a copy of this folder
#   GPUS=4 ZERO3=accelerate_configs/zero3_offload.yaml bash recipes/runs/automedeval-13b/run.sh
#   NUM_MACHINES=2 MACHINE_RANK=0 MAIN_PROCESS_IP=HOST bash recipes/runs/automedeval-13b/run.sh    two hosts of eight, see method.sh
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-13b}
. recipes/runs/steps.sh
. recipes/runs/automedeval-13b/method.sh

# --- what you bring, besides the data sets medalpaca/medical_meadow_wikidoc and BI55/MedText, which are read from the Hub
# each with a tokenizer.json, which every step can read
converted() { bring models/"$1"/tokenizer.json "$2, in safetensors" "python recipes/convert_checkpoint.py --input $3 --output models/$1"; }
fetched() { bring models/"$1"/tokenizer.json "$2" "hf download $3 --local-dir models/$1"; }
extras train data annotate metric
bring books/medical "the 14 books of medicine of Table 6, as PDF, Markdown or text" "buy them, and put the files into this folder"
bring books/evaluation "the 3 manuals on evaluation of Table 6" "get them from who issued them, and put the files into this folder"
converted "${base#models/}" "the base model (section 3.2)" chaoyi-wu/MedLLaMA_13B
converted ChatDoctor "a candidate (section 3.1)" "zl111/ChatDoctor/result --tokenizer huggyllama/llama-7b"
converted Baize-Healthcare "a candidate (section 3.1)" "huggyllama/llama-7b project-baize/baize-healthcare-lora-7B"
converted MedAlpaca "a candidate of the test set alone (section 4.1)" medalpaca/medalpaca-7b
converted MedLlama2 "a candidate of the test set alone (section 4.1)" llSourceCell/medllama2_7b
converted Vicuna-7B "a judge of Table 2" lmsys/vicuna-7b-v1.5
converted Vicuna-13B "a judge of Table 2" lmsys/vicuna-13b-v1.5
converted PandaLM-7B "a judge of Table 2" WeOpenML/PandaLM-7B-v1
fetched DeepSeek-R1-Distill-Llama-8B "a judge of Table 2" deepseek-ai/DeepSeek-R1-Distill-Llama-8B
fetched roberta-large "the encoder of BERTScore (section 4.3)" FacebookAI/roberta-large
fetched bart-large-cnn "the model of BARTScore (section 4.3)" facebook/bart-large-cnn
simcse=unsup-simcse-roberta-large # which makes a vector of a text's first token
bring models/$simcse/modules.json "the encoder of the quality classifier (Appendix B)" \
  "python recipes/convert_checkpoint.py --input princeton-nlp/$simcse --output models/$simcse; cp -r $RUN/simcse/. models/$simcse"
bring models/all-MiniLM-L6-v2 "the encoder of the books" "automedeval get-models --output models"
all_there
templates=src/automedeval/models/templates
step "the endpoints serve the teachers" python recipes/check_teachers.py --teachers $RUN/teachers.yaml

# --- the instruction data set (sections 3.1 and 3.2), and the test set (4.1)
# Paper: 10K pairs, of which 126 went by pattern matching ("rephras", Appendix A) and 9,874 stayed; repeats are counted, and stay
step "public questions" automedeval prepare --input medalpaca/medical_meadow_wikidoc --layout wikidoc --near_duplicates keep \
  --output cases/wikidoc
# Paper: "an additional 172 entries from MedText"; it does not say which
step "questions of the test set alone" automedeval prepare --input BI55/MedText --layout medtext --sample 172 --output cases/medtext
step "two candidates answer the questions" $launch recipes/generate_responses.py --config $RUN/generate.yaml
step "reference books into the knowledge store" python recipes/build_store.py --config $RUN/build_store.yaml
step "the strong teacher judges, with the knowledge completion chain" python recipes/distill.py --config $RUN/distill.yaml
[[ $unverified ]] || due ratings/teachers/verdict_ratings.jsonl "two chief physicians' checks of the strong teacher's verdicts (section 3.1)" \
  "automedeval annotate --study $RUN/annotate_teacher.yaml --export ratings/teachers"
step "physicians' checks of the strong teacher's verdicts" python recipes/build_dataset.py --config $RUN/build_dataset.yaml \
  --plan $RUN/plan_verified.yaml --verdicts verdicts/wikidoc-strong/verdicts.jsonl --output instructions/verified $unverified
chosen() { step "$1" automedeval prepare --layout cases --input "$2" --ids "$3" --output "$4" "${@:5}"; } # ABOUT CASES IDS OUTPUT
chosen "the verified cases" $wikidoc instructions/verified/verified.parquet cases/verified # Paper: 9,569
# Paper: "we draw instead on ChatGPT to generate 9,569 evaluations S on the same data"
step "the weak teacher judges the same cases" python recipes/distill.py --config $RUN/distill.yaml --teacher weak \
  --judge openai:teacher:weak --cases cases/verified/cases.jsonl --output verdicts/wikidoc-weak
step "quality, curriculum splits" python recipes/build_dataset.py --config $RUN/build_dataset.yaml \
  --plan $RUN/plan.yaml --training $RUN/sft.yaml --evaluation_cases cases/medtext/cases.jsonl $unverified
# the 958 cases that plan.yaml set apart, and the 172; training cases that repeat one of their questions are left out above
chosen "the test set: the cases that the plan set apart, and the others" $wikidoc,cases/medtext/cases.jsonl \
  $data/test.parquet,cases/medtext/cases.jsonl cases/test --near_duplicates keep
# The four groups of three take the cases in turn. Without --candidates_per_case all four answer every case (those that wikidoc has stay),
# and a judge is shown four groups of three, so that a score is the mean of three prompts.
# Paper: "pairs of medical models", and accuracy over three; gives no number of cases per question
# the seed is not that of generate.yaml: the answers are others
step "three of the four candidates answer each test case, in turn" $launch recipes/generate_responses.py --config $RUN/generate.yaml \
  --candidates models/ChatDoctor,models/Baize-Healthcare,models/MedAlpaca,models/MedLlama2 --candidates_per_case 3 \
  --cases cases/test/cases.jsonl --seed 1 --output responses/test

# --- the other judges of Table 2 on the test cases; a line that is removed is a judge less
likelihood() { # CASES OUTPUT: how likely does each response make the question? Not the paper's: a baseline that sees relevance only
  step "the base model as a likelihood judge of $1" $launch recipes/judge.py --config $RUN/judge.yaml --judge likelihood:$base \
    --chat_template_path none --cases "$1" --output "$2"
}
ask() { # an endpoint, without books; teachers.yaml names the models
  step "$1 judges the test cases" automedeval judge --config $RUN/judge.yaml --judge openai:teacher:"$1" --max_new_tokens 1024 $thrice
}
judge $base
likelihood responses/test/cases.jsonl verdicts/wikidoc
ask weak   # Paper: ChatGPT. text-davinci-003 is missing: it is served no longer
ask strong # Paper: GPT-4; its rationales are what BERTScore and BARTScore compare with
ask gemini # Paper: Gemini
judge models/Vicuna-7B --chat_template_path $templates/vicuna.jinja # Paper: gives no version, here 1.5
judge models/Vicuna-13B --chat_template_path $templates/vicuna.jinja
judge models/DeepSeek-R1-Distill-Llama-8B --chat_template_path none --score_decoding free --max_new_tokens 4096 # it thinks first
judge models/PandaLM-7B --chat_template_path $templates/as_is.jinja --rubric pandalm # pairs, by its own prompt

# --- the curriculum (section 3.2), and two rounds of introspection (3.3); every checkpoint judges the test cases
curriculum
rounds stage3 stage3

# --- the report, an audit, which the paper does not have, the tables (sections 4.3 to 4.5, Appendix F), and Figure 4
due ratings/test/ratings.jsonl "five doctors' ratings of the answers to the test questions (section 4.2)" \
  "automedeval annotate --study $RUN/annotate.yaml --export ratings/test"
report() { step "$1" automedeval report --config $RUN/report.yaml --output reports/"$2" "${@:3}"; } # ABOUT FOLDER ARGUMENTS...
by_round="--rounds stage3,introspection1,introspection2" # round 0 is the last stage of the curriculum
report "the report" wikidoc $by_round
step "the audit of the judge" $launch recipes/audit.py --config $RUN/audit.yaml
# Paper: "using evaluations generated by GPT-4 as the reference answer"; every other judge is tested against the one of two rounds
main="--main_judge introspection2"
report "Table 2: every judge and the physicians" table2 --teacher_verdicts teacher:strong $main
report "Table 3 and Appendix F: the rounds of introspection" table3 $by_round --encoder none $main
report "Figure 4: the candidates, by the judge and by the physicians" figure4 --encoder none $main

# --- checks of data sets and judge for the Hub; nothing is sent. --repo YOURS/NAME --dry_run false sends
checked() { # ABOUT KIND FOLDER REPO ARGUMENTS...
  step "$1 is checked for the Hub" python recipes/publish.py --kind "$2" --folder "$3" --repo ORG/"$4" --dry_run true "${@:5}"
}
checked "the data set" dataset $data automedeval-instructions
for round in 1 2; do # its data set names who of the jury decided, by the pseudonyms of annotate_jury.yaml
  checked "the data set of round $round" dataset $data-round$round automedeval-instructions-round$round --annotators_are_pseudonyms true
done
# the judge after its last round, whose card shows the study's own figures; license: LLaMA's, for which the Hub has no name
checked "the model" model checkpoints/wikidoc-round2 automedeval-13b --agreement reports/wikidoc/agreement.json \
  --audit reports/wikidoc-audit/audit.json --base_model chaoyi-wu/MedLLaMA_13B --license other:llama

# --- what takes ratings of its own; late, so that nothing waits for them
for file in verdict_ratings preferences; do
  due ratings/test/$file.jsonl "doctors' $file of the judges' verdicts on the test cases (Appendices D and E)" \
    "automedeval annotate --study $RUN/annotate.yaml --export ratings/test"
done
# Paper: (a) five doctors, after they rated the responses (Appendix D); (b) 87 cases, three master candidates, double-blind (Appendix E)
report "Figure 5: what physicians say of the verdicts" figure5 $main \
  --ratings ratings/test/ratings.jsonl,ratings/test/verdict_ratings.jsonl,ratings/test/preferences.jsonl
# not the paper's: a hundred training cases, so that the likelihood judge is put on the physicians' scale by no test case
chosen "training cases to calibrate with" $wikidoc $data/stage3.parquet cases/calibration --sample 100
due ratings/calibration/ratings.jsonl "ratings of the answers to a hundred training questions; not the paper's" \
  "automedeval annotate --study $RUN/annotate_calibration.yaml --export ratings/calibration"
likelihood cases/calibration/cases.jsonl verdicts/wikidoc-likelihood-rated
step "it is put on the raters' scale by them" automedeval calibrate --verdicts verdicts/wikidoc-likelihood-rated,verdicts/wikidoc \
  --judge likelihood:"${base#models/}" --ratings ratings/calibration/ratings.jsonl --rubric automedeval --output verdicts/wikidoc-calibrated

step "the paper's counts beside these" python recipes/counts.py --paper $RUN/counts.yaml
[[ $dry_run || $follows ]] || cat reports/counts.md
