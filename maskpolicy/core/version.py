"""The version of maskpolicy."""

VERSION = "0.1.0"
