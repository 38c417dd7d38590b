"""Numbers that no run could use: outside of the bounds that the schema declares."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.defaults import default_of, value_of, with_value
from rlinf.config.names import facts_of, leaves


def check_ranges(context: Context) -> None:
    """Report each number outside its bounds, and keep the other checks from reading it."""
    for key in leaves():
        number, facts = value_of(context.whole, key), facts_of(key)
        broken = facts.bound_broken_by(number) if isinstance(number, int | float) else None
        if broken is None:
            continue
        bounds, fix = broken
        why = f" ({facts.why})" if facts.why else ""
        context.error(key, f"{key} must be {bounds}, not {number}{why}.", fix)
        context.broken.add(key)
        # The other checks may divide by it; the default lets them judge the rest.
        context.whole = with_value(context.whole, key, default_of(context.whole, key))
