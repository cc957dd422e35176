#!/bin/bash
# Written by `jaxtrade launch slurm`. Start it with: sbatch FILE
#SBATCH --job-name=$name
#SBATCH --nodes=$nodes
#SBATCH --ntasks-per-node=$tasks
#SBATCH --gpus-per-node=$gpus
#SBATCH --time=$time
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=$name-%j.log
#SBATCH --partition=$partition

$setup
# Each task trains on one $share. A task that has lost another one
# ends by itself; 60 s after the first has ended, srun ends the rest.
srun --wait=60$bind $shell
code=$$?
# 75: stopped by SIGTERM (preemption, or the end of its time) and saved.
if [ "$$code" -eq 75 ]; then
    scontrol requeue "$$SLURM_JOB_ID"
fi
exit "$$code"
