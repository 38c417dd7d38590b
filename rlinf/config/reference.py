"""``docs/config.md`` from the schema: ``python -m rlinf.config.reference`` writes it, a test keeps it current."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path

import yaml

from rlinf.config.compat.aliases import FLAT, UNDER_ALGORITHM
from rlinf.config.defaults import CONDITIONAL, schema_default
from rlinf.config.experiment import Config
from rlinf.config.names import facts_of, hints, type_of

_HEAD = """# Configuration reference

Generated from `rlinf/schema/` by `python -m rlinf.config.reference`; edit the docstrings there.

One YAML file describes one experiment and holds only what differs from the defaults below. `extends: other.yaml`
starts from another file, `key=value` on the command line overrides both, `${oc.env:NAME,default}` reads the
environment. `rlinf check FILE` reports every mistake at once and prints the plan.

A default that depends on the kind of run is written as "`1e-06`; `0.0003` for simulators": it is applied when the file
is loaded, `rlinf check` notes it next to the value, and `config.yaml` of the run directory holds it.

Paths: what a file names as another configuration (`extends`, a sweep's `base`) is relative to that file. Every other
path (`policy.path`, `env.kwargs.path`, `run.dir`, `sft.cache`, `env.python`, ...) is relative to the folder in which
the command is given, as on the command line itself, so that one file serves data and runs of several folders. Modules
(`env.id: my_module:My-v0`, `custom` rewards) are imported from `PYTHONPATH` and from that folder. To make a file work
from everywhere, write absolute paths, or `${oc.env:DATA}/train.jsonl`.
"""


_OTHER_NAMES = """These names of ROLL and RLinf are read as ours, also inside of `${...}`; what each became is printed
once. Names of TRL (`num_generations`), Stable-Baselines3 (`n_steps`), verl (`actor_rollout_ref.rollout.n`), and the
other keys of ROLL and RLinf are not read, and the message about them gives their names here:

    $ rlinf check grpo.yaml learning_rate=1e-5
    command line: learning_rate is not a key.
    What TRL and Stable-Baselines3 call learning_rate is learner.optimizer.lr here.
"""


def reference() -> str:
    """Build the whole page."""
    parts = [_HEAD]
    for name, hint in hints(Config).items():
        assert isinstance(hint, type)
        parts.append(f"## `{name}`\n\n{_about(hint)}\n\n" + "\n".join(_table(hint, f"{name}.")) + "\n")
    parts.append(_aliases())
    return "\n".join(parts)


def _about(section: type) -> str:
    module = inspect.getmodule(section)
    own = section.__doc__ or ""
    # The docstring that dataclass makes up is the signature, not a sentence.
    if own and not own.startswith(f"{section.__name__}("):
        return own
    head = (module.__doc__ or "").splitlines()[0] if module else ""
    sentence = head.partition(": ")[2] or head
    return sentence[:1].upper() + sentence[1:]


def _table(section: type, prefix: str) -> list[str]:
    rows = ["| key | type | default | example | meaning |", "|---|---|---|---|---|"]
    nested = []
    documented = field_docs(section)
    for name, hint in hints(section).items():
        if isinstance(hint, type) and is_dataclass(hint):
            nested += _table(hint, f"{prefix}{name}.")[2:]
            continue
        # Show the schema's default, and those that other kinds of run have instead.
        key = f"{prefix}{name}"
        others = [f"`{_show(other.value)}` for {other.runs}" for other in CONDITIONAL if other.key == key]
        default = "; ".join([f"`{_show(schema_default(key))}`", *others])
        meaning = " ".join(documented.get(name, "").split()).replace("|", "\\|")
        shown = _example(f"{prefix}{name}")
        rows.append(f"| `{prefix}{name}` | {_type(hint)} | {default} | {shown} | {meaning} |")
    return rows + nested


def field_docs(section: type) -> dict[str, str]:
    """Read the string under each field of a dataclass, where it or one that it extends declares it."""
    documented: dict[str, str] = {}
    for kind in reversed([one for one in section.__mro__ if is_dataclass(one)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        body = typing.cast(ast.ClassDef, tree.body[0]).body
        for statement, following in itertools.pairwise(body):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                documented[statement.target.id] = str(following.value.value)
    return {item.name: documented[item.name] for item in fields(section) if item.name in documented}


def _type(hint: object) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if member is type(None) else _type(member) for member in arguments)
    if origin is typing.Literal:
        return ", ".join(f"`{option}`" for option in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is tuple:
        return f"{len(arguments)} x {_type(arguments[0])}"
    if origin is dict or is_dataclass(hint):
        return "mapping"
    return {"int": "integer", "float": "number", "str": "text", "bool": "switch"}[typing.cast(type, hint).__name__]


def example(key: str) -> object:
    """Return a value worth writing that is not the default: the schema's example, or one of the type, if any."""
    written = facts_of(key).example
    if written is not None:
        return written
    default, hint = schema_default(key), type_of(key)
    options = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if options:
        return next(option for option in reversed(options) if option != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default * 2 if default else 10
    return default * 2 if isinstance(default, float) and default else None


def _example(key: str) -> str:
    """As YAML writes it in one line."""
    text = yaml.safe_dump(example(key), default_flow_style=True, width=10_000, sort_keys=False).strip()
    return f"`{text.removesuffix('...').strip()}`"


def _show(default: object) -> str:
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    return str(list(default)) if isinstance(default, tuple) else str(default) if default != "" else '""'


def _aliases() -> str:
    rows = ["| also accepted | stands for |", "|---|---|"]
    rows += [f"| `{name}` | `{key}` |" for name, key in FLAT.items()]
    rows += [f"| `algorithm.{name}` | `{key}` |" for name, key in UNDER_ALGORITHM.items()]
    rows += [
        "| `use_kl_loss` with `kl_loss_coef` | `algorithm.kl_beta` |",
        "| `dual_clip_loss: true` | `algorithm.clip_ratio_c` = 1 + 2 `ratio_clip_eps` |",
        "| `add_token_level_kl` with `init_kl_coef` | `algorithm.kl_coef` |",
        "| `algorithm.sampling_params.do_sample: false` | `rollout.temperature: 0` |",
    ]
    return f"## Other names\n\n{_OTHER_NAMES}\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path("docs/config.md").write_text(reference(), encoding="utf-8")
