"""Operators' rules for a fleet, one module each, faithful to the document that its module names."""
