"""What `calibrate.py` simulates, judges and prints."""
