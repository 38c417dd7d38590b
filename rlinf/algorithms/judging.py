"""How well scores tell right from wrong: what a learned reward is worth against a verifier."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rlinf.types import Metrics


def auc(scores: Tensor, labels: Tensor) -> float:
    """The chance that a right response scores above a wrong one (ties count half); NaN without one of each.

    >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0., 0., 1., 1.]))
    0.875
    """
    right, wrong = scores[labels > 0.5].double(), scores[labels <= 0.5].double()
    if not len(right) or not len(wrong):
        return float("nan")
    ordered = wrong.sort().values
    below = torch.searchsorted(ordered, right)
    upto = torch.searchsorted(ordered, right, right=True)
    return float((below + upto).double().mean() / (2 * len(wrong)))


def judging_metrics(scores: Tensor, labels: Tensor) -> Metrics:
    """Metrics of scores (logits) [N] against labels [N] in [0, 1].

    ``agreement``: the share of labels that the sign of the score tells; ``loss``: binary cross-entropy; ``gap``: mean
    probability minus mean label, above 0 where the scores promise more than the labels hold; ``auc`` where both kinds
    are there.

    >>> found = judging_metrics(torch.tensor([2., -1.]), torch.tensor([1., 1.]))
    >>> {name: round(value, 4) for name, value in found.items()}
    {'agreement': 0.5, 'loss': 0.7201, 'gap': -0.4251, 'label': 1.0}
    """
    if not len(scores):
        return {}
    scores, labels = scores.double(), labels.double()
    metrics = {
        "agreement": float(((scores > 0) == (labels > 0.5)).double().mean()),
        "loss": float(functional.binary_cross_entropy_with_logits(scores, labels)),
        "gap": float((scores.sigmoid() - labels).mean()),
        "label": float(labels.mean()),
    }
    area = auc(scores, labels)
    return metrics if area != area else {**metrics, "auc": area}
