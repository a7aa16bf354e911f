# The machine of the study: eight GPUs of 80 GB, or GPUS of them. An update has the paper's 128 rows on any number that divides 64.
GPUS=${GPUS:-8}
launch=${LAUNCH:-accelerate launch --num_processes $GPUS}
train=${TRAIN:-accelerate launch --config_file ${ZERO3:-accelerate_configs/zero3.yaml} --num_processes $GPUS}
rows=
[ "$GPUS" = 8 ] || rows="--gradient_accumulation_steps $((64 / GPUS))"
[ $((64 % GPUS)) = 0 ] || { echo "GPUS=$GPUS: must divide 64" >&2; exit 1; }
