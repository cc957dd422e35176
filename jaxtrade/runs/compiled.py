"""The programs of a run: which are kept for the next start, and which are begun before they are needed."""

from __future__ import annotations

from typing import Any

import jax

from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.evaluate import begin_evaluation
from jaxtrade.evaluation.validation import begin_mean_reward
from jaxtrade.rl.state import Policy
from jaxtrade.runs.setup import Setup, policies_of
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.kept import Store
from jaxtrade.types import PyTree


def programs_of(setup: Setup, store: Store | None) -> Programs:
    """The programs of a run. store: where they are kept.

    With parts of the user's own (`imports`), none is kept: such a part may read files, the clock or anything else when
    it is traced, and no key could say so.
    """
    return Programs(None if setup.config.imports else store, setup.facts)


def begin_evaluations(programs: Programs, setup: Setup, state: PyTree, validation: EnvParams | None = None) -> None:
    """Begin the programs that score and evaluate the run's policies. state: the run's state, abstract or not.

    validation: parameters that show the validation sessions, if the run scores its policy on them. With an advisor
    nothing is begun for the evaluation, because the advice that it shows is not known yet.
    """
    policy = _policy_like(setup, state)
    if validation is not None:
        begin_mean_reward(programs, setup.env, validation, setup.splits["validation"], setup.algorithm, policy)
    if setup.fusion is None:
        split = setup.splits[setup.evaluation_split()]
        begin_evaluation(programs, setup.env, setup.params, setup.market, split, setup.config, setup.algorithm,
                         policy.replace(opening=None))


def _policy_like(setup: Setup, state: Any) -> Policy:
    """Shapes and types of one of the run's policies."""
    return jax.eval_shape(lambda state: policies_of(setup, state)[0], state)
