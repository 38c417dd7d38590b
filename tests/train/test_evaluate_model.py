"""`rlinf eval` on data of one's choice, its rates and intervals, and how two evaluations are compared."""

import json
import math
from itertools import combinations
from pathlib import Path

import pytest
from tiny_runs import config

from rlinf.base.errors import UserError
from rlinf.commands.compare import main as compare_command
from rlinf.commands.evaluate import main as evaluate
from rlinf.train import run
from rlinf.train.evaluation.chosen_data import SUITES, Choice, evaluation_config
from rlinf.train.evaluation.outcomes import TaskOutcome, rate_metrics, rates, vote
from rlinf.train.evaluation.paired import compare
from rlinf.train.evaluation.saved import read_evaluation

LOCAL = ["cluster.backend=local", "logging.progress=none", "rollout.max_new_tokens=4"]
LAYOUTS = {
    "gsm8k": {"question": "Tom has 3 pens and buys 4. How many?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    "math500": {
        "problem": "What is $3+4$?",
        "solution": "It is $\\boxed{7}$.",
        "answer": "7",
        "subject": "Prealgebra",
        "level": 1,
        "unique_id": "test/1.json",
    },
    "aime": {"ID": "2024-I-1", "Problem": "Find $3+4$.", "Solution": "We get $\\boxed{007}$.", "Answer": "007"},
}


def outcome(task: str, *answers: str) -> TaskOutcome:
    """Answers that begin with + are correct; - stands for none."""
    verdicts = ["correct" if one[0] == "+" else "unparsable" if one == "-" else "wrong" for one in answers]
    return TaskOutcome(task, tuple(verdicts), tuple(None if one == "-" else one.lstrip("+") for one in answers))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    run(config(folder, run={"max_steps": 1}, evaluation={"size": 4}), report=False)
    return folder


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n} + 3 =", "answer": str(n + 3)}) + "\n" for n in range(6)))
    return path


def test_majority_votes_by_hand() -> None:
    assert outcome("", "+7", "+ 7.0", "8").majority == 1.0  # correct answers are one answer
    assert outcome("", "+7", "8", "8").majority == 0.0
    assert outcome("", "+7", "8").majority == 0.5
    assert outcome("", "1,000", "$1000", "+7").majority == 0.0  # two equal wrong ones
    assert outcome("", "-", "-", "+7").majority == 1.0  # no answer is no vote
    assert outcome("", "-", "-").majority == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12", "12.0"),
        ("12", "$12$."),
        ("12", "x = 12"),
        ("12", "12 apples"),
        ("12", "**12**"),
        ("1,200", "1200"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "1/2"),
        ("\\text{B}", "(B)"),
        ("B", "b."),
        ("−3", "-3"),
        ("Yes.", "yes"),
    ],
)
def test_equal_wrong_answers_are_one_vote_however_they_are_written(one: str, other: str) -> None:
    assert vote(one) == vote(other)
    assert outcome("", one, other, "+7").majority == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12", "-12"),
        ("12", "12 or 13"),
        ("12", "12 thousand"),
        ("12", "12%"),
        ("(1,2)", "12"),
        ("1,2", "12"),
        ("1/0", "1"),
        ("2x", "2"),
        ("A", "B"),
        ("x = 3", "y = 4"),
    ],
)
def test_other_wrong_answers_are_votes_of_their_own(one: str, other: str) -> None:
    assert vote(one) != vote(other)


def test_differences_without_variance_leave_room_for_tasks_that_were_not_seen() -> None:
    for count, low in ((1, -0.95), (3, -0.4152), (10, 0.3830)):
        wrong = [outcome(f"task {number}", "8") for number in range(count)]
        right = [outcome(f"task {number}", "+7") for number in range(count)]
        (gain,) = compare(wrong, right)
        assert (gain.difference, gain.high) == (1.0, 1.0)
        assert gain.low == pytest.approx(low, abs=1e-4)
        assert compare(right, wrong)[0].high == pytest.approx(-low, abs=1e-4)
        (equal,) = compare(right, right)
        assert equal.p_value == 1.0
        assert equal.high == -equal.low == pytest.approx(1 - 0.025 ** (1 / count))


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    one = outcome("", "+1", "+1", "2", "3", "-")
    found = rates([one])
    right = [verdict == "correct" for verdict in one.verdicts]
    for k in (2, 4, 5):
        subsets = [any(chosen) for chosen in combinations(right, k)]
        assert math.isclose(found[f"pass@{k}"][0], sum(subsets) / len(subsets))
    assert found["avg@5"] == found["accuracy"] == [0.4]
    metrics = rate_metrics([one, outcome("x", "+1", "2", "3", "4", "5")])
    assert metrics["eval/maj@5/ci_low"] < metrics["eval/maj@5"] == 0.6 < metrics["eval/maj@5/ci_high"]


def test_the_paired_test_sees_what_intervals_of_their_own_do_not() -> None:
    """60 of 100 against 70 of 100 overlap by their own intervals; task by task nothing was lost."""
    first = [outcome(str(n), "+1" if n < 60 else "2") for n in range(100)]
    second = [outcome(str(n), "+1" if n < 70 else "2") for n in range(100)]
    (better,) = compare(first, second)
    assert math.isclose(better.difference, 0.1)
    assert 0 < better.low < 0.1 < better.high < 0.2
    assert 0.0005 < better.p_value < 0.006  # the exact sign test: 2 / 2**10
    (same,) = compare(first, first)
    assert (same.difference, same.p_value) == (0.0, 1.0)
    with pytest.raises(UserError, match="no task in common"):
        compare(first, [outcome("elsewhere", "+1")])


def test_the_same_numbers_under_another_name_are_not_compared_again() -> None:
    """Random draws are named after the metric: `avg@4`, which is the accuracy, had another p-value."""
    first = [outcome(str(n), "+1", "2", "3", "4") for n in range(20)]
    second = [outcome(str(n), "+1", "+1" if n % 3 else "2", "3", "4") for n in range(20)]
    assert [found.metric for found in compare(first, second)] == ["accuracy", "pass@2", "pass@4", "maj@4"]


@pytest.mark.parametrize("suite", sorted(SUITES))
def test_suites_read_the_published_layouts(suite: str, tmp_path: Path) -> None:
    from rlinf.rollouts.text.envs.make_env import ConversationLimits, make_text_env

    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(LAYOUTS[suite]) + "\n")
    # A folder as it is published has the split for training too.
    (tmp_path / "train.jsonl").write_text(json.dumps({"question": "other", "answer": "#### 1"}) + "\n")
    for data in (path, tmp_path):
        made = evaluation_config("some/model", Choice(data=str(data), suite=suite), LOCAL)
        env = make_text_env(made.env.id, made.env.kwargs, num_envs=1, conversations=ConversationLimits())
        assert env.num_tasks == 1
        assert env.prompt(0).endswith("\nPlease reason step by step, and put your final answer within \\boxed{}.")
        assert env.answer(0).lstrip("0") == "7"
        env.reset(options={"task_ids": [0]})
        assert env.step(("So it is \\boxed{7}.",))[4]["verdict"].tolist() == ["correct"]
        env.close()


def test_a_question_of_several_rows_is_one_task_and_each_of_their_answers_is_right(tmp_path: Path) -> None:
    from rlinf.rollouts.text.envs.make_env import ConversationLimits, make_text_env

    path = tmp_path / "aime.jsonl"
    rows = [{"Problem": "Find a root of $x^2 = 9$.", "Answer": answer} for answer in ("3", "-3", "3", "3")]
    rows.append({"Problem": "Find $3+4$.", "Answer": "007"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = evaluation_config("some/model", Choice(data=str(path), suite="aime"), LOCAL)
    env = make_text_env(made.env.id, made.env.kwargs, num_envs=3, conversations=ConversationLimits())
    assert env.num_tasks == 2
    env.reset(options={"task_ids": [0, 0, 0]})
    verdicts = env.step(("\\boxed{3}", "\\boxed{-3}", "\\boxed{9}"))[4]["verdict"].tolist()
    assert verdicts == ["correct", "correct", "wrong"]
    env.close()


def test_a_suite_reports_where_its_file_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--data, or put it at data/gsm8k"):
        evaluation_config("some/model", Choice(suite="gsm8k"), LOCAL)
    with pytest.raises(UserError, match="Did you mean gsm8k"):
        evaluation_config("some/model", Choice(suite="gsm8"), LOCAL)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gsm8k.jsonl").write_text(json.dumps(LAYOUTS["gsm8k"]) + "\n")
    found = evaluation_config("some/model", Choice(suite="gsm8k", samples=4), LOCAL, room=100)
    assert (found.evaluation.samples, found.evaluation.temperature) == (4, 0.6)
    assert (found.data.max_prompt_length, found.rollout.max_new_tokens) == (50, 4)


def test_the_runs_sampling_is_kept(sums: Path, tmp_path: Path) -> None:
    rollout = {"top_k": 7, "top_p": 0.9, "repetition_penalty": 1.2, "stop": ["\n"]}
    before = config(tmp_path, rollout=rollout, policy={"logits_dtype": "float32"})
    found = evaluation_config("some/model", Choice(data=str(sums)), LOCAL[:2], trained=before)
    assert {name: getattr(found.rollout, name) for name in rollout} == rollout
    assert found.policy.logits_dtype == "float32"


def test_a_run_and_its_export_are_evaluated_alike_and_compared(
    trained: Path, sums: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in (trained, trained / "policy"):
        out = [] if model == trained else ["--out", str(tmp_path / "bare")]
        assert evaluate([str(model), "--data", str(sums), "--samples", "3", "--temperature", "1", *out, *LOCAL]) == 0
    ours = read_evaluation(trained / "evaluations" / "step_000001_sums.json")
    bare = read_evaluation(tmp_path / "bare")
    assert ours.outcomes[0].answers == bare.outcomes[0].answers or ours.content["settings"] != bare.content["settings"]
    assert len(ours.outcomes) == 6
    assert {"eval/avg@3", "eval/pass@2", "eval/pass@3", "eval/maj@3"} <= ours.content["metrics"].keys()
    capsys.readouterr()
    assert evaluate([str(trained), "--data", str(sums), "--step", "0", *LOCAL]) == 0
    assert "step 0 of" in capsys.readouterr().out
    older = trained / "evaluations" / "step_000000_sums.json"
    assert compare_command([str(older), str(trained / "evaluations" / "step_000001_sums.json")]) == 0
    printed = capsys.readouterr().out
    assert "evaluation.samples: 1 -> 3" in printed
    assert "6 tasks that both have\naccuracy: " in printed


def test_a_report_shows_evaluations_and_their_differences(trained: Path, sums: Path, tmp_path: Path) -> None:
    from rlinf.report.payload import runs_payload
    from rlinf.report.runs import read_run

    folder = tmp_path / "bare"
    for seed in (1, 2):
        arguments = ["--data", str(sums), "--out", str(folder), *LOCAL, f"evaluation.seed={seed}"]
        evaluate([str(trained / "policy"), *arguments])
    (folder / "evaluations" / "broken.json").write_text("{")
    payload = runs_payload([read_run(folder)])
    (page,) = payload["runs"]
    assert [row["file"] for row in page["evaluations"]] == ["step_000000_sums.json", "step_000000_sums_2.json"]
    assert page["evaluations"][0]["tasks"] == 6
    assert [row["difference"] for row in payload["comparisons"]] == [0.0]
    assert any("broken.json is damaged" in note for note in page["notes"])


def test_what_can_not_be_evaluated_is_refused_in_words(trained: Path, sums: Path) -> None:
    with pytest.raises(UserError, match="name some with --data or --suite"):
        evaluate([str(trained / "policy")])
    with pytest.raises(UserError, match="there is no such file"):
        evaluate([str(trained / "policy"), "--data", "nowhere.jsonl"])
    with pytest.raises(UserError, match="--step 3 is for a run directory"):
        evaluate([str(trained / "policy"), "--data", str(sums), "--step", "3"])
    with pytest.raises(UserError, match="there are those of 0, 1"):
        evaluate([str(trained), "--data", str(sums), "--step", "3"])


def test_responses_on_other_data_are_written_next_to_the_evaluation(
    trained: Path, sums: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.jsonl"
    assert evaluate([str(trained), "--data", str(sums), "--responses", str(file), *LOCAL]) == 0
    assert f"6 responses to 6 tasks are in {file}" in capsys.readouterr().out
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["answer"] for row in rows] == [str(n + 3) for n in range(6)]
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)
