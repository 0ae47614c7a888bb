"""The built-in analyses of finished runs: plugins like a user's, one in each file."""
