"""What is measured: one file a serving engine."""
