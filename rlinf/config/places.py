"""The file and line behind what an environment says of its settings, which no check of the file alone can find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rlinf.base.errors import UserError, exit_code_of, is_user_error
from rlinf.config.dump import at, to_mapping
from rlinf.config.experiment import Config

_SECTIONS = ("env.kwargs", "evaluation.env_kwargs")


def placed(config: Config, message: str) -> str:
    """The ``message`` about a setting of an environment, behind the file, the line and the key that wrote it.

    A message that is about none, and one of a configuration without files, stays as it is.
    """
    section = next((name for name in _SECTIONS if re.match(rf"{re.escape(name)}\b", message)), None)
    if section is None:
        return message
    keys = [key for key in config.places if key.startswith(tuple(f"{name}." for name in _SECTIONS))]
    named = [key for key in keys if re.search(rf"(?<!\w){re.escape(key.rpartition('.')[2])}\b", message)]
    # Of several with a name the one whose value is named too, then the one that lies deepest.
    key = max(named, key=lambda key: (_names_value(config, key, message), key.count(".")), default=section)
    if key not in config.places:
        return message
    said = message.removeprefix(f"{section}: ")
    about = said if said.startswith(section) else f"{key}: {said}"
    return f"{config.places[key]}: {about}"


@contextmanager
def naming_places(config: Config) -> Iterator[None]:
    """Name the place of a setting in a UserError that is about it."""
    try:
        yield
    except Exception as error:
        said = placed(config, str(error)) if is_user_error(error) else str(error)
        if said == str(error) or exit_code_of(error) != UserError.exit_code:
            raise
        raise UserError(said) from error


def _names_value(config: Config, key: str, message: str) -> bool:
    value = at(to_mapping(config), tuple(key.split(".")))
    return str(value) in message
