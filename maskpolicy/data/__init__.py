"""What experiments read: data files, tasks, corpora, the embedded world, and baselines."""
