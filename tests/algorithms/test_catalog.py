"""The tables are the registry: what they name exists and takes the options listed, and no other module has a name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from rlinf.algorithms import catalog, compute_advantages, policy_loss
from rlinf.algorithms.entries import Loss, OptionGroup, keyword_options
from rlinf.algorithms.objective import Objective
from rlinf.base.errors import RunFailed
from rlinf.base.user_code import imported
from rlinf.config import ConfigErrors, load_mapping
from rlinf.schema import AlgorithmConfig

FUNCTIONS = [
    *((entry.function, entry.options, 1) for table in (catalog.ADVANTAGES, catalog.LOSSES) for entry in table.values()),
    *((entry.selector, entry.selector_options, 3) for entry in catalog.LOSSES.values() if entry.selector),
]
MINE = '''
from rlinf.algorithms.objective import TokenLoss


def mine(x, *, strength=1.0, tis_cap=2.0):
    """The policy gradient, stronger."""
    return TokenLoss(-strength * x.advantages * x.logprobs)
'''


@pytest.mark.parametrize(("function", "options", "positional"), FUNCTIONS)
def test_an_entry_lists_the_options_of_its_function(function, options, positional):
    named = keyword_options(imported(function), behind=positional)
    assert {name if isinstance(name, str) else name.argument for name in options} == set(named)


@pytest.mark.parametrize(("function", "options"), [entry[:2] for entry in FUNCTIONS])
def test_a_function_has_the_defaults_of_the_configuration(function, options):
    parameters = inspect.signature(imported(function)).parameters
    for option in options:
        if isinstance(option, OptionGroup):
            made = imported(option.make)(**{name: getattr(AlgorithmConfig(), name) for name in option.options})
            assert parameters[option.argument].default == made
        else:
            assert parameters[option].default == getattr(AlgorithmConfig(), option), option


def test_shared_loss_options_are_keys_of_the_section():
    shared = {*catalog.LOSS_OPTIONS, *catalog.STEP_OPTIONS, *catalog.REWARD_OPTIONS, *catalog.ADVANTAGE_OPTIONS}
    assert [name for name in shared if not hasattr(AlgorithmConfig(), name)] == []


@pytest.mark.parametrize("table", catalog.TABLES)
def test_every_entry_is_filled(table):
    for entry in catalog.TABLES[table].values():
        assert entry.line
        assert entry.formula
        assert entry.source
        assert callable(imported(entry.function))


def test_no_other_module_names_a_loss():
    root = Path(catalog.__file__).parents[1]
    offenders = []
    for path in (*(root / "algorithms").rglob("*.py"), *(root / "learners").rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        for name in ("gspo", "gmpo", "actor_critic", "kl_cov", "clip_cov", "decoupled", "reinforce_pp"):
            if (
                path.name != "catalog.py"
                and path.stem != name
                and (f'== "{name}"' in code or f'("{name}",' in code or f', "{name}")' in code)
            ):
                offenders.append(f"{path.name}: {name}")
    assert offenders == []


def test_a_key_of_the_configuration_is_spelled_in_few_files():
    """Declared, bounded, aliased and drawn where it must be; in between it travels inside a typed value."""
    root, pointing = Path(catalog.__file__).parents[1], {"compat", "metrics", "examples.py"}
    for key in ("clip_ratio_high", "tis_cap", "value_clip"):
        files = [path for path in root.rglob("*.py") if key in path.read_text(encoding="utf-8")]
        # Tables of other frameworks' names and of the documentation only point at it.
        files = [path for path in files if not pointing & {*path.parts, path.name}]
        assert len(files) <= 6, [path.name for path in files]


def test_the_catalog_needs_no_torch():
    code = "import sys, rlinf.algorithms.catalog; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_middle_of_the_package_can_be_the_first_import_and_stays_light():
    heavy = "{'ray', 'vllm', 'megatron', 'transformers', 'gymnasium'}"
    code = f"import sys, rlinf.algorithms.rewards; raise SystemExit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown loss_type 'ppo'; known: actor, actor_critic"):
        Objective.of("ppo")


def test_an_option_of_another_loss_is_refused_with_its_reader():
    with pytest.raises(
        TypeError, match=r"loss_type: actor does not read sapo_tau_positive \(read by loss_type: sapo\); it reads: "
    ):
        Objective.of("actor", sapo_tau_positive=1.0)
    with pytest.raises(TypeError, match=r"does not read cliprange; it reads: .*ratio_clip_eps"):
        Objective.of("actor", cliprange=1.0)


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
def test_a_sequence_level_loss_keeps_its_level_under_another_name(name, monkeypatch):
    monkeypatch.setitem(catalog.LOSSES, "renamed", catalog.LOSSES[name])
    assert not Objective.of("renamed").per_token
    assert Objective.of("actor").per_token


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The file of a new loss; its module's name."""
    name = f"loss_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_new_loss_with_an_option_of_its_own_is_its_file_and_one_entry(mine, monkeypatch):
    entry = Loss(f"{mine}:mine", "a line", "a formula", "a source", ("strength", "tis_cap"))
    monkeypatch.setitem(catalog.LOSSES, "mine", entry)

    one = torch.ones(1, 1)
    columns = {"logprobs": -one, "old_logprobs": -one, "advantages": one, "mask": one.bool()}
    assert policy_loss("mine", **columns, strength=3.0)[0].item() == 3.0
    with pytest.raises(TypeError, match=r"loss_type: mine does not read power; it reads: .*strength"):
        policy_loss("mine", **columns, power=3.0)
    assert catalog.readers("strength") == ["loss_type: mine"]

    algorithm = algorithm_of("{loss_type: mine, tis_cap: 1.5, options: {strength: 2.0}}")
    objective = Objective(algorithm)
    assert objective(**columns, weights=objective.weights(columns["mask"])).loss.item() == 2.0
    assert (objective.per_token, objective.idle_without_advantage) == (True, True)


def test_a_loss_by_module_and_function_needs_no_entry(mine):
    algorithm = algorithm_of(f"{{loss_type: '{mine}:mine', options: {{strength: 2.0}}}}")
    objective = Objective(algorithm)
    one = torch.ones(1, 1)
    columns = {"logprobs": -one, "old_logprobs": -one, "advantages": one, "mask": one.bool()}
    assert objective(**columns, weights=objective.weights(columns["mask"])).loss.item() == 2.0
    # Nothing is known of it, so its rows stay whole and none is left out.
    assert (objective.per_token, objective.idle_without_advantage) == (False, False)


def test_an_estimator_by_module_and_function(tmp_path, monkeypatch):
    code = "from rlinf.algorithms.advantages import Advantages\n"
    code += "def twice(x, *, times=2.0):\n    a = x.per_row(times * x.outcomes)\n    return Advantages(a, a)\n"
    (tmp_path / "estimator_of_mine.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    columns = {"rewards": torch.tensor([1.0]), "mask": torch.ones(1, 2).bool(), "group_ids": torch.zeros(1).long()}
    found = compute_advantages("estimator_of_mine:twice", **columns, times=3.0)
    assert found.advantages.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "{loss_type: 'no_such_module:mine'}",
            "no_such_module:mine cannot be imported: ModuleNotFoundError: No module named",
        ),
        ("{loss_type: 'math:cosine'}", "math:cosine cannot be imported"),
        ("{loss_type: 'math:pi'}", "math:pi is a float, and must be a function that is called with LossInputs"),
        (
            "{options: {strength: 1.0}}",
            "algorithm.options.strength is not read by adv_type: grpo with loss_type: actor",
        ),
        ("{options: {gamma: 1.0}}", "algorithm.options.gamma is a key of the section itself. Write algorithm.gamma."),
    ],
)
def test_mistakes_are_reported_by_the_check(section, message):
    with pytest.raises(ConfigErrors) as raised:
        algorithm_of(section)
    assert message in str(raised.value)


UNFIT = """
from dataclasses import dataclass
from rlinf.algorithms import AdvantageInputs, LossInputs

def nothing(): ...
def columns(rewards, mask): ...
def misspelt(x, *, advantge_clip): ...
def own(x, *, strength): ...
def loss(x: LossInputs): ...
def of_shape(shape, power): ...
class Made:
    def __init__(self, x): ...
"""


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{adv_type: 'unfit:nothing'}", "unfit:nothing takes no positional arguments, and is called with Adva"),
        ("{adv_type: 'unfit:columns'}", "unfit:columns requires mask, and is called with AdvantageInputs"),
        (
            "{loss_type: 'unfit:columns'}",
            "Write def NAME(x: LossInputs, *, OPTION=DEFAULT), with what it needs as x.CO",
        ),
        ("{adv_type: 'unfit:misspelt'}", "requires advantge_clip (did you mean advantage_clip?)"),
        ("{loss_type: 'unfit:own'}", "unfit:own requires strength, and is called with LossInputs"),
        (
            "{adv_type: 'unfit:loss'}",
            "unfit:loss takes LossInputs, and is called with AdvantageInputs: it may be meant",
        ),
        (
            "{adv_type: 'unfit:Made'}",
            "unfit:Made is a class, and what is called with AdvantageInputs must be a function",
        ),
        ("{loss_agg_func: 'unfit:of_shape'}", "unfit:of_shape requires power, and is called with BatchShape"),
        ("{kl_beta: 0.1, kl_penalty_type: 'unfit:nothing'}", "and is called with a tensor d = logprobs - ref_logprobs"),
        ("{adv_type: 'unfit:colums'}", "has no attribute 'colums' (did you mean columns?)"),
        ("{adv_type: 'unfitt:columns'}", "No module named 'unfitt' (did you mean unfit?)"),
    ],
)
def test_a_function_that_cannot_be_called_as_it_will_be_is_a_mistake_of_the_configuration(
    section, message, tmp_path, monkeypatch
):
    (tmp_path / "unfit.py").write_text(UNFIT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigErrors) as raised:
        algorithm_of(section)
    assert len(raised.value.problems) == 1
    assert f"algorithm.{raised.value.problems[0].key.partition('.')[2]}: unfit" in str(raised.value)
    assert message in str(raised.value)


def test_a_function_whose_options_have_values_is_taken(tmp_path, monkeypatch):
    (tmp_path / "unfit.py").write_text(UNFIT)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert algorithm_of("{loss_type: 'unfit:own', options: {strength: 1.0}}").options == {"strength": 1.0}
    assert algorithm_of("{kl_beta: 0.1, kl_penalty_type: 'torch:abs'}").kl_penalty_type == "torch:abs"


def test_what_a_function_of_ones_own_must_return_is_reported(tmp_path, monkeypatch):
    code = "def bare(x): return x.rewards\ndef rows(x): return x.outcomes, x.outcomes\n"
    code += "def pair(x): return x.rewards, x.rewards\n"
    (tmp_path / "gives.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    columns = {"rewards": torch.ones(3), "mask": torch.ones(3, 2).bool(), "group_ids": torch.zeros(3).long()}
    assert compute_advantages("gives:pair", **columns).returns.shape == (3, 2)
    with pytest.raises(RunFailed, match="adv_type: gives:bare returned a Tensor, and must return Advantages"):
        compute_advantages("gives:bare", **columns)
    with pytest.raises(RunFailed, match=r"gives:rows returned advantages \[3\], and must return \[3, 2\]: x.per_row"):
        compute_advantages("gives:rows", **columns)
    (tmp_path / "gives_loss.py").write_text("def bare(x): return x.advantages")
    one = torch.ones(1, 1)
    columns = {"logprobs": one, "old_logprobs": one, "advantages": one, "mask": one.bool()}
    with pytest.raises(RunFailed, match="loss_type: gives_loss:bare returned a Tensor, and must return TokenLoss"):
        policy_loss("gives_loss:bare", **columns)


def test_a_module_that_raises_while_it_is_imported_is_a_mistake_of_the_configuration(tmp_path, monkeypatch):
    (tmp_path / "broken_loss.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigErrors, match="broken_loss:mine cannot be imported: ZeroDivisionError: division by zero"):
        algorithm_of("{loss_type: 'broken_loss:mine'}")


def algorithm_of(section: str) -> AlgorithmConfig:
    algorithm = {"group_size": 8, **yaml.safe_load(section)}
    return load_mapping(
        {"env": {"id": "CartPole-v1"}, "policy": {"name": "actor_critic"}, "algorithm": algorithm}
    ).algorithm
