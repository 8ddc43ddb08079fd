"""One replica's loop: complete what has ended, start what can start, up to a given time."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel
from llmserve_env.engine.kernels.complete import complete
from llmserve_env.engine.kernels.jump import jump, jump_behind
from llmserve_env.engine.kernels.schedule import schedule
from llmserve_env.units import NEVER_PS

FAULT_NO_PROGRESS = 1
MAX_ROUNDS_PER_CALL = 100_000_000


@kernel
def advance_replica(sim, r, until_ps, may_rest):
    """Process iterations that end by `until_ps` and start those that begin before it.

    Nothing happens at the replica before its `due_at_ps`, which this sets. If it may rest, a replica that will only
    decode for a while postpones its iterations until they are needed, and then does them in one jump.
    """
    replica = sim.replicas[r]
    for _ in range(MAX_ROUNDS_PER_CALL):
        if replica.end_at_ps >= 0:
            if sim.deployment.async_scheduling and replica.may_queue and replica.queued_end_at_ps < 0:
                if replica.free_at_ps >= until_ps:
                    replica.due_at_ps = replica.free_at_ps + 1
                    return
                if jump_behind(sim, r, until_ps):
                    continue
                replica.may_queue = 0
            elif replica.done_at_ps > until_ps:
                replica.due_at_ps = replica.done_at_ps
                return
            else:
                complete(sim, r)
                continue
        elif replica.free_at_ps >= until_ps or replica.num_running + replica.num_waiting == 0:
            is_idle = replica.num_running + replica.num_waiting == 0
            replica.due_at_ps = NEVER_PS if is_idle else replica.free_at_ps + 1
            return
        elif jump(sim, r, until_ps, may_rest):
            if replica.is_resting:
                return
            continue
        schedule(sim, r, replica.free_at_ps)
    sim.environment.fault = FAULT_NO_PROGRESS
