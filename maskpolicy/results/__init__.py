"""What a finished run leaves in its folder, and which results may be compared.

Tables are in `leaderboard`.
"""
