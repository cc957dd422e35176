"""Proximal policy optimisation (Schulman et al. 2017) with action masks, as pure functions of a static context.

The rollout stores references. Observations and masks are rebuilt from them for each minibatch by the same function that
acted, with the same observation statistics, so the probability ratio is 1 until the first gradient step (metric
`ratio_error`). The memory of a recurrent policy is rebuilt too: from what it was when the rollout began, through all of
the rollout's steps, and it is forgotten where an episode begins. Gradients flow through the same steps.

    context   the static half: configuration, environment, network, fusion, stage
    state     the carried half: TrainState, HParams
    network   the network and its first parameters
    act       acting, and the policy's output for a rollout's rows
    rollout   acting in all environments, advantages, targets
    loss      the loss and its gradient
    update    one update: rollout, epochs, metrics
    reports   health checks, warnings, console columns
    make      make_ppo
"""

from jaxtrade.rl.algorithms import Learner
from jaxtrade.rl.ppo.make import make_ppo
from jaxtrade.rl.ppo.network import first_policy

LEARNER = Learner(make_ppo, first_policy)

__all__ = ["LEARNER", "make_ppo"]
