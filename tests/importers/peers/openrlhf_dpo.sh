set -x

read -r -d '' commands <<EOF
openrlhf.cli.train_dpo \
   --pretrain models/base \
   --dataset data/pairs.jsonl \
   --chosen_key chosen \
   --rejected_key rejected \
   --train_batch_size 64 \
   --micro_train_batch_size 2 \
   --learning_rate 4e-7 \
   --lr_warmup_ratio 0 \
   --beta 0.2 \
   --nll_loss_coef 0.1 \
   --max_len 4096 \
   --max_epochs 2 \
   --zero_stage 3 \
   --bf16 \
   --flash_attn \
   --save_path runs/pairs
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --num_gpus 4 --module $commands
fi
