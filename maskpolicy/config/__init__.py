"""An experiment file becomes frozen dataclasses: keys checked, defaults filled in.

Nothing is trained or read here.
"""
