"""The built-in analyses of finished runs, one file each, written exactly as a user's would be."""
