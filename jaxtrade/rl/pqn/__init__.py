"""PQN, parallelised Q-network (Gallici et al. 2024, "Simplifying Deep Temporal Difference
Learning").

Each update acts epsilon-greedily in all environments, computes Q(lambda) targets over the rollout,
and fits the Q values of the taken actions to them in epochs of minibatches. There is no replay and
no target network: many environments decorrelate the rows, and LayerNorm keeps the bootstrapped
values bounded.

    loss      the loss over a minibatch, and its gradient
    update    one update: rollout, targets, epochs, metrics
    make      make_pqn
"""

from jaxtrade.rl.algorithms import Learner
from jaxtrade.rl.pqn.make import make_pqn
from jaxtrade.rl.q.context import HEAD, first_policy

LEARNER = Learner(make_pqn, first_policy, HEAD, divides=True)

__all__ = ["LEARNER", "make_pqn"]
