"""`rollout.vllm.extra` against the arguments of a vLLM that is made up here, and without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from config_cases import MINIMAL, Write

from rlinf.config import Config, ConfigErrors, load_mapping, resolve
from rlinf.config.checks.engine_flags import RESERVED, engine_arguments
from rlinf.planning.describe import plan

SOURCE = '''
@dataclass
class EngineArgs:
    """Has a model, and private fields."""

    model: str = "m"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_num_batched_tokens: int | None = None
    logprobs_mode: str = "raw"
    _count: int = 0

    def method(self) -> None:
        inner: int = 0
'''


@pytest.fixture
def made_up_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "site" / "vllm" / "engine"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise AssertionError('it is read, not imported')")
    (folder / "arg_utils.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    engine_arguments.cache_clear()
    yield
    engine_arguments.cache_clear()


def loaded(extra: dict[str, Any]) -> Config:
    return load_mapping({**MINIMAL, "rollout": {"sampler": "vllm", "vllm": {"extra": extra}}}, source="test")


@pytest.mark.usefixtures("made_up_vllm")
def test_arguments_are_read_from_the_source() -> None:
    names = ("model", "quantization", "kv_cache_dtype", "max_num_batched_tokens", "logprobs_mode")
    assert engine_arguments() == names
    assert loaded({"quantization": "fp8", "max_num_batched_tokens": 64}).rollout.vllm.extra["quantization"] == "fp8"


@pytest.mark.usefixtures("made_up_vllm")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quantisation", r"extra\.quantisation is no argument of the installed vLLM\.\s+Did you mean quantization\?"),
        ("--kv-cache-dtype", r"is no argument of the installed vLLM\.\s+Did you mean kv_cache_dtype\?"),
        ("colour", r"extra\.colour is no argument.*`vllm serve --help` lists them"),
        ("model", r"extra\.model can't be passed through: the policy is the learner's.*Set policy\.path instead"),
        ("seed", r"a random stream of its own.*Set run\.seed instead"),
        ("logprobs_mode", "must be those of the distribution that tokens are drawn from"),
        ("--tensor-parallel-size", r"Set rollout\.vllm\.tensor_parallel_size instead"),
        ("enable_prefix_caching", r"Set rollout\.vllm\.enable_prefix_caching instead"),
    ],
)
def test_other_names_and_promises_are_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigErrors, match=f"(?s){words}"):
        loaded({name: 1})


def test_without_vllm_a_warning_reports_that_nothing_was_checked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.config.checks.engine_flags.engine_arguments", lambda: None)
    (warning,) = resolve(write("rollout: {sampler: vllm, vllm: {extra: {colour: 1}}}")).warnings
    assert "is not checked, because vLLM is not installed here" in warning
    with pytest.raises(ConfigErrors, match="can't be passed through"):
        loaded({"dtype": "float32"})


@pytest.mark.usefixtures("made_up_vllm")
def test_a_quantised_sampler_has_no_gap_limit_and_is_recommended_a_correction() -> None:
    plain, quantised = loaded({"max_num_batched_tokens": 64}), loaded({"kv_cache_dtype": "fp8"})
    assert plain.facts.gap_limits[False] is not None
    assert quantised.facts.gap_limits[False] is None
    advice = [any("a quantised sampler" in text for text in plan(one).warnings) for one in (plain, quantised)]
    assert advice == [False, True]


def test_every_key_that_replaces_an_argument_exists() -> None:
    from rlinf.config.names import leaves

    named = [fix.split()[1] for _, fix in RESERVED.values() if fix.endswith(" instead.")]
    assert set(named) <= set(leaves())
