"""A view of results: rows, tests, and the forms of the table.

It computes nothing that results lack.
"""
