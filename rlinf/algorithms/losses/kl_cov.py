"""KL-Cov: a KL penalty on the positions of highest covariance (Cui et al., arXiv:2505.22617)."""

from __future__ import annotations

from rlinf.algorithms.objective import LossInputs, TokenLoss


def kl_cov(x: LossInputs, *, cov_kl_coef: float = 1.0) -> TokenLoss:
    """Compute ``-A rho``, plus ``cov_kl_coef |logp - old|`` on the ``selected`` positions, [B, T].

    For the selection see ``covariance.highest``.

    >>> import torch
    >>> x = LossInputs.clean(torch.ones(1, 2).bool(), logprobs=torch.full((1, 2), 2.).log(),
    ...     old_logprobs=torch.zeros(1, 2),
    ...                      advantages=torch.ones(1, 2), selected=torch.tensor([[True, False]]))
    >>> kl_cov(x).policy
    tensor([[-1.3069, -2.0000]])
    """
    if x.selected is None:
        raise ValueError("loss_type kl_cov penalises the selected positions: give them (Objective.select)")
    penalty = cov_kl_coef * x.log_ratio.abs() * x.selected
    return TokenLoss(penalty - x.advantages * x.ratio, metrics={"selected_fraction": x.selected})
