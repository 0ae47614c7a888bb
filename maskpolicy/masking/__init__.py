"""Choose the spans that a policy masks, check them, and write a passage as (source, target).

No model is here.
"""
