"""Which parts of the observation a policy uses: by gradient, by permutation and by ablation."""
