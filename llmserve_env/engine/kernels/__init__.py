"""The compiled core.

Read in this order: `deployment_loop` (events), `replica` (one GPU's loop), `schedule` and `complete` (one iteration),
`jump` (many at once); `queues`, `slots`, `kv_pool`, `prefix_cache`, `latency` and `recording` serve them. `routing`,
`reconfigure` and `restart` move requests between replicas; `window` and `measure` keep the books.
"""
