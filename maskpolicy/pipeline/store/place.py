"""Where a store is unless a command says otherwise."""

DEFAULT = ".maskpolicy/store"  # below the working directory
