from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward

G = 8
dataset = load_dataset("trl-lib/DeepMath-103K", split="train")


def brief(completions, **kwargs):
    return [-len(text) / 1000 for text in completions]


training_args = GRPOConfig(
    output_dir="runs/qwen-grpo",
    learning_rate=2e-6,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=4,
    num_generations=G,
    max_completion_length=1024,
    num_iterations=2,
    beta=0.001,
    scale_rewards="batch",
    use_vllm=True,
    reward_weights=[1.0, 0.1],
    max_steps=1000,
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs=[accuracy_reward, brief],
    args=training_args,
    train_dataset=dataset,
    peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
)
trainer.train()
