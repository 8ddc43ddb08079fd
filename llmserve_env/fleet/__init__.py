"""The fleet in dollars: how many replicas, of which kind and role, over hours of real traffic."""
