"""Computes losses of reinforcement learning and preferences as pure functions of log probabilities, token by token.

The losses are PPO's clipped surrogate (arXiv 1707.06347) with DAPO's two clips and its mean over all tokens of a batch
(2503.14476), SAPO's soft gate (2511.20347), the clipped value loss, VAPO's loss on positive examples (2504.05118), and
DPO, and the loss of on-policy distillation. The module also has weights for replies of another policy.

The log probabilities of targets are pure functions of logits. A coordinate is a bin of the screen. Its target is spread
over the neighbouring bins,

    q(k) proportional to exp(-(k - t)^2 / (2 sigma^2)),

where t is the exact place in bins. A near miss costs little, so the loss leads the network to the place. With plain
classes, the network would guess one of 101 unrelated classes. Decoding and text do not change.
"""

import torch
from torch import Tensor

LARGEST = 20.0
"""Maximum log ratio; larger values are clamped and have no gradient. Without it, exp overflows from 88 on, and 0 * inf
is NaN."""


def clipped_loss(
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = None,
) -> Tensor:
    """Computes -min(r A, clip(r, 1 - low, 1 + high) A) by token, r = exp(logprobs - old); all shapes are equal.

    With a higher upper clip, rare tokens can gain more (clip-higher). Outside of the clips, the gradient is 0. The log
    ratio is clamped to +-20, as verl does (`compute_policy_loss_vanilla` of `verl/trainer/ppo/core_algos.py`).

    Args:
        logprobs, old, advantages: by token, or by reply for `sequence_ratios`.
        low, high: the clips.
        dual: for A < 0, the loss is at most `dual` |A| (dual clip, arXiv 1912.09729); no bound if not given.
    """
    ratio = (logprobs - old).clamp(-LARGEST, LARGEST).exp()
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1.0 - low, 1.0 + high) * advantages)
    return loss if dual is None else torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)


def soft_gate_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, positive: float = 1.0, negative: float = 1.05
) -> tuple[Tensor, Tensor]:
    """Computes -(4 / tau) sigmoid(tau (r - 1)) A by token, r = exp(logprobs - old) (SAPO, arXiv 2511.20347).

    Instead of a clip, the gradient falls on both sides of r = 1. The log ratio is clamped to +-20.

    Args:
        logprobs, old, advantages: by token; all shapes are equal.
        positive, negative: tau for A > 0, and for any other A; above 0.

    Returns:
        Losses, and the gate's weight of each gradient without gradient, 1 at r = 1 and else in [0, 1); both of the
        arguments' shape.
    """
    ratio = (logprobs - old).clamp(-LARGEST, LARGEST).exp()
    steepness = torch.where(advantages > 0, positive, negative).to(ratio.dtype)
    gate = torch.sigmoid(steepness * (ratio - 1.0))
    kept = gate.detach()
    return -4.0 / steepness * gate * advantages, 4.0 * kept * (1.0 - kept)


def distilled_loss(
    logprobs: Tensor, served: Tensor, teacher: Tensor, max_fall: float = 0.2, ratio_penalty: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Computes -keep r d + ratio_penalty (log r)^2 by token, r = exp(logprobs - served), d = teacher - logprobs.

    d has no gradient. So the gradient at r = 1 is an unbiased estimate of the gradient of KL(policy || teacher), from
    the policy's own tokens. `keep` is 0 for a token whose probability fell by more than `max_fall` since it was
    sampled. The log ratio is clamped to +-20.

    Source: prime-rl @559b447, `trainer/rl/loss.py`, with the advantages of `orchestrator/algo/opd.py`.

    Args:
        logprobs, served, teacher: current, behaviour and the teacher's log probabilities, by token; all shapes are
            equal.
        max_fall: in probability, in [0, 1].
        ratio_penalty: per token, at least 0.

    Returns:
        Losses, and whether each token is kept; both of the arguments' shape.
    """
    log_ratio = (logprobs - served).clamp(-LARGEST, LARGEST)
    kept = logprobs.detach().exp() - served.exp() >= -max_fall
    gain = (teacher - logprobs).detach()
    return ratio_penalty * log_ratio**2 - torch.where(kept, log_ratio.exp() * gain, 0.0), kept


def kl_loss(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Computes r - 1 - log r by token, r = exp(reference - logprobs), an estimate of KL(policy || reference) that is
    never below 0 (k3, joschu.net/blog/kl-approx.html). The log ratio is clamped to +-20."""
    log_ratio = (reference - logprobs).clamp(-LARGEST, LARGEST)
    return log_ratio.exp() - 1.0 - log_ratio


def truncated_weights(old: Tensor, served: Tensor, most: float = 1.0) -> Tensor:
    """Computes min(pi_old / pi_served, C) by token, without gradient, to correct for tokens that another policy
    sampled.

    `served` are the behaviour log probabilities, and `old` are the trainer's before its first step. They differ by
    staleness and by the arithmetic of serving and training (truncated importance sampling of DART-GUI, arXiv
    2509.23866).
    """
    return (old - served).detach().exp().clamp(max=most)


def token_mean(values: Tensor, mask: Tensor, tokens: Tensor | float | None = None) -> Tensor:
    """Computes the sum over the tokens in `mask`, divided by their number.

    Every token has the same weight, whatever the length of its reply (token-level loss of DAPO).

    Args:
        values: by token.
        mask: 1 for tokens that count, same shape.
        tokens: number of tokens of the whole batch if this is a part of it; the sum of the mask if not given.
    """
    counted = mask.sum() if tokens is None else tokens
    return (values * mask).sum() / torch.as_tensor(counted).clamp(min=1)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None = None) -> Tensor:
    """Computes half the squared error against the returns by token; with a clip, the larger of the errors of the plain
    and the clipped value.

    Args:
        values: the critic's current values.
        old: the critic's values when the tokens were generated.
        returns: targets.
        clip: maximum distance of a value from `old` in one update; no clip if not given.
    """
    plain = (values - returns) ** 2
    if clip is None:
        return 0.5 * plain
    near = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum(plain, (near - returns) ** 2)


def positive_loss(logprobs: Tensor, mask: Tensor, correct: Tensor, tokens: Tensor | float | None = None) -> Tensor:
    """Computes VAPO's -log pi, as the mean over the tokens of correct replies; 0 if no reply is correct.

    Args:
        logprobs: (n, T).
        mask: (n, T), 1 for the reply's tokens.
        correct: (n,), whether the reply's trajectory succeeded.
        tokens: number of correct tokens of the whole batch if this is a part of it; counted from the arguments if not
    given.
    """
    return token_mean(-logprobs, mask * correct[:, None].to(mask.dtype), tokens)


def dpo_loss(
    chosen: Tensor, rejected: Tensor, chosen_reference: Tensor, rejected_reference: Tensor, beta: float
) -> Tensor:
    """Computes -log sigmoid(beta ((chosen - chosen_reference) - (rejected - rejected_reference))) by pair, (n,).

    Agent DPO (arXiv 2501.12326, after 2305.18290): each argument is the summed log probability of a reply's thought and
    action tokens, under the policy or under the frozen reference from which it started. The loss is ln 2 if policy and
    reference agree.
    """
    margin = (chosen - chosen_reference) - (rejected - rejected_reference)
    return -torch.nn.functional.logsigmoid(beta * margin)


ROWS = 512
"""Number of rows of logits whose entropies are computed at once."""


def soft_bins(places: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes target shares (n, bins) of places (n,) in bins; with sigma 0, the nearest bin has the whole share."""
    distance = torch.arange(bins) - places[:, None]
    if sigma == 0:
        return torch.nn.functional.one_hot(distance.abs().argmin(1), bins).float()
    return (-(distance**2) / (2 * sigma**2)).softmax(-1)


def token_logprobs(logits: Tensor, targets: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes log probs (n,) of (n,) ids under (n, vocabulary) logits, divided by (n,) temperatures if given."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperatures is not None:
        wide = wide / temperatures[:, None].to(wide.dtype)
    return -torch.nn.functional.cross_entropy(wide, targets, reduction="none")


@torch.no_grad()
def entropies(logits: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Computes entropies (n,), in nats, of (n, vocabulary) logits, divided by (n,) temperatures if given.

    It works in blocks of rows, so that only one block of probabilities is in memory in addition to the logits.
    """
    divisors = temperatures if temperatures is not None else torch.ones(len(logits), device=logits.device)
    found = [
        torch.special.entr((rows.float() / divisor[:, None]).softmax(-1)).sum(-1)
        for rows, divisor in zip(logits.split(ROWS), divisors.float().split(ROWS), strict=True)
    ]
    return torch.cat(found) if found else torch.zeros(0, device=logits.device)


def place_logprobs(logits: Tensor, places: Tensor, first: Tensor, bins: int, sigma: float) -> Tensor:
    """Computes minus the cross entropy against soft bins, (n,): the mean log probability of a place's bins.

    Args:
        logits: (n, vocabulary).
        places: exact targets in bins, (n,).
        first: the token id of each target's bin 0, (n,); the bins of a family have consecutive ids.
        bins: bins per family.
        sigma: spread in bins.
    """
    shares = logits.float().log_softmax(-1).gather(1, first[:, None] + torch.arange(bins))
    return (soft_bins(places, bins, sigma) * shares).sum(-1)
