"""Environments in an interpreter of their own (`env.isolation: process`), behind a socket.

`env_indices` is this side. `child` runs on the other, whose virtual environment needs Python 3.10, numpy and gymnasium,
and nothing of ours: what it imports of this project (`wire`, the sub-environments and wrappers of `rlinf.rollouts`,
`rlinf_envs`) is lent to it by path. What both sides must agree on is in `wire`.
"""
