"""What the cloud does in an episode: spot capacity that comes and goes per zone, and how long launches take.

A region is calm or tight; a zone has capacity or not. The risk that a zone loses its capacity falls with the time that
it has had it and rises while its region is tight, by factors that reproduce public records of spot availability.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.sections import BootSpec, ZoneSpec

STEP_S = 30.0
S_PER_DAY = 86_400.0
YOUNG_S, OLD_S = 600.0, 21_600.0
YOUNG_RISK, OLD_RISK = 2.9, 0.32
"""Risk of loss in the first ten minutes, and after six hours, over the mean; on a line of logarithms between them."""
TIGHT_RISK = 12.0
"""Risk of loss in a tight region over that in a calm one, which makes zones of a region fail together."""
TIGHT_SHARE = 0.3
TIGHT_S = 10_800.0
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


def _lasts_s(risk: Array, loss: float) -> float:
    """Mean time that capacity lasts with this risk by age."""
    return STEP_S * float(np.exp(-loss * np.cumsum(risk)).sum())


@lru_cache(maxsize=64)
def _loss_per_step(availability: float, down_s: float) -> float:
    """Risk of loss in a step of a calm region, before age, with which a zone is available so often.

    Found by bisection, as if phases of a region were long: a share of the time is tight, with its own availability.
    """
    risk = _age_risk(np.arange(0.0, 14 * S_PER_DAY, STEP_S))
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        calm_s, tight_s = _lasts_s(risk, middle), _lasts_s(risk, middle * TIGHT_RISK)
        found = (1.0 - TIGHT_SHARE) * calm_s / (calm_s + down_s) + TIGHT_SHARE * tight_s / (tight_s + down_s)
        low, high = (middle, high) if found > availability else (low, middle)
    return high


def sample_zones(zones: tuple[ZoneSpec, ...], length_s: float, random: np.random.Generator) -> Array:
    """[zone, step]: whether each zone has spot capacity, in steps of `STEP_S`."""
    steps, before = int(np.ceil(length_s / STEP_S)), int(WARM_UP_S / STEP_S)
    names = sorted({zone.region for zone in zones})
    region = np.array([names.index(zone.region) for zone in zones], int)
    share = np.array([zone.availability for zone in zones])
    # In balance there are as many gains as losses: a day holds so many times without capacity.
    down_s = (1.0 - share) * S_PER_DAY / np.array([zone.losses_per_day for zone in zones])
    loss = np.array([_loss_per_step(*pair) for pair in zip(share.tolist(), down_s.tolist(), strict=True)])
    gain = STEP_S / down_s
    tight = random.random(len(names)) < TIGHT_SHARE
    leave, enter = STEP_S / TIGHT_S, STEP_S / TIGHT_S * TIGHT_SHARE / (1.0 - TIGHT_SHARE)
    up, age_s = random.random(len(zones)) < share, np.full(len(zones), 3_600.0)
    record = np.zeros((len(zones), steps), bool)
    for step in range(-before, steps):
        draws = random.random(len(names))
        tight = np.where(tight, draws >= leave, draws < enter)
        pressure = np.where(tight[region], TIGHT_RISK, 1.0)
        draws = random.random(len(zones))
        changes = np.where(up, draws < loss * _age_risk(age_s) * pressure, draws < gain)
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
