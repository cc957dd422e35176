"""The programs of a run that are begun before they are needed."""

from __future__ import annotations

import jax

from jaxtrade.config.allocate import TASK
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.evaluate import begin_evaluation
from jaxtrade.evaluation.validation import begin_total_rewards
from jaxtrade.runs.scoring import rules_of
from jaxtrade.runs.setup import Setup, policies_of
from jaxtrade.runs.symbols import policy_for, steps_of
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import PyTree


def begin_for_run(
    programs: Programs, setup: Setup, state: PyTree, validation: EnvParams | None
) -> None:
    """Begin the programs that score and evaluate the policies of a run that trains.

    state: the run's state, abstract or not. validation: parameters that show the validation
        sessions, if the run
    scores its policy on them.
    """
    policy = jax.eval_shape(lambda state: policies_of(setup, state)[0], state)
    if validation is not None and setup.config.env.task != TASK:
        symbol, own = next(iter(setup.symbols.items()))  # its program serves every symbol
        begin_total_rewards(
            programs,
            own.env,
            rules_of(setup, symbol, validation),
            own.splits["validation"],
            own.algorithm,
            [policy_for(setup, policy, symbol)] * setup.stack.count,
            steps_of(setup, "validation"),
        )
    begin_evaluations(programs, setup, policy.replace(opening=None), setup.evaluation_split())


def begin_evaluations(programs: Programs, setup: Setup, policy: PyTree, split: str) -> None:
    """Begin the programs that evaluate policies on a split. policy: one of them, abstract or not.

    Does nothing for a run with an advisor, because the advice that an evaluation shows is not known
    yet, or for a split without sessions.
    """
    if setup.config.env.task == TASK:
        return  # its programs are few, and compiled when they are needed
    if setup.fusion is None and int(setup.splits[split].count):
        symbol, own = next(
            iter(setup.symbols.items())
        )  # the programs of one symbol serve all of them
        begin_evaluation(
            programs,
            own.env,
            own.params,
            own.single,
            own.splits[split],
            own.config,
            own.algorithm,
            policy_for(setup, policy, symbol),
            steps_of(setup, split),
        )
