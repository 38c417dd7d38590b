"""An environment worker starts fast: no tensor library, no algebra, no dataset library at import."""

import subprocess
import sys

from rlinf.cluster.packing import pack
from rlinf.config import load
from rlinf.train.assemble.conversations import env_builder

HEAVY = ("torch", "transformers", "ray", "sympy", "math_verify", "reasoning_gym", "datasets", "pyarrow", "pandas")


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_registering_and_importing_the_environments_is_light() -> None:
    assert _loaded_after("import rlinf_envs, rlinf_envs.math.env, rlinf_envs.reasoning_gym.env") == set()


def test_cheap_verification_needs_no_algebra() -> None:
    assert (
        _loaded_after(r"from rlinf_envs.math import verify; assert verify('\\boxed{1,000}', '1000').correct") == set()
    )


def test_generated_tasks_need_no_tensors() -> None:
    code = "import gymnasium; gymnasium.make_vec('rlinf_envs:rlinf/ReasoningGym-v0', task='chain_sum').reset(seed=0)"
    assert not _loaded_after(code) & {"torch", "transformers", "ray"}


def test_a_worker_of_text_environments_needs_no_tensors() -> None:
    packed = pack(env_builder(load("quickstart")))
    assert not packed.buffers
    code = f"import pickle; pickle.loads({packed.head!r})(None).facts('train')"
    assert not _loaded_after(code) & {"torch", "transformers"}
