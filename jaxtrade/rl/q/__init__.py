"""What all Q-learners share: the policy that acts on Q values, its exploration, its state and its
reports.

A Q-learner's policy takes the legal action with the largest Q; of equal ones that with the lowest
id. While it explores, it takes a random legal action with probability epsilon instead, from the one
uniform number that every learner's `act` draws. An illegal action has probability exactly 0.

    context   the static part, and the Q-network
    act       Q values of references, acting
    state     the tunable floats, epsilon, the policy of a state
    rollout   acting in all environments
    reports   health checks, warnings, console columns
    make      the parts of an `Algorithm` that do not depend on the learner
"""
