"""The results, predictions and records of finished runs, and rules for comparing results.

Leaderboards and tests are in `leaderboard`.
"""
