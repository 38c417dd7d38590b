"""``rlinf new``: a working skeleton of an environment, a reward, an algorithm or a policy, with its test."""

from __future__ import annotations

import keyword
import re
import string
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.durable import FULL
from rlinf.base.errors import UserError

SKELETONS = Path(__file__).parent / "skeletons"
KINDS = {
    "env": "a simulator: any gymnasium environment",
    "tasks": "a text environment: tasks and a judge of the answers",
    "reward": "a reward function for text environments",
    "algorithm": "an advantage estimator and a policy loss",
    "policy": "a network that acts in simulators",
}


def main(arguments: Sequence[str]) -> int:
    """Write the files, and print what to do with them. Raises UserError if one of them exists."""
    parser = Parser(
        prog="rlinf new",
        description="Write a working skeleton: a module, a YAML file that uses it, and its test. "
        + "; ".join(f"{kind}: {line}" for kind, line in KINDS.items())
        + ".",
    )
    parser.add_argument("kind", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("name", metavar="NAME", help="of the module: small letters, digits and _")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write it (default: here)")
    options = parser.parse_args(list(arguments))
    written = write_skeleton(options.kind, options.name, options.folder)
    for path in written:
        print(path)
    module, config, test = written
    print(
        f"\nNext: pytest {test.name}, then rlinf check {config.name} and rlinf train {config.name} in {module.parent}"
    )
    return 0


def write_skeleton(kind: str, name: str, folder: Path) -> tuple[Path, Path, Path]:
    """NAME.py, NAME.yaml and test_NAME.py in ``folder``, which is made."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        usable = re.sub(r"\W+|^(?=\d)", "_", name.lower().removesuffix(".py")).rstrip("_")
        meant = f", as in {usable}" if usable.isidentifier() and not keyword.iskeyword(usable) else ""
        raise UserError(
            f"rlinf new {kind} {name}: the name becomes a Python module: small letters, digits and _{meant}"
        )
    files = {
        "module.py.txt": folder / f"{name}.py",
        "config.yaml.txt": folder / f"{name}.yaml",
        "test.py.txt": folder / f"test_{name}.py",
    }
    folder_of_files = next((path for path in (folder, *folder.parents) if path.is_file()), None)
    if folder_of_files is not None:
        raise UserError(f"--folder {folder}: {folder_of_files} is a file: choose another folder")
    if name in sys.stdlib_module_names or (
        PathFinder.find_spec(name) is not None and not files["module.py.txt"].exists()
    ):
        raise UserError(f"rlinf new {kind} {name}: Python finds another module of that name: choose one that is free")
    there = [path for path in files.values() if path.exists()]
    if there:
        raise UserError(f"{there[0]} exists: choose another name, or another --folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--folder {folder} cannot be made ({error.strerror}): choose another folder") from error
    words = {"name": name, "class_name": "".join(part.title() for part in name.split("_"))}
    for template, path in files.items():
        text = (SKELETONS / kind / template).read_text(encoding="utf-8")
        try:
            path.write_text(string.Template(text).substitute(words), encoding="utf-8")
        except OSError as error:  # the same command can then be given again
            for written in files.values():
                written.unlink(missing_ok=True)
            if error.errno in FULL:
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise UserError(f"{path} cannot be written ({error.strerror}): choose another --folder or name") from error
    module, config, test = files.values()
    return module, config, test
