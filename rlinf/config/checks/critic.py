"""Values: who needs a critic, and whether there is one."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.config.context import Context
from rlinf.config.facts import is_off_policy

_READS = ("algorithm.adv_type", "algorithm.loss_type", "policy.name", "policy.value_head")


def check_critic(context: Context) -> None:
    """A critic that is needed must exist and be trained; one that is not needed costs memory."""
    algorithm, policy = context.config.algorithm, context.config.policy
    if is_off_policy(context.config) or context.is_broken("algorithm.adv_type", "algorithm.loss_type"):
        return
    advantage, loss = catalog.estimator(algorithm.adv_type), catalog.loss(algorithm.loss_type)
    estimator_needs, loss_trains = "values" in advantage.needs, "values" in loss.needs
    # An actor-critic always has one, and a policy of somebody's own says it by its values.
    if policy.name != "actor_critic" and ":" not in policy.name:
        if (estimator_needs or loss_trains) and not policy.value_head:
            who = f"adv_type: {algorithm.adv_type}" if estimator_needs else f"loss_type: {algorithm.loss_type}"
            message = f"{who} needs values, and this policy has no critic."
            fix = "Set policy.value_head: true, or choose adv_type: grpo with loss_type: actor."
            key = "algorithm.adv_type" if estimator_needs else "algorithm.loss_type"
            context.error(key, message, fix, reads=_READS)
            return
        if policy.value_head and not estimator_needs and not loss_trains:
            why = f"is not read by adv_type: {algorithm.adv_type} with loss_type: {algorithm.loss_type}."
            context.unread("policy.value_head", why, "It is read by adv_type: gae.", reads=_READS)
        if not policy.value_head:
            context.unread("learner.optimizer.critic_lr", "is not read without a critic.", "Take it out.", reads=_READS)
    if estimator_needs and not loss_trains:
        message = f"adv_type: {algorithm.adv_type} needs a critic that learns, and loss_type: {algorithm.loss_type}"
        message += " does not train one."
        context.error("algorithm.loss_type", message, "Set loss_type: actor_critic.", reads=_READS)
