"""Cross-field checks: one small file a topic. Each reads a :class:`Context` and reports what cannot work."""

from __future__ import annotations

from collections.abc import Callable

from rlinf.config.checks.agents import check_agents
from rlinf.config.checks.algorithm import check_algorithm, check_environment_tokens
from rlinf.config.checks.batch import check_batch
from rlinf.config.checks.cluster import check_cluster
from rlinf.config.checks.columns import check_columns, check_critic
from rlinf.config.checks.engine_flags import check_engine_flags
from rlinf.config.checks.files import check_files
from rlinf.config.checks.kind import check_kind
from rlinf.config.checks.megatron import check_megatron
from rlinf.config.checks.notebook import check_notebook
from rlinf.config.checks.own import check_own_functions, check_own_policy
from rlinf.config.checks.policy import check_policy, check_vision
from rlinf.config.checks.reward_model import check_reward_model
from rlinf.config.checks.router_replay import check_router_replay
from rlinf.config.checks.run import check_evaluation, check_run
from rlinf.config.checks.sampler import check_sampler
from rlinf.config.checks.schedule import check_schedule
from rlinf.config.checks.simulator import check_acting, check_simulator
from rlinf.config.checks.tasks import check_curriculum, check_pool, check_tasks
from rlinf.config.checks.teacher import check_teacher
from rlinf.config.checks.tokens import check_tokens
from rlinf.config.checks.vla import check_vla
from rlinf.config.context import Context
from rlinf.config.defaults import default_of, value_of, with_value
from rlinf.config.names import facts_of, leaves


def _check_ranges(context: Context) -> None:
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


# Ranges come first: the others may then divide, and a key that is out of range is not judged twice.
CHECKS: tuple[Callable[[Context], None], ...] = (
    _check_ranges,
    check_run,
    check_own_policy,
    check_kind,
    check_notebook,
    check_tasks,
    check_pool,
    check_curriculum,
    check_agents,
    check_own_functions,
    check_policy,
    check_vision,
    check_files,
    check_batch,
    check_tokens,
    check_algorithm,
    check_environment_tokens,
    check_critic,
    check_columns,
    check_reward_model,
    check_teacher,
    check_sampler,
    check_engine_flags,
    check_router_replay,
    check_schedule,
    check_simulator,
    check_acting,
    check_vla,
    check_megatron,
    check_cluster,
    check_evaluation,
)


def run_checks(context: Context) -> None:
    """Every check."""
    for check in CHECKS:
        context.run(check)
