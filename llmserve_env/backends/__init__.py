"""What serves the requests of an episode: the simulator, a lookup table or a live engine, behind one protocol."""
