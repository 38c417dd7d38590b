"""Scores learned from pairs of answers to one prompt: the model of Bradley and Terry (1952, doi:10.2307/2334029)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from rlinf.data.messages import Metrics


def pair_weights(scores: Tensor, worths: Tensor, group_ids: Tensor) -> Tensor:
    """Compute the weight [N], float64, by which each score should move so that better answers score higher.

    The loss is the mean of ``-log sigmoid(s_better - s_worse)`` over all pairs of a group whose worths differ;
    this is minus its derivative by each score, times N: a learner that takes the mean of ``-weight * score`` over
    N rows has the gradient of the loss. All 0 if no two worths differ.

    >>> pair_weights(torch.tensor([0., 0., 5.]), torch.tensor([1., 0., 1.]), torch.tensor([0, 0, 1]))
    tensor([ 1.5000, -1.5000,  0.0000], dtype=torch.float64)
    """
    scores, weights, pairs = scores.double(), torch.zeros(len(scores), dtype=torch.float64), 0
    for rows, better in _pairs(worths, group_ids):
        behind = torch.sigmoid(scores[rows][None, :] - scores[rows][:, None]) * better
        weights[rows] += behind.sum(dim=1) - behind.sum(dim=0)
        pairs += int(better.sum())
    return weights * len(scores) / max(pairs, 1)


def pairs_in_order(scores: Tensor, worths: Tensor, group_ids: Tensor) -> float:
    """Compute the share of pairs of a group, of unequal worth, whose scores are in the same order.

    Ties count half; NaN without any pair.

    >>> pairs_in_order(torch.tensor([2., 1., 3.]), torch.tensor([1., 0., 0.5]), torch.tensor([0, 0, 0]))
    0.6666666666666666
    """
    right, pairs = 0.0, 0
    for rows, better in _pairs(worths, group_ids):
        ahead = scores[rows].double()[:, None] - scores[rows].double()[None, :]
        right += float((((ahead > 0) + 0.5 * (ahead == 0)) * better).sum())
        pairs += int(better.sum())
    return right / pairs if pairs else float("nan")


def _pairs(worths: Tensor, group_ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each group with unequal worths its rows [M], and [M, M] whether the row's answer beats the column's."""
    for group in group_ids.unique():
        rows = (group_ids == group).nonzero().flatten()
        better = worths[rows][:, None] > worths[rows][None, :]
        if bool(better.any()):
            yield rows, better


def auc(scores: Tensor, labels: Tensor) -> float:
    """Compute the chance that a right response scores above a wrong one (ties count half); NaN without one of each.

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

    ``agreement``: the share of labels that the sign of the score predicts; ``loss``: binary cross-entropy;
    ``gap``: mean probability minus mean label, above 0 if the scores promise more than the labels hold; ``auc``
    if both kinds are there.

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
