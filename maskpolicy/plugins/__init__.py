"""Register, find, import and hash plugins: the built-in ones and the user's files.

Nothing here knows what a plugin does.
"""
