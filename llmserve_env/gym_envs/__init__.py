"""Gymnasium environments: single, vectorised, on a lookup table, on a server; and wrappers for training."""
