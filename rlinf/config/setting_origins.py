"""The file and line behind an environment's message about its settings; no check of the file alone finds them."""

from __future__ import annotations

import re

from rlinf.base.errors import UserError, exit_code_of, is_user_error
from rlinf.config.dump import at, to_mapping
from rlinf.config.experiment import Config

_SECTIONS = ("env.kwargs", "evaluation.env_kwargs")


def placed(config: Config, message: str) -> str:
    """Put the file, line and key of the setting before a ``message`` about an environment's setting.

    A message that is about none, and one of a configuration without files, stays as it is.
    """
    section = next((name for name in _SECTIONS if re.match(rf"{re.escape(name)}\b", message)), None)
    if section is None:
        return message
    keys = [key for key in config.origins if key.startswith(tuple(f"{name}." for name in _SECTIONS))]
    named = [key for key in keys if re.search(rf"(?<!\w){re.escape(key.rpartition('.')[2])}\b", message)]
    # Of several with a name the one whose value is named too, then the one that lies deepest.
    plain = to_mapping(config)
    ranks = {key: (str(at(plain, key.split("."))) in message, key.count(".")) for key in named}
    key = max(named, key=ranks.__getitem__, default=section)
    if key not in config.origins:
        return message
    text = message.removeprefix(f"{section}: ")
    about = text if text.startswith(section) else f"{key}: {text}"
    return f"{config.origins[key]}: {about}"


def with_origin(config: Config, error: Exception) -> Exception:
    """Return ``error``, or the same UserError with the position of the setting that it is about."""
    if not is_user_error(error) or exit_code_of(error) != UserError.exit_code:
        return error
    message = placed(config, str(error))
    return error if message == str(error) else UserError(message)
