"""DQN with action masks (Mnih et al. 2015): double (van Hasselt et al. 2016), dueling (Wang et al.
2016), returns of n steps, uniform or prioritised replay (Schaul et al. 2016).

Each update acts epsilon-greedily in all environments, writes the rollout into a replay on the
device, and takes
`replay_ratio` x environment steps / `batch_size` gradient steps on samples from it. The replay holds references:
observations are rebuilt from them, as PPO does, and normalised by today's statistics.

    state     tunable floats; replay, priorities and target network
    loss      targets, Huber loss
    learn     the gradient steps of an update
    update    one update: rollout, replay, gradient steps, metrics
    make      make_dqn
"""

from jaxtrade.rl.algorithms import Learner
from jaxtrade.rl.dqn.make import make_dqn
from jaxtrade.rl.q.context import HEAD, first_policy

LEARNER = Learner(make_dqn, first_policy, HEAD, divides=True)

__all__ = ["LEARNER", "make_dqn"]
