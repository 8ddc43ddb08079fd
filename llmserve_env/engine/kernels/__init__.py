"""The compiled core.

Read in this order: `view` (the state), `deployment_loop` (events), `replica` (one GPU's loop), `schedule`, `admission`,
`launch` and `complete` (one iteration), `jump` (many at once); `queues`, `slots`, `kv_pool`, `prefix_cache`, `latency`,
`recording` and `decision_log` serve them. `routing`, `reconfigure` and `restart` move requests between replicas;
`window` and `measure` keep the books; `compilation` and `cache_key` turn all of it into machine code.
"""
