"""The parts of other libraries that are not public and that rlinf replaces or calls: each is where it is expected."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import ray
import ray._private.node as node
import ray._private.parameter as parameter
import ray._private.ray_constants as constants
import ray._private.services as services
import ray._private.worker as worker
import ray._raylet as raylet
import torch

from rlinf.learners import adam

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_rays_start_takes_what_is_handed_to_it() -> None:
    given = set(inspect.signature(services.start_raylet).parameters)
    assert {"dashboard_agent_listen_port", "session_dir", "node_id"} <= given
    ports = {"metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port"}
    switches = {"no_monitor", "include_log_monitor"}
    assert ports | switches <= set(inspect.signature(parameter.RayParams).parameters)
    assert "ray._private.services.start_api_server(" in inspect.getsource(node.Node.start_api_server)
    assert "if process_info is not None" in inspect.getsource(node.Node.start_api_server)
    assert "preexec_fn" in inspect.getsource(services.start_ray_process)
    assert "ConsolePopen(" in inspect.getsource(services.start_ray_process)
    assert isinstance(constants.ENABLE_RAY_CLUSTER, bool)
    assert constants.PROCESS_TYPE_RAYLET == "raylet"
    assert hasattr(worker, "_global_node")
    assert callable(raylet.persist_port)
    assert raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME


def test_the_bound_of_ray_admits_the_tested_release_and_no_later_one() -> None:
    (line,) = [line for line in PROJECT["dependencies"] if re.match(r"ray\b", line)]
    (bound,) = re.findall(r"<(\d+)\.(\d+)$", line)
    major, minor = (int(part) for part in ray.__version__.split(".")[:2])
    assert (major, minor) < (int(bound[0]), int(bound[1]))


@pytest.mark.parametrize("name", adam._KERNELS)
def test_torch_has_the_kernel(name: str) -> None:
    assert callable(getattr(torch, name))


def test_without_a_kernel_the_public_optimizer_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> torch.Tensor:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(5, 3))
        optimizer = adam.Adam([weight], lr=0.1, fused=True)
        for _ in range(4):
            weight.grad = torch.randn(5, 3)
            adam.clip_gradients([weight], 1.0, adam.gradient_norm([weight.grad]))
            optimizer.move()
        return weight.detach()

    quick = trained()
    called: list[object] = []
    monkeypatch.setattr(adam.Adam, "step", lambda self: called.append(torch.optim.Adam.step(self)))
    monkeypatch.setattr(adam, "_KERNELS", ("_gone",))
    assert torch.equal(trained(), quick)
    assert len(called) == 4


def test_vllm_and_megatron_whose_code_is_replaced_have_one_version() -> None:
    extras = PROJECT["optional-dependencies"]
    assert any(line.startswith("vllm==") for line in extras["vllm"])
    assert extras["megatron"] == ["megatron-core==0.16.1"]
