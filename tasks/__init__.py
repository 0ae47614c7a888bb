"""The built-in downstream tasks, one file each."""
