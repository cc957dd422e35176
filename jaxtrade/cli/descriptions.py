"""One line about each built-in part that does not describe itself without JAX.

A test asks for a line for every one.
"""

from __future__ import annotations

from jaxtrade.text import pairs

MARKETS = pairs(
    """
    NQ  E-mini Nasdaq-100 future
    ES  E-mini S&P 500 future
    YM  E-mini Dow future
    RTY  E-mini Russell 2000 future
    MNQ  Micro E-mini Nasdaq-100 future
    MES  Micro E-mini S&P 500 future
    M2K  Micro E-mini Russell 2000 future
    MYM  Micro E-mini Dow future
    GC  gold future, 100 troy ounces
    CL  crude oil future, 1,000 barrels
    MGC  micro gold future, 10 troy ounces
    MCL  micro crude oil future, 100 barrels
    6E  euro future, 125,000 EUR
    EURUSD  euro against dollar, a lot of 100,000 EUR
    GBPUSD  pound against dollar, a lot of 100,000 GBP
    USDJPY  dollar against yen, a lot of 100,000 USD
    USDCHF  dollar against Swiss franc, a lot of 100,000 USD
    """
)
REWARDS = pairs(
    """
    equity_change  the change of equity in units of the account's risk; the default
    seed_phase1  RL-Trainer, phase 1: profit of closed trades, less time in a position and breaches
    seed_phase1_fork  a fork of RL-Trainer, phase 1: the same, and a bonus for bars without a position
    seed_phase2  RL-Trainer, phase 2: wins, losses, managed stops and the level of profit
    seed_phase2_fork  a fork of RL-Trainer, phase 2: larger weights, and the level of the return
    seed_phase3  RL-Trainer, phase 3: the weights of its phase 2
    seed_phase3_fork  a fork of RL-Trainer, phase 3: the weights of its phase 2
    jules_net  IntradayJules: the relative change of equity, net of costs
    jules_realised  IntradayJules: booked profit less costs (env.task=allocate)
    jules_turnover  IntradayJules: jules_net less a share of the turnover (env.task=allocate)
    jules_v2  IntradayJules V2: jules_net less turnover and returns, both squared (env.task=allocate)
    jules_drawdown  IntradayJules: jules_net less the drawdown squared (env.task=allocate)
    jules_downside  IntradayJules V3: jules_net less losses squared and changes (env.task=allocate)
    """
)
TERMS = pairs(
    """
    equity_change  change of equity in the bar, in risk units
    net_return  change of equity in the bar, as a share of the start balance
    closed_profit  dollars: profit of the round turns closed in the bar, after commissions
    win  round turns closed with a profit after commissions
    loss  round turns closed without a profit after commissions
    trail_win  wins with the trail on
    in_position  1 if a position is open at the bar's close
    flat  1 if nothing is held at the close and nothing was closed in the bar
    floor_reached  1 if equity reached the drawdown floor or the daily floor
    forced_flat  1 if the flat bar of the session closed the position
    breakeven_moved  1 for a legal MOVE_STOP_TO_BREAKEVEN
    trail_enabled  1 for a legal ENABLE_TRAIL
    trail_enabled_in_profit  1 for a legal ENABLE_TRAIL in profit, -1 for another one
    profit_level  dollars: equity above the start balance, in every bar
    return_level  equity against the start balance as a share, in every bar
    illegal  1 for an action outside the mask
    illegal_management  1 for an action outside the mask that manages a position
    realised_return  booked profit less costs as a share of the start balance (env.task=allocate)
    cost_share  costs of the bar as a share of the start balance (env.task=allocate)
    turnover  notional traded as a share of the start balance (env.task=allocate)
    turnover_squared  its square (env.task=allocate)
    return_squared  the square of net_return: realised variance (env.task=allocate)
    loss_squared  the same of losses alone (env.task=allocate)
    drawdown  equity below its peak as a share of the start balance, in every bar (env.task=allocate)
    drawdown_squared  its square (env.task=allocate)
    trades_ordered  number of symbols that an order traded (env.task=allocate)
    position_changed  1 if an order traded any symbol (env.task=allocate)
    """
)
TASKS = pairs(
    """
    entry  HOLD, BUY and SELL; each position has a fixed stop and target
    manage  also moves the stop to break-even, trails it, and closes the position
    advised  the actions of manage; also shows the bar's context, the trade record and, if wanted, advice
    allocate  target positions of several symbols in one account (data.markets, allocate.actions)
    """
)
NETWORKS = pairs(
    """
    mlp  a torso of dense layers each for policy and value, without memory
    gru  the same, behind a recurrent layer that remembers the episode
    """
)
LEARNERS = pairs(
    """
    ppo  proximal policy optimisation with action masks
    dqn  DQN: a replay on the device, double, dueling, n steps; action masks in choice and targets
    pqn  Q(lambda) without a replay: the fast learner of action values
    """
)
ADVISORS = pairs(
    """
    off  no advisor; nothing of it is compiled
    none  compiled, but never answers: for comparisons
    rules  the rules of RL-Trainer's prompt, as code; the bars need a volume
    http://HOST/v1  an OpenAI-compatible server (also https); of several models name one, advisor.options.model
    ollama:NAME  the model NAME of Ollama on this machine
    openai:NAME  the model NAME of OpenAI; its key is in OPENAI_API_KEY
    vllm:URL  the only model of a vLLM server
    table:FILE  a snapshot that `jaxtrade advise precompute` has written
    recorded:FILE  recorded answers, one JSON object per line
    replay:JOURNAL  the answers of an earlier run, from its journal
    mock:random  random direction and confidence: no skill
    mock:persistent:BARS  a random side, kept for BARS bars on average: no skill
    mock:constant:C  the same advice about every bar, with confidence C
    mock:skilled:Q  right with probability Q; reads the future
    mock:oracle  always right; reads the future
    mock:adversarial:Q  wrong with probability Q; reads the future
    mock:overconfident:Q  right with probability Q, and says that it is surer than it is
    mock:underconfident:Q  right with probability Q, and says that it is less sure than it is
    mock:shifted/OTHER  another advisor's answers, moved by whole sessions: the placebo
    mock:permuted/OTHER  another advisor's answers, shuffled over the bars
    mock:delayed:N/OTHER  another advisor's answers, N bars late
    mock:available:P/OTHER  another advisor's answers, for a share P of the bars
    mock:turning:BAR/OTHER  another advisor's answers, and from a bar on those of advisor.options.then
    mock:slow:S/OTHER  another advisor's answers, after S seconds of real time
    mock:failing  always fails
    """
)
TEMPLATES = pairs(
    """
    v1  one bar's indicators; the default
    bar  another name of v1
    no_volume  the same without VWAP, for bars without volume
    anonymous  indicators alone, without date and price level
    pipe  RL-Trainer's form of answer: ACTION | confidence | reason
    window  adds the last bars, longer bars, the session's levels, news and events if given
    desk  adds to window the account's rules and costs, and the advisor's own scored record
    """
)
PARAMETRIC = pairs(
    """
    sma_N  mean of the last N closes
    ema_N  exponential mean of the closes, started with the mean of N
    rsi_N  Wilder's RSI over N bars
    atr_N  Wilder's ATR over N bars
    """
)
