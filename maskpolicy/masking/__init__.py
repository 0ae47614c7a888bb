"""Select and validate the spans that a policy masks, and write passages as (source, target).

Models are not part of this package.
"""
