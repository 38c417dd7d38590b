"""The GPU example of the README passes `rlinf check` with a small model on this machine, and trains a real one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from smollm2 import FOLDER, needs_model
from transformers import AutoConfig, AutoModelForCausalLM

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


ON_THIS_MACHINE = ("rollout.sampler=hf", "learner.num_workers=1", "env.num_workers=1", "cluster.backend=local")
SHORT = (
    "run.max_steps=1",
    "rollout.batch_size=2",
    "rollout.max_new_tokens=16",
    "algorithm.group_size=2",
    "algorithm.num_minibatches=1",
    "evaluation.size=2",
)


def example_in(folder: Path) -> list[dict[str, str]]:
    """Writes the README's file and the two data files that it names; their rows."""
    example = re.search(r"```yaml\n(# gsm8k.yaml\n.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    (folder / "gsm8k.yaml").write_text(example[1])
    rows = [{"question": f"What is {number} + 1?", "answer": f"Add them.\n#### {number + 1}"} for number in range(16)]
    # No question stands in both files: those of the evaluation are left out of training.
    for name, part in (("gsm8k_train.jsonl", rows[:8]), ("gsm8k_test.jsonl", rows[8:])):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in part))
    return rows


@pytest.mark.slow
@needs_model
def test_the_gpu_example_trains_the_real_model_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two overrides that the README names pass `check`; one short step with the same file ends in an export."""
    monkeypatch.chdir(tmp_path)
    example_in(tmp_path)
    assert main(["check", "gsm8k.yaml", f"policy.path={FOLDER}", "rollout.sampler=hf"]) == 0
    assert "What is 0 + 1?\n    | Put the final answer in \\boxed{}." in capsys.readouterr().out
    assert main(["train", "gsm8k.yaml", f"policy.path={FOLDER}", *ON_THIS_MACHINE, *SHORT]) == 0
    summary = json.loads((tmp_path / "runs" / "gsm8k" / "summary.json").read_text())
    assert summary["params_sha256"]
    assert (tmp_path / "runs" / "gsm8k" / "policy" / "chat_template.jinja").exists()


def test_the_gpu_example_checks_with_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = example_in(tmp_path)
    tokenizer = train_tokenizer((row["question"] for row in rows), vocab_size=280)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained("model")
    architecture = AutoConfig.for_model(**ARCHITECTURE, vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(architecture).save_pretrained("model")
    assert main(["check", "gsm8k.yaml", "policy.path=model", "rollout.sampler=hf"]) == 0
    output = capsys.readouterr().out
    assert "[user] What is 0 + 1?\n    | Put the final answer in \\boxed{}." in output
    assert "responses need" not in output
