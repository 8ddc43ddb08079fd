"""The compiled core. Read in this order: `deployment_loop` (events), `replica` (one GPU's loop), `schedule` and
`complete` (one iteration), `jump` (many at once); `queues`, `kv_pool`, `prefix_cache`, `latency` and `recording` serve them.
"""
