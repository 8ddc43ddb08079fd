"""The control problem: `EpisodeBatch` is the only step loop, and `Episode` is a batch of one with its log."""
