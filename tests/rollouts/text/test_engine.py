"""Conversations in the engine: latencies change nothing but time, and what breaks costs its own conversation."""

from __future__ import annotations

import string
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import text_envs
import torch
from answering import graded
from letters import EOS, PAD, Letters
from tiny_models import tiny_qwen2

from rlinf.base.errors import UserError
from rlinf.cluster.local import LocalCluster
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.rollouts.text.conversation import Response
from rlinf.rollouts.text.engine import StreamSession
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.schema import AlgorithmConfig, DataConfig, EnvConfig, RolloutConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.conversations import conversation_envs
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.text_env_pool import TextEnvPool


def config(folder: Path, *, turns: int = 3, workers: int = 1, **env: Any) -> Config:
    limits = {"step_timeout_s": env.pop("step_timeout_s", 60.0), "max_failures": env.pop("max_failures", 100)}
    kwargs = {**text_envs.lines(folder), "max_turns": turns, **env}
    return Config(
        env=EnvConfig(text_envs.SLOW_TOOLS, kwargs, max_turns=turns, num_workers=workers, **limits),
        data=DataConfig(max_prompt_length=50),
        rollout=RolloutConfig(batch_size=3, max_new_tokens=10, num_samplers=workers),
        algorithm=AlgorithmConfig(group_size=2),
        cluster=ClusterConfig(backend="local"),
    )


@contextmanager
def rollout(settings: Config) -> Iterator[tuple[TextRollout, TextEnvPool]]:
    def sampler(_info: object) -> SamplerWorker:
        model = tiny_qwen2(vocabulary=128)
        return SamplerWorker(
            HFSampler(model, eos_token_ids=[EOS], pad_token_id=PAD, seed=3, generation_batch_size=8, max_model_len=200)
        )

    workers = settings.env.num_workers
    with LocalCluster(settings.cluster) as cluster:
        envs = TextEnvPool(cluster.spawn("env", lambda _info: conversation_envs(settings), n=workers), settings.env)
        samplers = SamplerPool(cluster.spawn("sampler", sampler, n=workers), cluster)
        member = TextMixtureEnv(
            "", PromptRenderer(Letters(), stop=tuple(string.ascii_letters)), 8, settings.env.max_turns
        )
        yield TextRollout(samplers, envs, [member], settings.collection), envs


def collected(settings: Config) -> Batch:
    with rollout(settings) as (it, _):
        return it.collect(1)[0]


def words(batch: Batch) -> list[list[Mapping[str, object]]]:
    """The conversations without the seconds that they took."""
    return [[{**turn, "seconds": 0.0} for turn in turns] for turns in batch.metadata["turns"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_latencies_change_nothing_in_the_batch(tmp_path: Path, workers: int) -> None:
    first = collected(config(tmp_path))
    assert first.mask.any(1).all()
    for latency in (1, 2):
        again = collected(config(tmp_path, workers=workers, latency=latency, most_s=0.1))
        for name in ("actions", "mask", "rollout_logprobs", "rewards", "policy_version", "truncated"):
            assert torch.equal(getattr(again, name), getattr(first, name)), name
        assert words(again) == words(first)
    assert max(map(len, first.metadata["turns"])) == 5, "three turns of the policy, and two answers"


def test_what_hangs_or_raises_costs_its_own_conversation(tmp_path: Path) -> None:
    settings = config(tmp_path, faults={1: "hang", 4: "raise"}, step_timeout_s=3.0)
    sound = collected(config(tmp_path))
    with rollout(settings) as (it, envs):
        batch, _ = it.collect(1)
        assert [it.collect(2)[0].num_rows, envs.timeouts, envs.errors] == [6, 2, 2], "and again with a new environment"
    assert batch.metadata["finish_reason"][1] == "env_timeout"
    assert batch.metadata["finish_reason"][4] == "env_error"
    # Two of a group each: the other has nothing to be compared with. The third group is as it would have been.
    assert batch.mask.any(1).tolist() == [False, False, True, True, False, False]
    length = batch.mask.shape[1]
    assert torch.equal(batch.actions[2:4], sound.actions[2:4, :length])


def test_too_many_failures_end_the_run_by_the_name_of_the_environment(tmp_path: Path) -> None:
    settings = config(tmp_path, faults={0: "raise", 3: "raise"}, max_failures=1)
    with (
        rollout(settings) as (it, _),
        pytest.raises(UserError, match=r"SlowTools-v0: ValueError: no such tool") as raised,
    ):
        it.collect(0)
    assert "env.max_failures allows 1" in str(raised.value)


def test_a_restarted_worker_repeats_the_responses(tmp_path: Path) -> None:
    settings = config(tmp_path)
    worker = conversation_envs(settings)
    worker.reset("train", [0, 1])
    worker.replay("train", [Response(0, "ab", False), Response(1, "a", False), Response(0, "abc", False)])
    (last,) = graded(worker.answers(), Response(0, "abcd", False))
    assert (last.observation, last.ended, last.truncated) == ("4 letters", True, True)


def test_answers_do_not_wait_for_others(tmp_path: Path) -> None:
    """One conversation hangs for half a second; another is through three turns meanwhile."""
    settings = config(tmp_path, latency=0)
    worker = TextEnvWorker(settings.env.id, {"train": settings.env.kwargs}, max_turns=3, row_timeout_s=9.0)
    worker.reset("train", [0, 1])
    env = worker._envs["train"]
    plain = env.step_row

    def step_row(row: int, response: str, *, cut: bool = False) -> Any:
        time.sleep(0.5 * (row == 0))
        return plain(row, response, cut=cut)

    env.step_row = step_row
    order: list[int] = []

    answers = worker.answers()
    answers.give([Response(0, "a", False), Response(1, "a", False)])
    while answers.open:
        for feedback in answers.take(0.1, complete=False):
            order.append(feedback.row_index)
            if feedback.row_index == 1 and not feedback.ended:
                answers.give([Response(1, "a", False)])
    assert order == [1, 1, 1, 0]


def test_an_environment_may_mask_a_conversation(tmp_path: Path) -> None:
    settings = config(tmp_path, faults={1: "mask"})
    with rollout(replace(settings, algorithm=AlgorithmConfig(group_size=3))) as (it, envs):
        batch, _ = it.collect(0)
    assert batch.mask.any(1).tolist() == [True, False] + [True] * 7
    assert batch.metadata["finish_reason"][1] == "masked"
    assert (envs.timeouts, envs.errors) == (0, 0)


def test_a_sampler_that_leaves_responses_out_is_an_error() -> None:
    """A sampler of the user's own: the engine would wait for ever for what never comes."""
    request = SampleRequest(0, (1,), 2, SamplingParams(max_new_tokens=4), (0,))
    session = StreamSession(lambda requests: iter([Completion.without_tokens(0, 0, "stop")]))
    session.submit([request])
    assert len(session.poll(0.1)) == 1
    with pytest.raises(RuntimeError, match="ended with 1 of its responses missing"):
        session.poll(0.1)
