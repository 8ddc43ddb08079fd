"""Agents: they choose the knobs. `agent.Agent` is the protocol, `registry.make_agent` finds them by name."""
