"""The equations of TraC's paper on tensors: how much a segment weighs, its score, and the two losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from tracrl.data.partition import Partition


def weights(parts: Partition, delta: float) -> NDArray[np.float32]:
    """w of each segment, from v̂, its return on a scale from 0 to 1; 0 for what is left out."""
    desirable, poor, unsafe, middle = parts.scaled_returns
    w_desirable = desirable * (1 - delta) + delta  # equation 2
    w_poor = (1 - poor) * (1 - delta) + delta  # equation 3; what is unsafe weighs 1
    return np.concatenate([w_desirable, w_poor, np.ones(len(unsafe)), np.zeros(len(middle))]).astype(np.float32)


def log_prob(mean: Tensor, action: Tensor) -> Tensor:
    """log π(a|s) of a Gaussian of fixed variance, constants dropped: −‖μ(s) − a‖² (appendix A)."""
    return -(mean - action).square().sum(-1)


def score(log_pi: Tensor, log_ref: Tensor, discount: Tensor, alpha: float) -> Tensor:
    """ψ(τ) = α Σ_t γ^t [log π(a_t|s_t) − log π_ref(a_t|s_t)] (equation 7); ``discount`` is γ^t, 0 behind the end."""
    return alpha * (discount * (log_pi - log_ref)).sum(-1)


def classification_loss(psi: Tensor, desirable: Tensor, weight: Tensor, lambda_d: Tensor, lambda_u: Tensor) -> Tensor:
    """Equation 11 with f = σ(ψ): −E[λ_d w y log σ(ψ) + λ_u w (1 − y) log(1 − σ(ψ))], one value per run.

    log σ(−ψ) = log(1 − σ(ψ)), without the overflow that forces others to clamp probabilities.
    """
    attract = lambda_d[:, None] * desirable * logsigmoid(psi)
    repel = lambda_u[:, None] * (1 - desirable) * logsigmoid(-psi)
    return -(weight * (attract + repel)).mean(-1)


def cloning_loss(log_pi: Tensor, valid: Tensor) -> Tensor:
    """−E[log π(a|s)] over the steps of a batch that are inside their episode, one value per run."""
    return -(valid * log_pi).sum((-2, -1)) / valid.sum((-2, -1))
