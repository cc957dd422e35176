"""Proximal policy optimisation (Schulman et al. 2017) with action masks, as pure functions of a
static context.

The rollout stores references. Each minibatch rebuilds observations and masks from them, with the
function and the observation statistics that were used for acting. The probability ratio is
therefore 1 until the first gradient step (metric `ratio_error`). The memory of a recurrent policy
is rebuilt too. It starts from its value at the beginning of the rollout, runs through all steps,
and is reset at the start of each episode. Gradients flow through these steps.

    act       context, tunable floats, network; acting, and the output for the rows of a rollout
    loss      the loss and its gradient; the rollout of an older policy, as the one that learns sees it
    update    one update: rollout, advantages, targets, epochs, metrics
    make      make_ppo; health checks, warnings, console columns

What other learners share is one level up: `rl.acting`, `rl.collecting`, `rl.epochs`, `rl.metrics`,
`rl.form`.
"""

from jaxtrade.rl.algorithms import Head, Learner
from jaxtrade.rl.ppo.act import first_policy
from jaxtrade.rl.ppo.make import make_ppo

LEARNER = Learner(make_ppo, first_policy, Head("policy_head"), divides=True)

__all__ = ["LEARNER", "make_ppo"]
