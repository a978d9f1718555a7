"""What is measured: one function and one row of the table for each metric."""
