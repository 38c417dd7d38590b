"""The argument parser of every command: a mistyped command, option or choice is answered with the nearest valid one."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rlinf.base.hydra_words import FLAGS

_ALIKE, _ALIKE_OPTION = 0.6, 0.7
"""Least similarity (0 to 1) of a suggested choice, and of a suggested option: `--seed` is a key and no `--set`."""


_RESUME = ("resume", "continue", "restart", "restore")
"""Beginnings of the options that other programs have to go on with a run; `--auto-resume` is one of them too."""

RESUMES = (
    "the same command resumes a run, from the newest checkpoint in its run.dir. run.dir=DIR names another run, and "
    "run.init_from=DIR starts a new one with its weights"
)
"""How a training command goes on with a run."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest what was probably meant."""

    resumes = ""
    """How the command goes on with a run, where it does: the answer to `--resume`, which no command has."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Check the option names first: otherwise a missing FILE would hide a mistyped option."""
        # In commands that take `key=value`, name what does the same as an option of Hydra.
        words = args or ()
        own = {option for action in self._actions for option in action.option_strings}
        names = (word.partition("=")[0] for word in words)
        name = next((name for name in names if name in FLAGS and name not in own), None) if self.resumes else None
        if name is not None:
            self.error(f"{name} is an option of Hydra or other programs; here: {FLAGS[name].format(prog=self.prog)}")
        for word in self._own_words(args or ()):
            name = word.partition("=")[0]
            options = [option.removeprefix("--") for option in self._options()]
            if self.resumes and not self._accepts(name) and is_about_resuming(name.strip("-")):
                self.error(f"unrecognized option {name}: {self.resumes}")
            close = [] if self._accepts(name) else nearest(name.removeprefix("--"), options, alike=_ALIKE_OPTION)
            if close:
                self.error(f"unrecognized option {name}; did you mean --{close[0]}?")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the message and the way to the help; exit with code 2."""
        message = message.removesuffix(", key=value")  # optional, but argparse lists it with what is missing
        self.exit(2, f"{self.prog}: error: {message}\nUsage and options: {self.prog} --help\n")

    def _own_words(self, words: Sequence[str]) -> Iterable[str]:
        """Yield the long options among ``words`` that are this parser's, not those of a subcommand or behind `--`."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            if word.startswith("--"):
                yield word

    def _options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings if option.startswith("--")]

    def _accepts(self, name: str) -> bool:
        return any(option.startswith(name) for option in self._options())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            close = nearest(str(value), map(str, action.choices or ()))
            # The list of all choices is long, and of no use if the nearest one is right.
            message = f"there is no {value!r}; did you mean {close[0]!r}?" if close else error.message
            raise argparse.ArgumentError(action, message) from None


def positive(text: str) -> int:
    """Read a whole number above 0 from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def is_about_resuming(name: str) -> bool:
    """Return whether the name of an option or a key means that a run is resumed.

    >>> is_about_resuming("resume-from"), is_about_resuming("auto_resume"), is_about_resuming("result")
    (True, True, False)
    """
    return name.replace("_", "-").removeprefix("auto-").startswith(_RESUME)


def nearest(word: str, known: Iterable[str], *, alike: float = _ALIKE) -> list[str]:
    """Return the known word that is most similar to ``word``, in a list that is empty if none is similar.

    >>> nearest("trian", ["train", "try", "eval"])
    ['train']
    """
    return difflib.get_close_matches(word, list(known), n=1, cutoff=alike)
