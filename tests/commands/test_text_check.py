"""`rlinf check` makes what a text run makes before its first step, and stops where `rlinf train` would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlinf.base.errors import UserError
from rlinf.cli import WRONG_CONFIG, main
from rlinf.commands import policy_check
from rlinf.config import load
from rlinf.models.tokenizer import train_tokenizer
from rlinf.samplers import vllm_cache
from rlinf.train.run_dir import RunDirectory

ARCHITECTURE = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[me]{% endif %}"
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on a dataset of sums, with a reward function next to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(20)]
    (tmp_path / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "broken.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n{"question": \n')
    (tmp_path / "check_rewards.py").write_text("number = 3\n")
    sections: dict[str, Any] = {
        "run": {"max_steps": 1, "dir": str(tmp_path / "run")},
        "env": {"id": "rlinf_envs:rlinf/Math-v0", "kwargs": {"path": "sums.jsonl"}},
        "policy": {"architecture": ARCHITECTURE, "tokenizer": {"vocab_size": 300}},
        "rollout": {"batch_size": 2, "max_new_tokens": 4, "sampler": "hf"},
        "algorithm": {"group_size": 2},
        "evaluation": {"size": 2},
        "cluster": {"backend": "local"},
        "logging": {"progress": "none", "tensorboard": False},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def saved_model(folder: Path, template: str = TEMPLATE, **config: Any) -> str:
    """A folder with a tokenizer that has a chat template, and a model of random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = train_tokenizer(["What is 1 + 1? [user] [me]"], vocab_size=300)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(str(folder))
    architecture = AutoConfig.for_model(**{**ARCHITECTURE, "vocab_size": len(tokenizer), **config})
    AutoModelForCausalLM.from_config(architecture).save_pretrained(str(folder))
    return str(folder)


def checked(capsys: pytest.CaptureFixture[str], recipe: Path, *overrides: str) -> tuple[int, str]:
    code = main(["check", str(recipe), *overrides])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


WRONG = [
    (["env.id=rlinf_envs:rlinf/Mth-v0"], "Did you mean rlinf_envs:rlinf/Math-v0"),
    (["env.id=CartPole-v1", "env.kwargs=null"], "is no text environment"),
    (
        ["env.kwargs.promt_template=x"],
        "env.kwargs.promt_template: rlinf_envs:rlinf/Math-v0 has no argument promt_template. Did",
    ),
    (["env.kwargs.answer_format=bxed"], "'bxed'; did you mean 'boxed'?"),
    (["env.kwargs.question_field=frage"], "sums.jsonl:1: no question field ('frage')"),
    (["env.kwargs.path=broken.jsonl"], "broken.jsonl:2: no valid JSON"),
    (
        ["env.kwargs.reward={corectness: 1}"],
        "unknown reward term 'corectness'; did you mean 'correctness', 'code_tests', 'choice'?",
    ),
    (["env.kwargs.reward={custom: {'nomodule:f': 1}}"], "cannot import 'nomodule'"),
    (["env.kwargs.reward={custom: {'check_rewards:nof': 1}}"], "'check_rewards' has no function 'nof'"),
    (["evaluation.env_kwargs={splt: eval}"], "has no argument splt. Did you mean split?"),
    (["env.id=rlinf_envs:rlinf/MathToolLoop-v0"], "set env.max_turns: 8"),
    (["data.max_prompt_length=2"], "data.max_prompt_length 2"),
    (["data.chat_template=always"], "the tokenizer has no chat template"),
    (["policy.architecture.vocab_size=50"], "tokens, and policy.architecture embeds 50"),
    (["env.kwargs.reward=correctness"], "reward must be a mapping or null, not 'correctness'"),
    (["env.kwargs.path=null"], "path must be text, not null (# begins a comment"),
    (["policy.architecture.model_type=qwen7"], "has no 'qwen7'; did you mean qwen"),
    (["policy.architecture.num_key_value_heads=3"], "num_attention_heads 2 is no multiple of num_key_value_heads 3"),
]


@pytest.mark.parametrize("share", ["20", "-1", "1.5"])
def test_a_share_for_evaluation_is_a_share(recipe: Path, capsys: pytest.CaptureFixture[str], share: str) -> None:
    code, output = checked(capsys, recipe, f"env.kwargs.eval_fraction={share}")
    assert code == WRONG_CONFIG
    assert f"eval_fraction must lie between 0 and 1, got {share}" in output
    assert ("for 20 % write 0.2" in output) == (share == "20")


def test_different_questions_and_tasks_for_evaluation_are_counted(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"{number % 4} + 1 = ?", "answer": str(number % 4 + 1)} for number in range(200)]
    (recipe.parent / "often.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, output = checked(capsys, recipe, "env.kwargs.path=often.jsonl", "evaluation.size=1000")
    assert "Tasks: 200 rows, 4 different questions" in output
    assert "evaluation.size is 1000, and there are 200 tasks for evaluation: those are evaluated." in output
    assert code == 0


def test_data_that_fill_the_memory_of_all_workers_are_named(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([1e9, 3.1e9])
    monkeypatch.setattr("rlinf.commands.text_check.resident_bytes", lambda: int(next(readings)))
    monkeypatch.setattr("rlinf.commands.text_check.memory_bytes", lambda: int(16e9))
    code, output = checked(capsys, recipe, "env.num_workers=8", "rollout.batch_size=8")
    assert "Memory of the data: 2.1 GB in each of 8 env workers, 16.8 GB together" in output
    assert "Set env.num_workers: 3, or env.kwargs.limit." in output
    assert code == 0


@pytest.mark.parametrize(("overrides", "words"), WRONG)
def test_what_training_would_stop_at_is_found(
    recipe: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], words: str
) -> None:
    code, output = checked(capsys, recipe, *overrides)
    assert words in output
    assert code == WRONG_CONFIG
    assert "Traceback" not in output
    assert not (recipe.parent / "run").exists()


@pytest.mark.parametrize(("overrides", "words"), [*WRONG[::5], *WRONG[-3:]])
def test_training_reports_it_in_one_paragraph(
    recipe: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], words: str
) -> None:
    assert main(["train", str(recipe), *overrides]) == WRONG_CONFIG
    output = capsys.readouterr().err
    assert words in output
    assert "Traceback" not in output


def test_a_held_out_set_of_one_task_is_enough(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recipe.parent / "held.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n')
    code, output = checked(capsys, recipe, "evaluation.env_kwargs={path: held.jsonl}")
    assert "outside" not in output
    assert code == 0


def test_a_task_that_can_not_be_demonstrated_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = "import gymnasium\nfrom rlinf_envs.math.env import MathEnv\n\n\nclass Env(MathEnv):\n"
    module += (
        "    def demonstrations(self, task_ids):\n        raise ValueError('task 3 has no reference answer')\n\n\n"
    )
    (recipe.parent / "silent_text.py").write_text(f"{module}gymnasium.register('silent-v0', vector_entry_point=Env)\n")
    assert checked(capsys, recipe, "env.id=silent_text:silent-v0")[0] == 0  # nothing is imitated
    code, output = checked(capsys, recipe, "env.id=silent_text:silent-v0", "sft.steps=2")
    assert code == WRONG_CONFIG
    assert "silent_text:silent-v0 gives no demonstrations (task 3 has no reference answer)" in output
    assert main(["train", str(recipe), "env.id=silent_text:silent-v0", "sft.steps=2"]) == WRONG_CONFIG
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_an_environment_shows_where_it_happened(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = "class Env:\n    def __init__(self, num_envs=1):\n        {}['lost']\n\n\nimport gymnasium\n"
    (recipe.parent / "faulty_text.py").write_text(f"{module}gymnasium.register('lost-v0', vector_entry_point=Env)\n")
    overrides = ["env.id=faulty_text:lost-v0", "env.kwargs=null"]
    code, output = checked(capsys, recipe, *overrides)
    assert code == WRONG_CONFIG
    assert "KeyError: 'lost'" in output
    assert "faulty_text.py:3" in output
    assert main(["train", str(recipe), *overrides]) == 1
    output = capsys.readouterr().err
    assert "faulty_text.py" in output
    assert "lost" in output
    assert "Traceback" not in output


def test_prompts_are_shown_as_the_policy_reads_them(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved_model(recipe.parent / "model")
    overrides = ["policy.architecture=null", f"policy.path={path}", "data.system_prompt=Be brief."]
    code, output = checked(capsys, recipe, *overrides, "data.instruction=never")
    assert code == 0
    shown = output.partition("Prompts (with the tokenizer's chat template)\n")[2].splitlines()
    assert shown[1:4] == ["    | [system] Be brief.", "    | [user] What is 0 + 1?", "    | [me]"]
    assert shown[5:7] == ["    | [system] Be brief.", "    | [user] What is 1 + 1?"]


def test_the_prompt_of_a_chat_model_requests_the_form_of_answers(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = ["policy.architecture=null", f"policy.path={saved_model(recipe.parent / 'model')}"]
    rewarded = "env.kwargs.reward={correctness: 1, format: 0.1}"
    code, output = checked(capsys, recipe, *chat, rewarded)
    assert code == 0
    assert "    | [user] What is 0 + 1?\n    | Put the final answer in \\boxed{}.\n    | [me]" in output
    assert "responses need" not in output
    output = checked(capsys, recipe, *chat, rewarded, "data.instruction=never")[1]
    assert "responses need \\boxed to earn their reward, and no prompt mentions it" in output
    tools = ["env.id=rlinf_envs:rlinf/MathToolLoop-v0", "env.max_turns=8", "data.instruction=always"]
    output = checked(capsys, recipe, *tools)[1]
    assert "in \\boxed{}. To calculate, write for example <calc>12 * 7</calc>" in output, "a model without template"
    assert "responses need" not in output


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved_model(recipe.parent / "model", vocab_size=40)
    code, output = checked(capsys, recipe, "policy.architecture=null", f"policy.path={path}")
    assert code == WRONG_CONFIG
    assert f"tokens, and {path} embeds 40 (vocab_size)" in output


def test_the_name_of_a_repository_may_be_downloaded_later_but_not_offline(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    overrides = ["policy.architecture=null", "policy.path=owner/no-such-model"]
    code, output = checked(capsys, recipe, *overrides)
    assert code == 0
    assert "owner/no-such-model is neither a folder nor in this machine's cache" in output
    assert "What is 0 + 1?" in output
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, output = checked(capsys, recipe, *overrides)
    assert code == WRONG_CONFIG
    assert "HF_HUB_OFFLINE forbids the download" in output


def test_a_rewarded_format_that_no_prompt_requests_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewarded = "env.kwargs.reward={correctness: 1, format: 0.1}"
    tools = ["env.id=rlinf_envs:rlinf/MathToolLoop-v0", "env.max_turns=8"]
    requested = 'env.kwargs.prompt_template="{question} Answer in \\\\boxed{}."'
    assert "responses need" not in checked(capsys, recipe)[1]
    assert "responses need \\boxed to earn" in checked(capsys, recipe, rewarded)[1]
    assert "responses need" not in checked(capsys, recipe, rewarded, requested)[1]
    assert "responses need <calc> to earn" in checked(capsys, recipe, *tools)[1]
    shown = checked(capsys, recipe, rewarded, "sft.steps=5", "sft.lr=0.001", "sft.warmup_steps=1")[1]
    assert "responses need" not in shown
    assert "| \\boxed{1}" in shown
    assert "5 steps of 64 demonstrated responses at learning rate 0.001" in shown


def test_adapters_must_find_their_layers(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = checked(capsys, recipe, "policy.lora.rank=2", "policy.lora.target_modules=[q_proj, vproj]")
    assert code == WRONG_CONFIG
    assert "the model has no vproj. Did you mean v_proj? Its layers are q_proj, k_proj" in output


def test_a_run_directory_that_training_would_refuse_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load(recipe)
    folder = RunDirectory.open(config)
    (folder.path / "metrics.jsonl").write_text('{"step": 0}\n')
    before = sorted(folder.path.iterdir())
    assert checked(capsys, recipe)[0] == 0
    code, output = checked(capsys, recipe, "learner.optimizer.lr=0.5")
    assert code == WRONG_CONFIG
    assert "holds a run with another configuration" in output
    code, output = checked(capsys, recipe, "run.resume=must")
    assert code == WRONG_CONFIG
    assert "holds no checkpoint, and run.resume is must" in output
    assert sorted(folder.path.iterdir()) == before


def test_adapters_of_all_linear_layers(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapted = ["policy.lora.rank=2", "policy.lora.target_modules=all-linear"]
    code, output = checked(capsys, recipe, *adapted, "cluster.backend=local")
    assert (code, " trained\n" in output) == (0, True)
    from rlinf.models.loading import adapter_targets, empty_causal_lm

    layers = adapter_targets(empty_causal_lm(None, {**ARCHITECTURE, "vocab_size": 300}), "all-linear")
    assert layers == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def test_tensors_that_a_checkpoint_lacks_are_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(saved_model(recipe.parent / "model", tie_word_embeddings=True))
    named = ["policy.architecture=null", f"policy.path={folder}"]
    assert checked(capsys, recipe, *named)[0] == 0
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    code, output = checked(capsys, recipe, *named)
    assert (code, "lacks lm_head.weight of its model's tensors" in output) == (WRONG_CONFIG, True)


@pytest.mark.parametrize(
    ("closing", "reported"), [("{% if add_generation_prompt %}[me]{% endif %}", False), ("", True)]
)
def test_a_template_that_does_not_open_the_answer_is_named(
    recipe: Path, capsys: pytest.CaptureFixture[str], closing: str, reported: bool
) -> None:
    turns = "{% for m in messages %}[{{ 'me' if m.role == 'assistant' else 'you' }}]{{ m.content }}\n{% endfor %}"
    path = saved_model(recipe.parent / "model", f"{turns}{closing}")
    code, output = checked(capsys, recipe, "policy.architecture=null", f"policy.path={path}")
    assert (code, "opens an answer with '[me]', and no prompt ends with that" in output) == (0, reported)


def test_a_run_directory_that_cannot_be_written_is_named(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked(capsys, recipe, "run.dir=sums.jsonl/a/b")[0] == WRONG_CONFIG
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != str(recipe.parent))
    code, output = checked(capsys, recipe, f"run.dir={recipe.parent}/runs/{{name}}")
    assert code == WRONG_CONFIG
    assert f"run.dir: {recipe.parent} cannot be written (Permission denied): choose another run.dir" in output


def test_the_file_alone_opens_nothing(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--no-build", str(recipe), "env.kwargs.path=broken.jsonl"]) == 0
    assert "Prompts" not in capsys.readouterr().out


def test_a_dataset_whose_responses_cannot_be_graded_is_for_supervised_training_alone(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"prompt": "Greet me", "response": "Hello there, friend!"}
    (recipe.parent / "pairs.jsonl").write_text(f"{json.dumps(row)}\n" * 4)
    pairs = ["env.kwargs={path: pairs.jsonl, response_field: response}", "sft.steps=2"]
    for more in (pairs, [*pairs, "evaluation.size=0", "sft.steps=0"]):
        code, output = checked(capsys, recipe, *more)
        assert code == WRONG_CONFIG
        assert "there is no answer to grade responses to 'Greet me' by" in output
    code, output = checked(capsys, recipe, *pairs, "evaluation.size=0")
    assert code == 0, output
    assert "`rlinf train` would stop after the warm start; `rlinf sft` does that alone." in output


def test_heads_must_suit_a_cpu_only_if_no_gpus_are_requested(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration for a cluster of GPUs is checked on a laptop."""

    def refuse(_config: object) -> None:
        raise UserError("heads of 8 numbers")

    monkeypatch.setattr(policy_check, "find_spec", lambda _name: True)
    monkeypatch.setattr(vllm_cache, "require_head_size", refuse)
    tokenizer = train_tokenizer(["What is 1 + 1?"], vocab_size=300)
    given = ["rollout.sampler=vllm", "cluster.backend=ray"]
    with pytest.raises(UserError, match="heads of 8"):
        policy_check.require_architecture(load(recipe, given), tokenizer)
    policy_check.require_architecture(load(recipe, [*given, "cluster.gpus_per_sampler=1"]), tokenizer)


def test_prompts_of_training_and_of_evaluation_are_measured(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": "What is " + "1 + " * 200 + "1?", "answer": "201"}, {"question": "1 + 1?", "answer": "2"}]
    Path("long.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    more = ["data.max_prompt_length=100", "policy.architecture.max_position_embeddings=300"]
    held_out = "evaluation.env_kwargs={path: long.jsonl}"
    assert main(["check", str(recipe), *more, held_out]) == 0
    output = capsys.readouterr().out
    assert "1 of 2 evaluation prompts are longer than data.max_prompt_length 100 (up to " in output
    assert "count as wrong then: the model sees at most 300 tokens" in output
    assert "training prompts" not in output
    assert main(["check", str(recipe), *more, "env.kwargs.path=long.jsonl", "evaluation.size=0"]) == 0
    output = capsys.readouterr().out
    assert "1 of 2 training prompts are longer than data.max_prompt_length 100" in output
    assert "evaluation prompts" not in output
    assert main(["check", str(recipe), "data.max_prompt_length=4", "evaluation.size=0"]) == WRONG_CONFIG
    assert "Training would have no prompt left: set data.max_prompt_length:" in capsys.readouterr().out


def test_marks_in_the_words_of_prompts_are_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved_model(recipe.parent / "model")
    rows = [{"question": f"{n} + 1?{'<eos>' if n == 3 else ''}", "answer": f"{n + 1}"} for n in range(8)]
    Path("marked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    more = ["policy.architecture=null", "policy.tokenizer.vocab_size=1024", f"policy.path={model}"]
    assert main(["check", str(recipe), *more, "env.kwargs.path=marked.jsonl"]) == 0
    assert "1 of 8 prompts have <eos> in their words, the first is task 3." in capsys.readouterr().out
    assert main(["check", str(recipe), *more, "data.system_prompt=Be brief.<eos>"]) == 0
    output = capsys.readouterr().out
    assert "the system prompt has <eos> in its words." in output
    assert "in their words" not in output


def test_a_second_chat_template_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(saved_model(recipe.parent / "model"))
    more = ["policy.architecture=null", "policy.tokenizer.vocab_size=1024", f"policy.path={model}"]
    (model / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    assert main(["check", str(recipe), *more]) == 0
    assert "another one in" not in capsys.readouterr().out
    (model / "chat_template.json").write_text(json.dumps({"chat_template": "other"}))
    assert main(["check", str(recipe), *more]) == 0
    words = f"{model} has a chat template in chat_template.jinja, which is read, and another one in chat_template.json."
    assert words in capsys.readouterr().out


def test_a_stop_text_that_no_response_shows_is_named(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(recipe), "rollout.stop=['<eos>', '<pad>', 'Q:']"]) == 0
    output = capsys.readouterr().out
    assert "rollout.stop: '<eos>' is a special token" in output
    assert "It ends responses anyway: take it out." in output
    assert "rollout.stop: '<pad>' is a special token" in output
    assert "It ends none: name a text that is written out." in output
    assert "'Q:'" not in output
