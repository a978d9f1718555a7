"""Where the arithmetic runs: one protocol, one file a backend."""
