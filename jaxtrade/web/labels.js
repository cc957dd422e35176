"use strict";
// What the figures of `metrics.jsonl` are called, and how ages are.

// Charts in their order: title, and the figures or the prefix of the figures that they show.
const CHARTS = [
  {title: "Return per episode", names: ["episode_reward"]},
  {title: "Profit per episode ($)", names: ["episode_profit"]},
  {title: "KL divergence of an update", names: ["approx_kl"]},
  {title: "Entropy (nats)", names: ["entropy"]},
  {title: "Explained variance of the values", names: ["explained_variance"]},
  {title: "TD loss", names: ["td_loss"]},
  {title: "Exploration (epsilon)", names: ["epsilon"]},
  {title: "Learning rate", names: ["learning_rate"]},
  {title: "Shares of the actions", prefix: "action_share."},
  {title: "How episodes end (shares)", prefix: "end_share."},
  {title: "Advice: share of decisions with it", names: ["advice_share"]},
  {title: "Advice: Brier score", names: ["brier"]},
  {title: "Steps per second", names: ["steps_per_second"]},
];
// Titles of further figures. A figure that is not here is shown by the words of its key.
const LABELS = {
  applied: "Share of updates applied", breaches: "Breaches of account rules", clip_fraction: "Share of clipped ratios",
  ent_coef: "Entropy coefficient", episode_length: "Decisions per episode", episode_trades: "Trades per episode",
  episodes: "Episodes that ended", finite: "Finite (1: yes)", grad_norm: "Norm of the gradient",
  gradient_steps: "Gradient steps", illegal: "Illegal actions by the mask", illegal_executed: "Illegal actions executed",
  lag_max: "Largest lag of actors", lag_min: "Smallest lag of actors", param_delta: "Change of the weights",
  policy_loss: "Policy loss", value_loss: "Value loss", ratio_error: "Error of the first ratio", win_rate: "Win rate",
  q_change: "Change of Q", q_error: "Error of Q", q_max: "Largest Q", q_mean: "Mean Q", replay_ratio: "Replay ratio",
  replay_size: "Steps in the replay", sample_age: "Age of samples", sample_age_max: "Largest age of samples",
  target_mean: "Mean target", target_updates: "Updates of the target network", td_error: "TD error",
};
const MONITOR = {drawdown: "drawdown at the end (share)", length: "decisions", lost: "lost", max_drawdown: "max drawdown (share)",
  return: "return", sharpe: "Sharpe ratio", turnover: "turnover"};

// The words of a key: `MOVE_STOP` -> `Move stop`.
function spoken(key) {
  const words = key.replace(/[._/]+/g, " ").trim();
  const small = words === words.toUpperCase() ? words.toLowerCase() : words;
  return small.charAt(0).toUpperCase() + small.slice(1);
}

function titleOf(name) {
  const parts = name.split("/");
  if (parts[0] === "monitor" && parts.length > 1) {
    const what = MONITOR[parts[parts.length - 1]] || spoken(parts[parts.length - 1]).toLowerCase();
    return `Episodes${parts.length > 2 ? ` of ${parts.slice(1, -1).join(" ")}` : ""}: ${what}`;
  }
  return LABELS[name] || spoken(name);
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "n/a";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  return whole < 172800 ? `${Math.round(whole / 3600)} h` : `${Math.round(whole / 86400)} d`;
}
