"""The replay buffer: returns over several steps, the ring, files, priorities."""

from __future__ import annotations

import torch
from transitions import fragment

from rlinf.learners.off_policy.replay_buffer import ReplayBuffer


def test_n_step_returns_stop_at_ends_and_bootstrap_after_truncation_only():
    buffer = ReplayBuffer(1000)
    buffer.add(fragment(ends=[4], terminates=[9]))
    got = buffer.sample(4000, gamma=0.5, n_step=3, generator=torch.Generator().manual_seed(0))
    at = got.inputs["observation"][:, 0]
    expected = {  # position: (reward, discount, observation after)
        0: (0 + 0.5 * 1 + 0.25 * 2, 0.125, 3),
        3: (3 + 0.5 * 4, 0.25, 5),  # truncated after two steps: bootstraps from the final observation
        4: (4.0, 0.5, 5),
        8: (8 + 0.5 * 9, 0.0, 10),  # terminated after two steps
        9: (9.0, 0.0, 10),
        18: (18 + 0.5 * 19, 0.25, 20),  # the newest row has no successor
        19: (19.0, 0.5, 20),
    }
    for position, (reward, discount, after) in expected.items():
        rows = at == position
        assert rows.any()
        torch.testing.assert_close(got.rewards[rows], torch.full((int(rows.sum()),), float(reward)))
        assert (got.discounts[rows] == discount).all()
        assert (got.next_inputs["observation"][rows][:, 0] == after).all()


def test_the_ring_forgets_the_oldest_and_never_gives_broken_positions():
    buffer = ReplayBuffer(32)  # 16 rows of 2 sub-environments
    buffer.add(fragment(positions=12))
    buffer.add(fragment(positions=12, first=12.0, invalid=[3, 4]))
    assert len(buffer) == 32
    seen = set(buffer.sample(2000, gamma=0.9).rewards.tolist())
    assert seen == set(range(8, 24)) - {15, 16}
    steps = buffer.sample(2000, gamma=1.0, n_step=4)
    at = steps.inputs["observation"][:, 0]
    assert (steps.rewards[at == 13] == 13 + 14).all()


def test_a_buffer_on_disk_gives_the_same(tmp_path):
    here, there = ReplayBuffer(100), ReplayBuffer(100, folder=tmp_path / "replay", memory_bytes=0)
    for buffer in (here, there):
        buffer.add(fragment())
    assert (tmp_path / "replay" / "rewards.bin").exists()
    one, two = (b.sample(50, gamma=0.9, generator=torch.Generator().manual_seed(1)) for b in (here, there))
    assert one.rewards.equal(two.rewards)
    assert one.next_inputs["observation"].equal(two.next_inputs["observation"])


def test_a_buffer_is_saved_piece_by_piece_and_comes_back(tmp_path, monkeypatch):
    buffer = ReplayBuffer(
        32, folder=tmp_path / "replay", memory_bytes=0
    )  # 16 rows of 2 sub-environments: the ring wraps
    buffer.add(fragment())
    monkeypatch.setattr("rlinf.learners.off_policy.replay_buffer._COPIED_BYTES", 100)
    (tmp_path / "saved").mkdir()
    buffer.save(tmp_path / "saved")
    back = ReplayBuffer(32)
    back.load(tmp_path / "saved")
    buffer.add(fragment(positions=3, first=50.0))
    back.add(fragment(positions=3, first=50.0))
    one, two = (b.sample(200, gamma=0.9, n_step=2, generator=torch.Generator().manual_seed(1)) for b in (buffer, back))
    assert one.rewards.unique().numel() > 10
    for name in ("rewards", "actions", "discounts"):
        assert getattr(one, name).equal(getattr(two, name))
    assert one.inputs["observation"].equal(two.inputs["observation"])
    empty = ReplayBuffer(32)
    empty.save(tmp_path / "saved")
    back.load(tmp_path / "saved")
