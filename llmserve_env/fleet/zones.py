"""What the cloud does in an episode: spot capacity that comes and goes per zone, and how long launches take.

A region is calm or tight; a zone has capacity or not. The risk that a zone loses its capacity falls with the time that
it has had it and rises while its region is tight, by the factors measured on public records of spot availability.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.sections import BootSpec, ZoneSpec

STEP_S = 30.0
YOUNG_S, OLD_S = 600.0, 21_600.0
YOUNG_RISK, OLD_RISK = 2.9, 0.32
"""Risk of loss in the first ten minutes, and after six hours, over the mean; on a line of logarithms between them."""
TIGHT_RISK = 2.3
"""Risk of loss in a tight region over that in a calm one."""
TIGHT_SHARE = 0.25
TIGHT_S = 3_600.0
"""Mean length of a tight phase."""
WARM_UP_S = 43_200.0
"""Zones run so long before an episode, so that it starts anywhere in their life."""
LAUNCHES = 512
"""Delays drawn per pool; more launches than that use them again."""


def _age_risk(age_s: Array) -> Array:
    """Risk of loss by age, relative to the mean."""
    share = np.clip(np.log(np.maximum(age_s, YOUNG_S) / YOUNG_S) / np.log(OLD_S / YOUNG_S), 0.0, 1.0)
    risk: Array = np.exp(np.log(YOUNG_RISK) + share * np.log(OLD_RISK / YOUNG_RISK))
    return risk


def sample_zones(zones: tuple[ZoneSpec, ...], length_s: float, random: np.random.Generator) -> Array:
    """[zone, step]: whether each zone has spot capacity, in steps of `STEP_S`."""
    steps, before = int(np.ceil(length_s / STEP_S)), int(WARM_UP_S / STEP_S)
    names = sorted({zone.region for zone in zones})
    region = np.array([names.index(zone.region) for zone in zones], int)
    share = np.array([zone.availability for zone in zones])
    per_step = np.array([zone.losses_per_day for zone in zones]) * STEP_S / 86_400.0
    # In balance, as many gains as losses per day: losses happen while up, gains while down.
    loss, gain = per_step / share, per_step / (1.0 - share)
    calm = 1.0 / (1.0 - TIGHT_SHARE + TIGHT_SHARE * TIGHT_RISK)
    tight = random.random(len(names)) < TIGHT_SHARE
    leave, enter = STEP_S / TIGHT_S, STEP_S / TIGHT_S * TIGHT_SHARE / (1.0 - TIGHT_SHARE)
    up, age_s = random.random(len(zones)) < share, np.full(len(zones), 3_600.0)
    record = np.zeros((len(zones), steps), bool)
    for step in range(-before, steps):
        draws = random.random(len(names))
        tight = np.where(tight, draws >= leave, draws < enter)
        pressure = np.where(tight[region], TIGHT_RISK, 1.0) * calm
        draws = random.random(len(zones))
        changes = np.where(up, draws < loss * _age_risk(age_s) * pressure, draws < gain / pressure)
        up = up ^ changes
        age_s = np.where(changes, 0.0, age_s + STEP_S)
        if step >= 0:
            record[:, step] = up
    return record


def sample_launches(boots: tuple[BootSpec, ...], random: np.random.Generator) -> Array:
    """[pool, launch]: seconds that each launch takes; negative for one that fails after so long."""
    rows = []
    for boot in boots:
        delay = np.exp(np.log(boot.median_s) + boot.sigma * random.standard_normal(LAUNCHES))
        rows.append(np.where(random.random(LAUNCHES) < boot.failure_probability, -delay, delay))
    found: Array = np.array(rows)
    return found
