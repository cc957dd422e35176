"""Names of Stable-Baselines3 (SB3) and what stands for them here."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtrade.text import pairs

# Parameters of Stable-Baselines3, by learner -> the key of the learner's section that takes the
# same value.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "dqn": pairs(
        """
        gamma  gamma
        batch_size  batch_size
        buffer_size  buffer_size
        learning_starts  learning_starts
        target_update_interval  target_every
        n_steps  n_steps
        exploration_fraction  epsilon_until
        exploration_initial_eps  epsilon
        exploration_final_eps  epsilon_end
        max_grad_norm  max_grad_norm
        prioritized_replay_alpha  priority_alpha
        prioritized_replay_beta0  priority_beta
        """
    ),
    "pqn": pairs(
        """
        gamma  gamma
        exploration_fraction  epsilon_until
        exploration_initial_eps  epsilon
        exploration_final_eps  epsilon_end
        max_grad_norm  max_grad_norm
        n_epochs  num_epochs
        """
    ),
    "ppo": pairs(
        """
        gamma  gamma
        n_epochs  num_epochs
        gae_lambda  gae_lambda
        clip_range  clip_eps
        ent_coef  ent_coef
        vf_coef  vf_coef
        max_grad_norm  max_grad_norm
        target_kl  target_kl
        """
    ),
}
# Names whose key is in another section, or takes a value of another meaning.
RELATED: Mapping[str, Mapping[str, str]] = {
    "dqn": pairs(
        """
        lr  dqn.learning_rate
        train_freq  dqn.replay_ratio
        gradient_steps  dqn.replay_ratio
        prioritized_replay  dqn.replay
        """
    ),
    "pqn": pairs(
        """
        lr  pqn.learning_rate
        n_steps  rollout.num_steps
        train_freq  rollout.num_steps
        batch_size  pqn.num_minibatches
        gradient_steps  pqn.num_epochs
        """
    ),
    "ppo": pairs(
        """
        lr  ppo.learning_rate
        n_steps  rollout.num_steps
        batch_size  ppo.num_minibatches
        clip_range_vf  ppo.vf_clip_eps
        normalize_advantage  ppo.normalise_advantages
        """
    ),
}
ANY_LEARNER = pairs(
    """
    n_envs  rollout.num_envs
    net_arch  network.hidden
    activation_fn  network.activation
    policy  network.kind
    tensorboard_log  train.tensorboard
    eval_freq  control.evaluate_every
    max_no_improvement_evals  control.patience
    min_evals  control.min_evaluations
    save_freq  train.checkpoint_every
    """
)
# How the value changes, where it does.
REMARKS = pairs(
    """
    ppo.num_minibatches  a count, n_envs * n_steps / batch_size
    pqn.num_minibatches  a count, n_envs * n_steps / batch_size
    ppo.vf_clip_eps  SB3's None is 0
    dqn.replay_ratio  gradient_steps * batch_size / train_freq
    network.kind  MlpPolicy is mlp, MlpLstmPolicy is gru
    train.tensorboard  true or false; the files lie in the run's folder
    control.evaluate_every  in chunks, eval_freq / (n_steps * train.chunk_updates)
    control.patience  max_no_improvement_evals + 1
    train.checkpoint_every  in chunks, save_freq / (n_steps * train.chunk_updates)
    """
)
# Names without a key of their own: what to use instead.
INSTEAD = pairs(
    """
    policy_kwargs  set network.hidden for net_arch, network.activation for activation_fn
    callback  EvalCallback is control.evaluate_every and control.keep=best, one of your own is a hook of jt.train
    device  leave it out: JAX takes the accelerator that it finds; JAX_PLATFORMS=cpu keeps to the CPU
    verbose  leave it out: a run shows its progress; --quiet hides it
    progress_bar  leave it out: a run shows its progress
    """
)


def translate_sb3_name(key: str, learner: str) -> str | None:
    """Return our key for Stable-Baselines3's name of a learner's parameter; None for other names.

    The name is the last part of `key`.
    """
    name = key.rpartition(".")[2]
    if own := PARAMETERS[learner].get(name):
        return f"{learner}.{own}"
    return RELATED[learner].get(name) or ANY_LEARNER.get(name)
