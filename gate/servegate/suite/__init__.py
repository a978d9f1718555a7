"""The suite: one file that says everything."""
