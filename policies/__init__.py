"""The built-in masking policies, one file each, written exactly as a user's would be."""
