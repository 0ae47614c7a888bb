"""The built-in masking policies: one file each, written as a user would write them."""
