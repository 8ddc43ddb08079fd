"""The account of an episode: what came in, what the GPUs cost, and what is given back for broken promises."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from llmserve_env.fleet.sections import CreditRung, PriceSpec, Purchase
from llmserve_env.units import S_PER_HOUR


def credit_share(attainment: float, rungs: tuple[CreditRung, ...]) -> float:
    """Share of the income that is given back at this attainment.

    Nothing from the first rung's attainment on; between two rungs a straight line, because contracts count a month and
    an episode is hours of one; below the last rung its share.
    """
    if not rungs or attainment >= rungs[0].below:
        return 0.0
    for high, low in pairwise(rungs):
        if attainment >= low.below:
            part = (high.below - attainment) / (high.below - low.below)
            return high.share + part * (low.share - high.share)
    return rungs[-1].share


def rental_usd(prices: PriceSpec, purchase: Purchase, gpus: int, serving_s: float, asleep_s: float) -> float:
    """Price of so many replica-seconds of a pool."""
    hours = (serving_s + prices.asleep_share * asleep_s) / S_PER_HOUR
    return hours * gpus * prices.gpu_hour_usd[purchase]


@dataclass(slots=True)
class Account:
    """Dollars and promises so far."""

    prices: PriceSpec
    interactive_usd: float = 0.0
    """Income from requests whose promise was kept."""
    batch_usd: float = 0.0
    """Income from batch jobs done in time."""
    bill_usd: float = 0.0
    judged: int = 0
    met: int = 0

    @property
    def attainment(self) -> float:
        """Share of judged requests whose promise was kept."""
        return self.met / self.judged if self.judged else 1.0

    @property
    def income_usd(self) -> float:
        return self.interactive_usd + self.batch_usd

    @property
    def credits_usd(self) -> float:
        """What would be given back if the episode ended now."""
        return credit_share(self.attainment, self.prices.credits) * self.interactive_usd

    @property
    def net_usd(self) -> float:
        """Income less bill less credits."""
        return self.income_usd - self.bill_usd - self.credits_usd
