#!/usr/bin/env bash
set -xeuo pipefail
nproc_per_node=4
backend=${BACKEND:-fsdp}
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-0.5B-Instruct}
FSDP_ENGINE="\
    engine=${backend} \
    optim=${backend} \
    optim.lr=2e-5 \
    optim.lr_warmup_steps_ratio=0.1 \
    optim.betas="[0.9,0.95]" \
    optim.min_lr_ratio=0.1 \
    optim.warmup_style=cosine \
    engine.ulysses_sequence_parallel_size=2"
MEGATRON_ENGINE="\
    engine=${backend} \
    optim.lr=1e-5 \
    optim.lr_decay_style=linear \
    engine.tensor_model_parallel_size=2"

if [ "$backend" = "fsdp" ]; then
    ENGINE="$FSDP_ENGINE"
else
    ENGINE="$MEGATRON_ENGINE"
fi

torchrun --standalone --nnodes=1 --nproc_per_node=${nproc_per_node} \
    -m verl.trainer.sft_trainer \
    data.train_files=$HOME/data/train.parquet \
    data.val_files=$HOME/data/test.parquet \
    data.train_batch_size=64 \
    data.max_length=4096 \
    data.truncation=right \
    data.messages_key=messages \
    data.prompt_key=extra_info \
    data.micro_batch_size_per_gpu=4 \
    model.path="${MODEL_PATH}" \
    model.use_remove_padding=true \
    ${ENGINE} \
    trainer.project_name=sums \
    trainer.experiment_name=sums-sft \
    trainer.logger='["console","wandb"]' \
    trainer.total_epochs=2 \
    trainer.test_freq=10 "$@"
