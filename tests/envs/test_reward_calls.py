"""Reward functions as they are written for TRL and verl: arguments, results, and what is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from rlinf_envs.custom_rewards import find_function
from rlinf_envs.errors import SettingError
from rlinf_envs.math.env import MathEnv
from rlinf_envs.reward_calls import Scored, call, doubt_about, misfit

CHAT = [{"role": "user", "content": "2 + 3?"}]
ROW = {"prompt": CHAT, "data_source": "sums", "reward_model": {"ground_truth": "5"}, "extra_info": {"index": 7}}


def test_columns_reach_a_function_of_trl_as_lists() -> None:
    seen: dict[str, Any] = {}

    def reward(prompts: list[str], completions: list[str], level: list[int], **rest: Any) -> list[float]:
        seen.update(prompts=prompts, completions=completions, level=level, rest=rest)
        return [0.25]

    assert misfit(reward, "reward") == ""
    assert call(reward, Scored("2 + 3?", "5", "5", {"level": 2, "topic": "sum"})) == 0.25
    rest = {"answer": ["5"], "topic": ["sum"]}
    assert seen == {"prompts": ["2 + 3?"], "completions": ["5"], "level": [2], "rest": rest}


def test_a_chat_gives_trl_completions_of_messages() -> None:
    def reward(prompts: Any, completions: Any, data_source: list[str]) -> list[float]:
        assert prompts == [CHAT]
        assert data_source == ["sums"]
        return [float(len(completion[0]["content"])) for completion in completions]

    assert call(reward, Scored("rendered", "five", "5", ROW)) == 4.0


@pytest.mark.parametrize(("values", "value"), [([None], 0.0), ((2,), 2)])
def test_what_trl_takes_is_taken(values: Any, value: float) -> None:
    assert call(lambda completions, **columns: values, Scored("p", "r", "a", {})) == value


@pytest.mark.parametrize("values", [[], [1.0, 2.0], 1.0, "1"])
def test_another_number_of_values_is_refused(values: Any) -> None:
    with pytest.raises(TypeError, match="must return a list of one number for one completion"):
        call(lambda completions, **columns: values, Scored("p", "r", "a", {}))


def test_a_missing_column_is_named_with_those_that_exist() -> None:
    with pytest.raises(KeyError, match="no column 'solution', which the function requires; it has answer, level"):
        call(lambda completions, solution: [0.0], Scored("p", "r", "a", {"level": 1}))


def test_what_only_the_trainer_has_is_refused_before_the_run() -> None:
    def reward(completions: list[str], trainer_state: object, completion_ids: object = None) -> list[float]:
        return [0.0]

    assert misfit(reward, "reward") == "requires trainer_state, which only the trainer of TRL has"
    assert "requires completion_ids" in misfit(lambda completion_ids, **columns: [0.0], "reward")


@pytest.mark.parametrize("truth", ["5", ["5", "five"]])
def test_verl_gets_the_ground_truth_of_the_row(truth: Any) -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> Any:
        assert (data_source, solution_str, ground_truth, extra_info) == ("sums", "5", truth, {"index": 7})
        return {"score": 0.75, "acc": True}

    assert misfit(compute_score, "compute_score") == ""
    row = {**ROW, "reward_model": {"ground_truth": truth}}
    assert call(compute_score, Scored("p", "5", "five", row)) == 0.75


def test_positional_only_parameters_are_taken_in_every_form() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: str, /, extra_info: Any = None) -> float:
        assert (data_source, solution_str, ground_truth, extra_info) == ("sums", "5", "5", {"index": 7})
        return 0.75

    def trl(prompts: Any, completions: Any, /, **columns: Any) -> list[float]:
        return [float(len(completions[0]))]

    def own(prompt: str, response: str, answer: str, row: Any, /) -> float:
        return float(response == answer)

    for function, value in ((compute_score, 0.75), (trl, 1.0), (own, 1.0)):
        assert misfit(function, "reward") == ""
        assert call(function, Scored("2 + 3?", "5", "5", ROW if function is compute_score else {})) == value


def test_a_positional_only_parameter_that_verl_does_not_have_is_named() -> None:
    def compute_score(solution_str: str, ground_truth: str, tokenizer: object, /) -> float:
        return 0.0

    assert "requires tokenizer" in misfit(compute_score, "compute_score")


def test_cells_of_a_table_that_hold_objects_as_text_reach_verl_as_objects() -> None:
    def compute_score(solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        return float(eval(solution_str) == ground_truth["target"] and extra_info["split"] == "train")

    row = {
        "reward_model": "{'ground_truth': {'target': 98, 'numbers': [44, 19, 35]}}",
        "extra_info": '{"split": "train"}',
    }
    assert call(compute_score, Scored("Make 98.", "44 + 19 + 35", "", row)) == 1.0


def test_a_function_of_verls_batch_manager_gets_lists_of_one() -> None:
    def compute_scores(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any) -> list[Any]:
        assert (data_sources, extra_infos) == (["sums"], [{"index": 7}])
        pairs = zip(solution_strs, ground_truths, strict=True)
        return [{"score": float(response == truth), "acc": 1} for response, truth in pairs]

    assert misfit(compute_scores, "compute_scores") == ""
    assert call(compute_scores, Scored("p", "5", "five", ROW)) == 1.0


def test_a_function_of_openrlhf_gets_prompt_and_response_in_one_text() -> None:
    def scores(queries: list[str], prompts: list[str], labels: list[str]) -> list[float]:
        triples = zip(queries, prompts, labels, strict=True)
        return [float(query.removeprefix(prompt) == label) for query, prompt, label in triples]

    def reward_func(queries: list[str], prompts: list[str], labels: list[str], **rest: Any) -> Any:
        found = torch.tensor(scores(queries, prompts, labels))
        return {"rewards": found, "scores": found, "extra_logs": {"accuracy": found.mean()}}

    for function in (scores, reward_func):
        assert misfit(function, "reward_func") == ""
        assert [call(function, Scored("2 + 3?", text, "5", {})) for text in ("5", "2 + 3?")] == [1.0, 0.0]


def test_a_query_has_the_mark_of_a_chat_template_that_its_function_searches_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "with_template.py").write_text(
        "import re\n"
        r"RESPONSE = re.compile(r'<\|im_start\|>assistant\n(.*)', re.DOTALL)" + "\n"
        "def reward_func(queries, prompts, labels):\n"
        "    found = [RESPONSE.search(query) for query in queries]\n"
        "    return [float(bool(one) and one[1] == label) for one, label in zip(found, labels)]\n"
    )
    reward = find_function("with_template:reward_func")
    for prompt in ("2 + 3?", "<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n"):
        assert [call(reward, Scored(prompt, response, "5", {})) for response in ("5", "6")] == [1.0, 0.0]


def test_functions_of_easyr1_get_a_mapping_or_a_list_of_one() -> None:
    def one(reward_input: dict[str, Any], format_weight: float = 0.25) -> dict[str, float]:
        accuracy = float(reward_input["response"].strip("<>") == reward_input["ground_truth"])
        return {"overall": (1 - format_weight) * accuracy, "accuracy": accuracy}

    def several(reward_inputs: list[dict[str, Any]]) -> list[dict[str, float]]:
        return [one(reward_input) for reward_input in reward_inputs]

    for function in (one, several):
        assert misfit(function, "compute_score") == ""
        assert call(function, Scored("2 + 3?", "<5>", "5", {})) == 0.75


def test_functions_of_areal_get_texts() -> None:
    def counted(
        prompt: str, completions: str, prompt_ids: Any, completion_ids: Any, answer: str, **columns: Any
    ) -> float:
        return float(completions.endswith(f"[{answer}]") and columns == {"level": 2})

    def announced(completions: str, answer: str) -> float:
        return float(completions.upper() == f"ANSWER: {answer}")

    row = {"answer": "3", "level": 2}
    for function, response in ((counted, "There are [3]"), (announced, "answer: 3")):
        assert misfit(function, "reward") == ""
        assert call(function, Scored("How many?", response, "3", row)) == 1.0


def test_what_makes_a_reward_function_is_named_as_that() -> None:
    class Format:
        def __call__(self, completions: list[str], **columns: Any) -> list[float]:
            return [float("<answer>" in completion) for completion in completions]

    def scaled(scale: float) -> Any:
        def reward(completions: list[str], **columns: Any) -> list[float]:
            return [scale * len(completion) for completion in completions]

        return reward

    for maker in (Format, scaled):
        assert "write `reward = maker(...)` in a module of your own" in misfit(maker, "maker")
    assert call(Format(), Scored("p", "<answer>5", "5", {})) == 1.0
    assert call(scaled(0.5), Scored("p", "four", "5", {})) == 2.0


@pytest.mark.parametrize(("row", "form"), [({}, "are texts"), ({"prompt": CHAT}, "are lists of one message")])
def test_a_completion_of_the_other_form_is_explained(row: dict[str, Any], form: str) -> None:
    def messages(completions: Any, **columns: Any) -> list[float]:
        return [float("5" in completion[0]["content"]) for completion in completions]

    def texts(completions: Any, **columns: Any) -> list[float]:
        return [float(completion.endswith("5")) for completion in completions]

    with pytest.raises((TypeError, AttributeError)) as caught:
        call(texts if row else messages, Scored("2 + 3?", "It is 5", "5", row))
    assert form in caught.value.__notes__[0]


def test_a_prompt_with_the_mark_that_a_function_searches_for_goes_with_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "whole_texts.py").write_text(
        '"""Rewards of an earlier version."""\n'
        "def answer(text):\n"
        "    return text.split('Assistant:', 1)[1] if 'Assistant:' in text else None\n"
        "def compute_score(solution_str, ground_truth):\n"
        "    return float(answer(solution_str) == ground_truth)\n"
    )
    (tmp_path / "responses.py").write_text(
        '"""Assistant:"""\ndef compute_score(solution_str, ground_truth):\n    return solution_str == ground_truth\n'
    )
    scored, bare = (Scored(prompt, "5", "5", {}) for prompt in ("User: 2 + 3?\nAssistant:", "2 + 3?"))
    whole, response = (find_function(f"{module}:compute_score") for module in ("whole_texts", "responses"))
    assert [call(function, scored) for function in (whole, response)] == [1.0, 1.0]
    assert "searches for 'Assistant:', which prompts do not have" in doubt_about(whole, bare)
    assert [doubt_about(*pair) for pair in ((whole, scored), (response, bare))] == ["", ""]


def test_a_column_that_is_not_the_final_answer_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_trl.py").write_text(
        "def correct(completions, answer, **rest):\n    return [float(a in c) for a, c in zip(answer, completions)]\n"
        "def short(completions, **columns):\n    return [float(len(c) < 9) for c in completions]\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "2 + 3?", "answer": "2 + 3 = 5\\n#### 5"}\n')
    notes = MathEnv(path=str(rows), reward={"custom": {"of_trl:correct": 1.0, "of_trl:short": 0.5}}).data_notes
    ((label, doubt),) = notes.items()
    assert label == "reward.custom:of_trl:correct"
    assert "is the row's column, '2 + 3 = 5\\n#### 5', and not the final answer '5'" in str(doubt)


def test_verl_without_its_columns_gets_the_answer() -> None:
    def compute_score(solution_str: str, ground_truth: str) -> float:
        return float(solution_str == ground_truth)

    assert call(compute_score, Scored("p", "5", "5", {})) == 1.0


def test_a_mapping_of_verl_without_a_score_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a mapping with 'score', got \{'acc': 1\}"):
        call(lambda solution_str, **rest: {"acc": 1}, Scored("p", "r", "a", {}))


def test_a_verl_function_that_requires_more_is_refused() -> None:
    def compute_score(solution_str: str, ground_truth: str, tokenizer: object) -> float:
        return 0.0

    assert "requires tokenizer" in misfit(compute_score, "compute_score")


def test_our_own_form_and_partial_functions() -> None:
    def reward(*, prompt: str, response: str, answer: str, row: Any, scale: float) -> float:
        return scale * len(response)

    assert call(functools.partial(reward, scale=2.0), Scored("p", "abc", "a", {})) == 6.0
    assert "Write def reward(*, prompt, response, answer, row)" in misfit(lambda text: 0.0, "reward")


def test_an_async_function_gives_what_it_returns_in_every_form() -> None:
    async def own(*, prompt: str, response: str, answer: str, row: Any) -> float:
        return float(len(response))

    async def trl(completions: list[str], **columns: Any) -> list[float]:
        return [float(len(completions[0]))]

    async def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
        return {"score": float(len(solution_str))}

    for function in (own, trl, compute_score, own):
        assert call(function, Scored("p", "abc", "a", {})) == 3.0


def test_a_module_that_python_already_has_or_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("def short(response, **rest):\n    return 1.0\n")
    with pytest.raises(SettingError, match=r"has the name of .*random.py: give yours another one"):
        find_function("random:short")
    with pytest.raises(SettingError, match="it names a file: write random:short"):
        find_function("./random.py:short")
    with pytest.raises(SettingError, match=r"No module named 'missing_module'\. The module must be on PYTHONPATH"):
        find_function("missing_module:short")
