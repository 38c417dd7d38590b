"""The GPU example of the README passes `rlinf check` with a small model on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlinf.cli import main
from rlinf.models.tokenizer import train_tokenizer

README = Path(__file__).parents[2] / "README.md"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
ARCHITECTURE = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def test_the_gpu_example_checks_with_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```yaml\n(# gsm8k.yaml\n.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "gsm8k.yaml").write_text(example[1])
    rows = [{"question": f"What is {number} + 1?", "answer": f"Add them.\n#### {number + 1}"} for number in range(8)]
    for name in ("gsm8k_train.jsonl", "gsm8k_test.jsonl"):
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tokenizer = train_tokenizer((row["question"] for row in rows), vocab_size=280)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained("model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({**ARCHITECTURE, "vocab_size": len(tokenizer)}))
    assert main(["check", "gsm8k.yaml", "policy.path=model", "rollout.sampler=hf"]) == 0
    output = capsys.readouterr().out
    assert "[user] What is 0 + 1?\n    | Put the final answer in \\boxed{}." in output
    assert "responses need" not in output
