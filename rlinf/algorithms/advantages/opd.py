"""On-policy distillation: the teacher's log-probability of each token against the policy's own."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages


def opd(x: AdvantageInputs) -> Advantages:
    """``A_t = log p_teacher(y_t) - log p(y_t)``: minus one sample of the token's reverse KL, KL(policy || teacher).

    The gradient of the policy-gradient loss is in expectation that of the exact reverse KL of each token, given the
    tokens before it; what a token does to the KL of later ones is left out. Sources: Agarwal et al.
    (arXiv:2306.13649) and MiniLLM (arXiv:2306.08543); one sample of it as the advantage: Thinking Machines Lab 2025,
    thinkingmachines.ai/blog/on-policy-distillation. Without teacher_logprobs a ValueError.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("opd", rewards=torch.zeros(1), mask=torch.ones(1, 2).bool(), group_ids=torch.tensor([0]),
    ...     logprobs=torch.tensor([[-1., -2.]]), teacher_logprobs=torch.tensor([[-1.5, -.5]])).advantages
    tensor([[-0.5000,  1.5000]])
    """
    if x.teacher_gains is None:
        raise ValueError("adv_type opd needs teacher_logprobs")
    return Advantages(x.teacher_gains, x.teacher_gains)
