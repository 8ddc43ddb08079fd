"""Profiles of any model on any card, summed from published kernel timings: start with `compose.compose_served`."""
