from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
trainer = SFTTrainer(
    "Qwen/Qwen2.5-0.5B",
    SFTConfig(
        output_dir="runs/talk",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        num_train_epochs=1,
        warmup_steps=0.1,
        max_length=512,
        packing=True,
        assistant_only_loss=True,
        weight_decay=0.01,
        eval_strategy="steps",
        eval_steps=50,
    ),
    train_dataset=rows,
    peft_config=LoraConfig(r=8, target_modules=["q_proj"]),
)
trainer.train()
