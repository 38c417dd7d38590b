#!/usr/bin/env bash
set -xeuo pipefail

DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
INFER_BACKEND=${INFER_BACKEND:-vllm}
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-8B}
train_batch_size=${TRAIN_BATCH_SIZE:-512}
max_response_length=$((1024 * 2))
rollout_tp=${ROLLOUT_TP:-}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-math_${INFER_BACKEND}_$(date +%Y%m%d)}

EXTRA=()
case "${DEVICE}" in
    gpu)
        rollout_tp=${rollout_tp:-2}
        ;;
    npu)
        rollout_tp=${rollout_tp:-4}
        train_batch_size=16
        EXTRA+=(actor_rollout_ref.actor.use_torch_compile=False)
        ;;
esac

if [ "${VERBOSE:-0}" = 1 ]; then
    EXTRA+=(trainer.log_val_generations=10)
fi

DATA=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    data.train_files="['$HOME/data/math/train.parquet']"
    data.val_files="['$HOME/data/math/test.parquet']"
    data.train_batch_size=${train_batch_size}
    data.max_prompt_length=1024
    data.max_response_length=${max_response_length}
    data.filter_overlong_prompts=True
)
ACTOR=(
    actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=128
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480
    actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.002
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.rollout.name=${INFER_BACKEND}
    actor_rollout_ref.rollout.n=6
    actor_rollout_ref.rollout.tensor_model_parallel_size=${rollout_tp}
)
python3 -m verl.trainer.main_ppo \
    "${DATA[@]}" "${ACTOR[@]}" "${EXTRA[@]}" \
    trainer.logger='["console","wandb"]' \
    trainer.project_name=our_project \
    trainer.experiment_name=${EXPERIMENT_NAME} \
    trainer.n_gpus_per_node=4 \
    trainer.nnodes=2 \
    trainer.save_freq=-1 \
    trainer.total_epochs=3 \
    +trainer.made_up=1 "$@"
