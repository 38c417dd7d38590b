set -x
export MODEL=${MODEL:-models/base}
ENGINE=(
   --vllm.num_engines 4
   --vllm.tensor_parallel_size 2
   --vllm.gpu_memory_utilization 0.6
   --vllm.enable_sleep
)

ray start --head --num-gpus 8
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 8 \
   "${ENGINE[@]}" \
   --train.colocate_all \
   --algo.advantage.estimator group_norm \
   --algo.kl.init_coef 2e-3 \
   --algo.kl.use_loss \
   --algo.kl.estimator k3 \
   --actor.eps_clip_low_high 0.2 0.28 \
   --actor.model_name_or_path ${MODEL} \
   --reward.remote_url rewards/numbers.py \
   --ckpt.output_dir runs/numbers \
   --ckpt.save_steps 25 \
   --train.micro_batch_size 2 \
   --train.batch_size 256 \
   --rollout.batch_size 64 \
   --rollout.n_samples_per_prompt 16 \
   --train.num_episodes 2 \
   --data.max_len 3072 \
   --rollout.max_new_tokens 2048 \
   --ds.zero_stage 3 \
   --actor.adam.lr 8e-7 \
   --data.prompt_dataset data/questions.jsonl \
   --data.input_key question \
   --data.label_key answer \
   --data.apply_chat_template \
   --data.made_up 3 \
   --actor.gradient_checkpointing_enable 2>&1 | tee runs/numbers.log
