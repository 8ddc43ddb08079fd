"""What changing a knob starts: rolling reloads of a tier, prefill replicas that come into service or leave it."""

from __future__ import annotations

from numba import literal_unroll

from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.kernels.restart import seconds_for_bytes_ps
from llmserve_env.engine.kernels.routing import evacuate, move_waiting
from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.layout import SPLIT_OFF, SPLIT_STARTING, SPLIT_UP


@rare_kernel
def apply_knobs(sim, knobs):
    """Copy the knobs into the environment's record at the start of a window, and start what their changes require."""
    environment = sim.environment
    resized = environment.kv_budget_fraction != knobs.kv_budget_fraction
    resized = resized or (environment.speculation_depth > 0) != (knobs.speculation_depth > 0)
    for name in literal_unroll(NAMES):
        environment[name] = knobs[name]
    if resized:
        for r in range(sim.replicas.shape[0]):
            sim.replicas[r].pool_is_stale = 1
    roll(sim, environment.now_ps)
    set_split(sim, environment.prefill_decode_split)


@rare_kernel
def roll(sim, at_ps):
    """Start reloading the first in-service replica with another tier than the target, one at a time."""
    deployment, environment = sim.deployment, sim.environment
    if environment.reloading >= 0:
        return
    for r in range(sim.replicas.shape[0]):
        replica = sim.replicas[r]
        if replica.in_service and replica.tier != environment.quantization_tier:
            weights = deployment.weight_bytes[environment.quantization_tier]
            environment.reloading = r
            sim.window.reloads += 1
            replica.available_at_ps = at_ps + seconds_for_bytes_ps(weights, deployment.weights_load_bytes_per_s)
            evacuate(sim, r, at_ps)
            replica.tier = environment.quantization_tier
            replica.pool_is_stale = 1
            replica.free_at_ps = replica.available_at_ps
            return


@rare_kernel
def finish_reload(sim, at_ps):
    """End the reload under way and start on the next replica."""
    sim.environment.reloading = -1
    roll(sim, at_ps)


@rare_kernel
def forget_reload(sim, at_ps):
    """End the reload of a replica that left service, and start on the next one."""
    if sim.environment.reloading >= 0 and not sim.replicas[sim.environment.reloading].in_service:
        finish_reload(sim, at_ps)


@rare_kernel
def set_split(sim, is_on):
    """Request prefill replicas, cancel the request, or take them out of service."""
    deployment, environment = sim.deployment, sim.environment
    at = environment.now_ps
    if is_on and environment.split == SPLIT_OFF and deployment.num_prefill_replicas > 0:
        environment.split = SPLIT_STARTING
        environment.split_ready_at_ps = at + deployment.bring_up_ps
    elif not is_on and environment.split == SPLIT_STARTING:
        environment.split = SPLIT_OFF
    elif not is_on and environment.split == SPLIT_UP:
        environment.split = SPLIT_OFF
        for r in range(deployment.num_replicas, sim.replicas.shape[0]):
            sim.replicas[r].in_service = 0
        for r in range(deployment.num_replicas, sim.replicas.shape[0]):
            evacuate(sim, r, at)
            sim.replicas[r].free_at_ps = at
        forget_reload(sim, at)


@rare_kernel
def open_split(sim, at_ps):
    """Put the prefill replicas, which hold the target tier, into service; they take over all that has not started."""
    deployment, environment = sim.deployment, sim.environment
    environment.split = SPLIT_UP
    for r in range(deployment.num_replicas, sim.replicas.shape[0]):
        replica = sim.replicas[r]
        replica.in_service = 1
        replica.tier = environment.quantization_tier
        replica.free_at_ps = replica.available_at_ps = at_ps
        replica.pool_is_stale = 1
    for r in range(deployment.num_replicas):
        move_waiting(sim, r, at_ps, True, False)
    roll(sim, at_ps)
