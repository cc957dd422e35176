"""Proximal policy optimisation (Schulman et al. 2017) with action masks, as pure functions of a
static context.

The rollout stores references. Each minibatch rebuilds observations and masks from them, with the
function and the observation statistics that were used for acting. The probability ratio is
therefore 1 until the first gradient step (metric `ratio_error`). The memory of a recurrent policy
is rebuilt too. It starts from its value at the beginning of the rollout, runs through all steps,
and is reset at the start of each episode. Gradients flow through these steps.

    context   the static part (`rl.context`): configuration, environment, network, fusion, stage
    state     the tunable floats, and the policy of a `rl.train_state.TrainState`
    network   the network and its initial parameters
    act       acting, and the policy's output for the rows of a rollout
    rollout   acting in all environments, advantages, targets
    judged    the rollout of an older policy, as the policy that learns sees it
    loss      the loss and its gradient
    update    one update: rollout, epochs, metrics
    reports   health checks, warnings, console columns
    make      make_ppo

What other learners share is one level up: `rl.acting`, `rl.collecting`, `rl.epochs`, `rl.metrics`,
`rl.form`.
"""

from jaxtrade.rl.algorithms import Head, Learner
from jaxtrade.rl.ppo.make import make_ppo
from jaxtrade.rl.ppo.network import first_policy

LEARNER = Learner(make_ppo, first_policy, Head("policy_head"), divides=True)

__all__ = ["LEARNER", "make_ppo"]
