"""The engines that a run gives its stages to: this machine, a Ray cluster, or Slurm."""
