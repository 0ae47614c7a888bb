"""Experiments from file to folder, and finished runs as tables: what commands and Python share.

What a stage computes is in `stages`, how stages are shared out in `executors`, how results look in
`leaderboard`; arguments and messages of commands are in `cli`.
"""
