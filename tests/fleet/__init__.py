"""The fleet in dollars: its tasks, traffic, accounts and laws."""
