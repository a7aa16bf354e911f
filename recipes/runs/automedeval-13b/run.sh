#!/usr/bin/env bash
# The paper's study, from public questions to its tables and figures. Every step goes on where it stopped, so the same command goes on
# after an interruption, and after the physicians' answers that it stops for. docs/reproducing.md has hours and costs of the steps.
#   bash recipes/runs/automedeval-13b/run.sh --dry_run
#   bash recipes/runs/automedeval-13b/run.sh
#   bash recipes/runs/automedeval-13b/run.sh --unverified    without the physicians of section 3.1; cards and counts say so
#   RUN=FOLDER bash recipes/runs/automedeval-13b/run.sh    takes the YAMLs of a copy of this folder
#   GPUS=4 ZERO3=accelerate_configs/zero3_offload.yaml bash recipes/runs/automedeval-13b/run.sh
cd "$(dirname "$0")/../../.."
RUN=${RUN:-recipes/runs/automedeval-13b}
. recipes/runs/steps.sh
. recipes/runs/automedeval-13b/machine.sh

base=models/MedLLaMA-13B # docs/reproducing.md has the lines for another one

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
step "public questions" automedeval prepare --config $RUN/prepare_cases.yaml
step "questions of the test set alone" automedeval prepare --config $RUN/prepare_medtext.yaml
step "two candidates answer the questions" $launch recipes/generate_responses.py --config $RUN/generate_responses.yaml
step "reference books into the knowledge store" python recipes/build_store.py --config $RUN/build_store.yaml
step "the strong teacher judges, with the knowledge completion chain" python recipes/distill.py --config $RUN/distill_strong.yaml
[[ $unverified ]] || due ratings/teachers/verdict_ratings.jsonl "two chief physicians' checks of the strong teacher's verdicts (section 3.1)" \
  "automedeval annotate --study $RUN/annotate_teacher.yaml --export ratings/teachers"
step "physicians' checks of the strong teacher's verdicts" python recipes/build_dataset.py --config $RUN/verify.yaml \
  --plan $RUN/plan_verified.yaml $unverified
step "the verified cases" automedeval prepare --config $RUN/prepare_verified.yaml
step "the weak teacher judges the same cases" python recipes/distill.py --config $RUN/distill_weak.yaml
step "quality, curriculum splits" python recipes/build_dataset.py --config $RUN/build_dataset.yaml \
  --plan $RUN/plan.yaml --training $RUN/stage1.yaml $unverified
step "the test set: the cases that the plan set apart, and the others" automedeval prepare --config $RUN/prepare_test.yaml
step "three of the four candidates answer each test case, in turn" \
  $launch recipes/generate_responses.py --config $RUN/generate_test.yaml

# --- the other judges of Table 2 on the test cases; a line that is removed is a judge less
thrice="--runs 3 --temperature 0.5" # Paper: "We run models three times and report the average results"; no temperature
judge() { step "$1 judges the test cases" $launch recipes/judge.py --config $RUN/judge.yaml --judge "$@"; }
ask() { step "${1#judge_} judges the test cases" automedeval judge --config $RUN/"$1".yaml $thrice; }
judge $base $thrice
step "the base model as a likelihood judge" $launch recipes/judge.py --config $RUN/judge_likelihood.yaml
ask judge_weak   # Paper: ChatGPT; teachers.yaml names the models. text-davinci-003 is missing: it is served no longer
ask judge_strong # Paper: GPT-4; its rationales are what BERTScore and BARTScore compare with
ask judge_gemini
judge models/Vicuna-7B $thrice --chat_template_path $templates/vicuna.jinja # Paper: gives no version, here 1.5
judge models/Vicuna-13B $thrice --chat_template_path $templates/vicuna.jinja
judge models/DeepSeek-R1-Distill-Llama-8B $thrice --chat_template_path none --score_decoding free --max_new_tokens 4096 # it thinks first
judge models/PandaLM-7B $thrice --chat_template_path $templates/as_is.jinja --rubric pandalm # pairs, by its own prompt

# --- the curriculum (section 3.2): each stage starts from the one before, and judges the test cases
for stage in stage1 stage2 stage3; do
  step "training: $stage" $train recipes/sft.py --config $RUN/$stage.yaml $rows
  judge checkpoints/wikidoc-$stage --judge_name $stage
done

# --- introspection (section 3.3, Algorithm 2): two rounds
for round in 1 2; do
  step "the judge judges its training cases" $launch recipes/judge.py --config $RUN/judge_training$round.yaml
  step "its mistakes are discussed" python recipes/introspect_discuss.py --config $RUN/discuss$round.yaml
  revised instructions/wikidoc-round$round $RUN/annotate_jury$round.yaml \
    python recipes/introspect_revise.py --config $RUN/revise$round.yaml --training $RUN/stage1.yaml
  step "training: round $round" $train recipes/sft.py --config $RUN/introspection$round.yaml $rows
  judge checkpoints/wikidoc-round$round --judge_name introspection$round
done

# --- the report, an audit, which the paper does not have, the tables (sections 4.3 to 4.5, Appendix F), and Figure 4
due ratings/test/ratings.jsonl "five doctors' ratings of the answers to the test questions (section 4.2)" \
  "automedeval annotate --study $RUN/annotate.yaml --export ratings/test"
step "the report" automedeval report --config $RUN/report.yaml --rounds stage3,introspection1,introspection2
step "the audit of the judge" $launch recipes/audit.py --config $RUN/audit.yaml
step "Table 2: every judge and the physicians" automedeval report --config $RUN/table2.yaml
step "Table 3 and Appendix F: the rounds of introspection" automedeval report --config $RUN/table3.yaml
step "Figure 4: the candidates, by the judge and by the physicians" automedeval report --config $RUN/figure4.yaml

# --- checks of data sets and judge for the Hub; nothing is sent
step "the data set is checked for the Hub" python recipes/publish.py --config $RUN/publish_dataset.yaml
# a round's data set names who of the jury decided, by the pseudonyms of annotate_jury1.yaml
step "the data set of round 1 is checked for the Hub" python recipes/publish.py --config $RUN/publish_dataset.yaml \
  --annotators_are_pseudonyms true \
  --folder instructions/wikidoc-round1 --repo ORG/automedeval-instructions-round1
step "the data set of round 2 is checked for the Hub" python recipes/publish.py --config $RUN/publish_dataset.yaml \
  --annotators_are_pseudonyms true \
  --folder instructions/wikidoc-round2 --repo ORG/automedeval-instructions-round2
step "the model is checked for the Hub" python recipes/publish.py --config $RUN/publish_model.yaml

# --- what takes ratings of its own; late, so that nothing waits for them
for file in verdict_ratings preferences; do
  due ratings/test/$file.jsonl "doctors' $file of the judges' verdicts on the test cases (Appendices D and E)" \
    "automedeval annotate --study $RUN/annotate.yaml --export ratings/test"
done
step "Figure 5: what physicians say of the verdicts" automedeval report --config $RUN/figure5.yaml
step "training cases to calibrate with" automedeval prepare --config $RUN/prepare_calibration.yaml
due ratings/calibration/ratings.jsonl "ratings of the answers to a hundred training questions; not the paper's" \
  "automedeval annotate --study $RUN/annotate_calibration.yaml --export ratings/calibration"
step "the likelihood judge reads rated cases" $launch recipes/judge.py --config $RUN/judge_likelihood_rated.yaml
step "it is put on the raters' scale by them" automedeval calibrate --config $RUN/calibrate.yaml

step "the paper's counts beside these" python recipes/counts.py --paper $RUN/counts.yaml
[[ $dry_run ]] || cat reports/counts.md
