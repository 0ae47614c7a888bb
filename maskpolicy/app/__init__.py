"""What commands and Python share: experiments, run folders, previews, exported models."""
