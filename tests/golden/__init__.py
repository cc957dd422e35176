"""Tests born from bugs that an earlier project's environments had (IntradayJules), G1 to G14. One
file for each, but:

G11 a return of n steps by hand: `tests/rl/test_replay.py`, `test_n_step_returns_by_hand` G12 an
agent of a population equals the agent alone: `tests/rl/test_population.py`, and of each
    learner `tests/rl/test_agents.py`
G14 the replay against a list: `tests/rl/test_replay.py`, `test_it_is_the_newest_rows_of_a_list`
"""
