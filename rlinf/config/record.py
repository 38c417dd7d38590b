"""The copy of a configuration that a run keeps, shows and sends to trackers: complete, but without secrets.

What came from an environment variable is stored as the ``${oc.env:...}`` that was written, and values of `cluster.env`
are masked.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlinf.config.dump import at, block_yaml, differences, flat, to_mapping
from rlinf.schema import Sections

MASK = "***"
_REFERENCE = re.compile(r"\$\{oc\.env:\s*\w+\s*\}")


def stored(config: Sections) -> dict[str, Any]:
    """Plain nested data to keep, show and send: expressions instead of their values, `cluster.env` masked."""
    return masked(written(config))


def stored_yaml(config: Sections) -> str:
    """Write the same as YAML text, in the order of the schema."""
    return block_yaml(stored(config))


def written(config: Sections) -> dict[str, Any]:
    """As :func:`stored`, but with the values of `cluster.env`: what another process of this user can start from."""
    plain: dict[str, Any] = to_mapping(config)
    for path, (expression, value) in config.expressions.items():
        around: Any = at(plain, path[:-1])
        if at(plain, path) != value:
            continue  # exchanged since: a later value is not that of the expression
        if isinstance(around, dict):
            around[path[-1]] = expression
        elif isinstance(around, list):
            around[int(path[-1])] = expression
    return plain


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Mask the values of `cluster.env` in a stored configuration; those that only name a variable stay."""
    cluster = config.get("cluster")
    env = cluster.get("env") if isinstance(cluster, Mapping) else None
    if not isinstance(cluster, Mapping) or not isinstance(env, Mapping):
        return dict(config)
    hidden = {name: text if _REFERENCE.fullmatch(str(text)) else MASK for name, text in env.items()}
    return {**config, "cluster": {**cluster, "env": hidden}}


@dataclass(frozen=True)
class ConfigRecord:
    """A configuration as a run directory keeps it, and compares it with an earlier one."""

    text: str
    """:func:`stored_yaml`."""
    values: Mapping[str, str]
    """Every dotted key with its value as YAML text."""
    expressions: Mapping[str, tuple[str, object]]
    """Dotted key -> (the ``${oc.env:...}`` written there, its value)."""

    @classmethod
    def of(cls, config: Sections) -> ConfigRecord:
        """Build the record of ``config``."""
        expressions = {".".join(path): result for path, result in config.expressions.items()}
        return cls(stored_yaml(config), flat(config), expressions)

    def changes(self, later: ConfigRecord) -> list[str]:
        """List the lines of :func:`rlinf.config.diff` from this one to a later one."""
        return differences(self.values, later.values)

    def environment_digests(self, salts: Mapping[str, str] | None = None) -> dict[str, str]:
        """Dotted key -> salted digest of the value that its expression has now: a later session can tell a change.

        ``salts`` are the digests to compare with: theirs are taken.
        """
        known = salts or {}
        results = {}
        for key, (_, value) in self.expressions.items():
            salt = known[key].partition("$")[0] if key in known else secrets.token_hex(16)
            text = json.dumps(value, sort_keys=True, default=str).encode()
            results[key] = f"{salt}${hashlib.scrypt(text, salt=salt.encode(), n=2**14, r=8, p=1).hex()}"
        return results
