"""Services that grade: a judge, and one of one's own over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grading_services import Service, completion, serving
from rlinf_envs.errors import SettingError
from rlinf_envs.rewards import RewardSum
from rlinf_envs.tasks import Judgement, Task

TASK = Task("What is {braces}?", "two", "d", row={"n": 1})


def scored(config: dict[str, Any], *responses: str) -> Any:
    judgements = [Judgement("wrong", 0.0, None)] * len(responses)
    return RewardSum(config).score(["question"] * len(responses), responses, [TASK] * len(responses), judgements)


def judge(service: Service, **options: Any) -> dict[str, Any]:
    return {"judge": {"weight": 2.0, "base_url": f"{service.url}/v1", "model": "m", "rubric": "Be kind.", **options}}


def test_a_judge_grades_by_its_rubric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_TOKEN", "secret-1")
    with serving(Service(lambda request: completion("Good, Score: 3. But late.\n**Score: 5**"))) as service:
        rewards = scored(judge(service, token_env="JUDGE_TOKEN"), "{response} {scale}")
    assert rewards.terms["judge"].tolist() == [0.5]
    assert rewards.total.tolist() == [1.0]
    (request,) = service.requests
    assert (request["model"], request["temperature"]) == ("m", 0.0)
    text = request["messages"][0]["content"]
    assert "Be kind." in text
    assert "<response>\n{response} {scale}\n</response>" in text
    assert "Reference answer:\ntwo" in text
    assert service.headers[0]["Authorization"] == "Bearer secret-1"


def test_the_same_response_is_graded_once(tmp_path: Path) -> None:
    with serving(Service(lambda request: completion("Score: 10"))) as service:
        for _ in range(2):
            assert scored(judge(service, cache=str(tmp_path)), "a", "b").total.tolist() == [2.0, 2.0]
    assert len(service.requests) == 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.filterwarnings("ignore:reward.judge")
def test_one_failure_in_five_masks_its_row_alone() -> None:
    faults = ["500", "nonsense", "hang"]

    def fault(number: int) -> str:
        return faults[number // 5 % 3] if number % 5 == 0 else ""

    with serving(Service(lambda request: completion("Score: 10"), fault)) as service:
        config = judge(service, retries=0, timeout_s=0.5, concurrency=1)
        rewards = scored(config, *map(str, range(15)))
    assert rewards.masked.tolist() == [number % 5 == 0 for number in range(15)]
    assert rewards.failed["judge"].tolist() == rewards.masked.tolist()
    assert rewards.total.tolist() == [0.0 if number % 5 == 0 else 2.0 for number in range(15)]


@pytest.mark.filterwarnings("ignore:reward.judge")
def test_a_failure_is_tried_again_and_may_be_worth_nothing() -> None:
    with serving(Service(lambda _: completion("Score: 10"), lambda number: "500" if number < 2 else "")) as service:
        assert scored(judge(service), "a").total.tolist() == [2.0]
        assert len(service.requests) == 3
    with serving(Service(lambda request: completion("no idea"))) as service:
        rewards = scored(judge(service, retries=0, on_failure=0), "a")
    assert (rewards.total.tolist(), rewards.masked.tolist()) == ([0.0], [False])
    assert rewards.failed["judge"].tolist() == [True]


def test_a_service_of_ones_own() -> None:
    with serving(Service(lambda request: {"reward": len(request["response"]) + request["row"]["n"]})) as service:
        config = {"http:length": {"weight": 1.0, "url": service.url}, "http": {"weight": 0.5, "url": service.url}}
        rewards = scored(config, "abc")
    assert rewards.terms["http:length"].tolist() == [4.0]
    assert rewards.total.tolist() == [6.0]
    assert {"prompt": "question", "response": "abc", "answer": "two", "row": {"n": 1}} in service.requests


def test_a_token_that_is_not_there_is_named() -> None:
    config = {"weight": 1.0, "base_url": "http://h/v1", "model": "m", "rubric": "r", "token_env": "NO_SUCH_TOKEN"}
    with pytest.raises(SettingError, match=r"reward\.judge\.token_env: the environment variable NO_SUCH_TOKEN"):
        RewardSum({"judge": config})
