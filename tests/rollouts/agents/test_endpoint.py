"""Agents over HTTP: the tokens that they were given train, each once, whatever order they come in."""

from __future__ import annotations

import gc
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from letters import EOS, PAD, Letters
from tiny_models import tiny_qwen2

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.base.errors import UserError
from rlinf.cluster.local import LocalCluster
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.data.messages import SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.rollouts.agents.agent_env import AgentEnv
from rlinf.rollouts.agents.messages import BadRequest, answer_of, names_of
from rlinf.rollouts.agents.rollout import AgentRollout
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.conversations import conversation_envs
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.text_env_pool import TextEnvPool


@contextmanager
def rollout(agent: str, *, tasks: int = 2, **options: Any) -> Iterator[tuple[AgentRollout, TextEnvPool]]:
    limits = {name: options.pop(name) for name in ("step_timeout_s", "max_failures") if name in options}
    kwargs: dict[str, Any] = {"tasks": "agents_for_tests:tasks", "options": options}
    config = Config(
        env=EnvConfig(f"agent:agents_for_tests:{agent}", kwargs, max_turns=8, **limits),
        data=DataConfig(max_prompt_length=60, shuffle=False),
        rollout=RolloutConfig(batch_size=tasks, max_new_tokens=10, max_conversation_tokens=100),
        algorithm=AlgorithmConfig(group_size=2),
        cluster=ClusterConfig(backend="local"),
    )

    def sampler(_info: object) -> SamplerWorker:
        model = tiny_qwen2(vocabulary=128)
        return SamplerWorker(
            HFSampler(model, eos_token_ids=[EOS], pad_token_id=PAD, seed=3, generation_batch_size=8, max_model_len=160)
        )

    with LocalCluster(config.cluster) as cluster:
        envs = TextEnvPool(cluster.spawn("env", lambda _info: conversation_envs(config), n=1), config.env)
        member = TextMixtureEnv("", PromptRenderer(Letters()), 8, config.env.max_turns)
        it = AgentRollout(SamplerPool(cluster.spawn("sampler", sampler), cluster), envs, [member], config.collection)
        try:
            yield it, envs
        finally:
            it.endpoint.close()


def collected(agent: str, **options: Any) -> Batch:
    with rollout(agent, **options) as (it, _):
        return it.collect(0)[0]


def largest_gap(batch: Batch) -> float:
    """Between the learner's log-probabilities and the endpoint's, over all sampled tokens."""
    policy = CausalLMPolicy(tiny_qwen2(vocabulary=128), sampling=SamplingParams(max_new_tokens=10))
    with torch.no_grad():
        logprobs = policy.evaluate(batch.inputs, batch.actions, batch.mask).logprobs
    return float(torch.where(batch.mask, logprobs - batch.rollout_logprobs, 0.0).abs().max())


def test_turns_append_to_the_tokens_and_no_latency_changes_them() -> None:
    first = collected("talk")
    assert (first.num_rows, largest_gap(first) < 1e-4) == (4, True)
    turn_ids = first.turn_credit.turn_ids
    assert turn_ids is not None
    assert [sorted(set(row.tolist())) for row in turn_ids] == [[-1, 0, 1, 2]] * 4
    assert [turn["text"] for turn in first.metadata["turns"][0][1::2]] == ["\nand 0?\n", "\nand 1?\n"]
    again = collected("talk", latency=1, most_s=0.1)
    for name in ("actions", "mask", "rollout_logprobs", "rewards", "episode_ids", "turn_ids"):
        assert torch.equal(again.flat()[name], first.flat()[name]), name


def test_an_answer_that_its_client_did_not_wait_for_does_not_train() -> None:
    """The same request again has the draws of the first, as if the client had waited."""
    with rollout("impatient") as (it, _):
        batch, metrics = it.collect(0)
    assert (metrics["rollout/calls_per_episode"], metrics["rollout/branches_per_episode"]) == (1.0, 1.0)
    assert largest_gap(batch) < 1e-4
    patient = collected("talk", turns=1)
    assert torch.equal(batch.actions, patient.actions)


def test_a_streamed_answer_comes_in_several_events_and_its_tokens_are_kept() -> None:
    with rollout("streams") as (it, _):
        batch, metrics = it.collect(0)
    assert metrics["reward/mean"] == 1.0
    assert metrics["reward_terms/events"] >= 4, "role, at least one word, the end, the usage"
    assert metrics["rollout/branches_per_episode"] == 1.0, "the second call goes on from the streamed one"
    assert largest_gap(batch) < 1e-4


def test_forks_are_branches_of_one_episode_which_counts_once() -> None:
    with rollout("fork", tasks=3) as (it, _):
        batch, metrics = it.collect(0)
    assert (metrics["rollout/branches_per_episode"], metrics["rollout/calls_per_episode"]) == (3.0, 4.0)
    assert (batch.num_rows, largest_gap(batch) < 1e-4) == (18, True)
    episode_ids = batch.turn_credit.episode_ids
    assert episode_ids is not None
    # Every task gives its own number to both of its episodes; as one group they are compared as six rewards.
    whole = batch.replace(group_ids=torch.zeros_like(batch.group_ids), episode_ids=batch.group_ids * 2 + episode_ids)
    algorithm = AlgorithmConfig(adv_type="grpo", normalize_by_std=False)
    prepared, _ = prepare_batch(whole, algorithm, AlgorithmState.of(algorithm))
    assert prepared.advantages is not None
    numbers = batch.group_ids - 1.0
    expected = torch.where(batch.mask, (numbers / 3)[:, None], 0.0)
    torch.testing.assert_close(prepared.advantages, expected, atol=1e-5, rtol=0)
    assert metrics["reward/mean"] == 1.0


def test_an_agent_that_dies_hangs_or_sends_too_much_costs_its_episode() -> None:
    how = {"raise": 0, "hang": 1, "long": 2}
    with rollout("breaks", tasks=4, how=how, step_timeout_s=5.0) as (it, envs):
        batch, _ = it.collect(0)
    assert batch.mask.any(1).tolist() == [False] * 6 + [True] * 2
    reasons = ["env_error"] * 2 + ["env_timeout"] * 2 + ["env_error"] * 2
    assert batch.metadata["finish_reason"][:6] == reasons
    assert (envs.errors, envs.timeouts) == (4, 2)


def test_token_ids_go_both_ways() -> None:
    batch = collected("generate")
    assert (batch.num_rows, largest_gap(batch) < 1e-4) == (4, True)
    assert int(batch.mask.sum(1).max()) <= 10


def test_tokens_that_no_policy_has_are_a_bad_request() -> None:
    batch = collected("guesses")
    assert batch.rewards.sum(1).tolist() == [1.0] * 4


def test_the_endpoint_answers_clients_with_the_token() -> None:
    with rollout("talk") as (it, _):
        url = f"{it.endpoint.url}/models"

        def models(key: str) -> dict[str, Any]:
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                return dict(json.load(answer))

        assert models(it.gateway.token)["data"][0]["max_model_len"] == 160
        with pytest.raises(urllib.error.HTTPError, match="401"):
            models("guess")
        assert it.endpoint.url.startswith("http://127.0.0.1:")


def test_tool_calls_are_read_from_a_response() -> None:
    text = 'Let me see. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_call>{no}</tool_call>'
    message = answer_of(text, with_tools=True, name="x")
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert (message["content"], len(message["tool_calls"])) == ("Let me see.", 1)
    assert answer_of(text, with_tools=False, name="x") == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("env_id", "tasks", "words"),
    [
        ("agent:agents_for_tests:gone", "agents_for_tests:tasks", "gone cannot be imported"),
        (
            "agent:agents_for_tests:user_message",
            "agents_for_tests:tasks",
            "user_message has no parameter base_url, api_key and model, and",
        ),
        (
            "agent:agents_for_tests:Client",
            "agents_for_tests:tasks",
            "Client is a class, and what is called with a task",
        ),
        (
            "agent:agents_for_tests:talk",
            "agents_for_tests:user_message",
            "tasks: .*user_message requires text, and is called with no arg",
        ),
        ("agent:agents_for_tests:talk", "none.jsonl", r"env\.kwargs\.tasks: none\.jsonl"),
    ],
)
def test_an_agent_that_is_not_there_is_named(env_id: str, tasks: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        AgentEnv(env_id, tasks=tasks)


def test_the_endpoint_ends_with_its_rollout() -> None:
    sections = Config(env=EnvConfig("agent:agents_for_tests:talk"), rollout=RolloutConfig(batch_size=1)).collection
    member = TextMixtureEnv("", PromptRenderer(Letters()), 1, 1)
    it = AgentRollout(cast(Any, None), cast(Any, None), [member], sections)
    port = it.endpoint.port
    assert _listens(port)
    del it
    gc.collect()
    until = time.monotonic() + 10
    while _listens(port) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("calls", ["search", [{"id": "1"}], [{"id": "1", "function": {"arguments": "{}"}}], ["search"]])
def test_calls_of_tools_without_a_function_are_refused_in_words(calls: Any) -> None:
    with pytest.raises(BadRequest, match="tool_calls must be a list of objects with a function that has a name"):
        names_of([{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": calls}], [])
