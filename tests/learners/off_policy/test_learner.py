"""The learner of all off-policy algorithms: it goes on exactly, several ranks make the update of one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from gymnasium import spaces
from transitions import ARM, STATE, networks, played

from rlinf.algorithms import catalog
from rlinf.base.user_code import imported
from rlinf.data.spaces import SpaceError
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.objective import Placement
from rlinf.models.actor_critic import ActorCriticOptions
from rlinf.schema import AlgorithmConfig, OptimizerConfig

OPTIMIZER = OptimizerConfig(lr=3e-4)
KINDS = {
    **{name: {"loss_type": name} for name in catalog.OFF_POLICY},
    "prioritised": {"loss_type": "dqn", "priority_exponent": 0.6, "huber_delta": 1.0},
    "delayed": {"loss_type": "td3", "policy_delay": 2},
}


def settings(kind, **options):
    chosen = {"gamma": 0.99, "replay_start": 10, "replay_batch_size": 16, "n_step": 2, **KINDS[kind], **options}
    return AlgorithmConfig(target_update_every=2 if KINDS[kind]["loss_type"] == "dqn" else 1, **chosen)


def make(kind, seed=0, placement=None, **options):
    algorithm = settings(kind, **options)
    return OffPolicyLearner(networks(algorithm.loss_type, seed), algorithm, OPTIMIZER, seed=7, placement=placement)


# The others take longer, and keep the same parts in other numbers.
BY_DAY = ("dqn", "sac")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in BY_DAY)) for kind in KINDS]
)
def test_learning_goes_on_exactly_after_a_restart(tmp_path, kind):
    loss_type = KINDS[kind]["loss_type"]
    batches = [played(loss_type, first=float(step)) for step in range(8)]
    straight = make(kind, replay_capacity=200)
    for step in range(3):
        straight.update(batches[step], step=step)
    straight.save(tmp_path / "checkpoint")
    resumed = make(kind, seed=99, replay_capacity=200)
    resumed.load(tmp_path / "checkpoint")
    for step in range(3, 8):  # past the point where the ring wraps
        assert straight.update(batches[step], step=step) == resumed.update(batches[step], step=step)
    one, two = straight.weights(version=1).tensors, resumed.weights(version=1).tensors
    assert all(one[name].equal(two[name]) for name in one)


class Together:
    """Ranks that are threads of this process."""

    def __init__(self, size):
        self.barrier, self.given = threading.Barrier(size, timeout=60), {}

    def of(self, rank):
        return Together.Member(self, rank)

    class Member:
        def __init__(self, gang, rank):
            self.gang, self.rank = gang, rank

        def _parts(self, tensor):
            gang = self.gang
            gang.given[self.rank] = tensor.clone()
            gang.barrier.wait()
            parts = [gang.given[rank] for rank in sorted(gang.given)]
            gang.barrier.wait()
            return parts

        def sum(self, tensor):
            return sum(self._parts(tensor))

        def gather(self, tensor):
            return torch.cat(self._parts(tensor))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "crossq"])
def test_several_ranks_make_the_update_of_one(kind, size, tmp_path):
    options = {"replay_capacity": 400, "replay_ratio": 0.1, "policy_delay": 1}
    together = Together(size)
    alone = make(kind, **options)
    placements = [Placement(rank=rank, size=size, ranks=together.of(rank)) for rank in range(size)]
    gang = [make(kind, placement=placement, **options) for placement in placements]
    before = alone.weights(version=0).tensors
    with ThreadPoolExecutor(size) as threads:
        for step in range(3):
            batch = played(KINDS[kind]["loss_type"], num_envs=4, first=float(step), ends=[3], terminates=[11])
            output = alone.update(batch, step=step)
            for metrics in threads.map(lambda learner, at=step, of=batch: learner.update(of, step=at), gang):
                assert metrics == pytest.approx(output, rel=1e-4, abs=1e-6)
    there = gang[0].weights(version=1).tensors
    assert not any(learner.weights(version=1).tensors for learner in gang[1:])
    for name, tensor in alone.weights(version=1).tensors.items():
        torch.testing.assert_close(there[name], tensor, rtol=1e-4, atol=1e-6)
        assert not tensor.equal(before[name]) or name == "head.uniform", name
        assert all(learner.policy.state_dict()[name].equal(there[name]) for learner in gang)
    rows = torch.cat([learner.evaluate(batch)[0] for learner in gang])
    assert sorted(rows.tolist()) == [0, 1, 2, 3]
    for learner in gang:
        learner.save(tmp_path / str(learner.placement.rank))
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("loss_type", catalog.OFF_POLICY)
def test_actions_of_the_other_kind_are_refused_with_what_would_fit(loss_type):
    entry = catalog.off_policy(loss_type)
    wrong, fits = (
        (ARM, "sac, td3, ddpg, tqc or crossq") if entry.discrete else (spaces.Discrete(3), "dqn or discrete_sac")
    )
    with pytest.raises(SpaceError, match=f"loss_type: {loss_type} needs .* Choose loss_type: {fits}"):
        imported(entry.policy)(STATE, wrong, ActorCriticOptions())
    several = rf"loss_type: {loss_type} needs .*, got MultiDiscrete.*\. Choose adv_type: gae with"
    with pytest.raises(SpaceError, match=several):
        imported(entry.policy)(STATE, spaces.MultiDiscrete([2, 3]), ActorCriticOptions())
    with pytest.raises(SpaceError, match=r"no policy for actions of type Text \(.*\): one Box, Discrete"):
        imported(entry.policy)(STATE, spaces.Text(5), ActorCriticOptions())


@pytest.mark.parametrize("loss_type", catalog.OFF_POLICY)
def test_an_exported_policy_is_loaded_with_the_networks_of_its_algorithm(tmp_path, loss_type):
    from rlinf.api.policy import _actor_critic

    policy = networks(loss_type)
    policy.save_pretrained(str(tmp_path))
    back = _actor_critic(tmp_path)
    assert type(back) is type(policy)
    state = {"observation": torch.randn(5, 3)}
    one, two = (found.step(state, torch.zeros(5, 0), None)[0] for found in (policy.eval(), back))
    assert one.equal(two)


def test_running_statistics_reach_the_target():
    algorithm = settings("sac")
    learner = OffPolicyLearner(networks("sac", normalize_observations=True), algorithm, OPTIMIZER, seed=0)
    learner.update(played("sac"), step=0)
    online = dict(learner.policy.critic_encoder.named_buffers())
    kept = dict(learner.objective.target.modules[0].named_buffers())
    assert online
    assert all(kept[name].equal(value) for name, value in online.items())
    assert all(float(value.abs().sum()) > 0 for value in online.values())
