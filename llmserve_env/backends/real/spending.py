"""What an episode may spend, counted before it is spent."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.backends.real.settings import RealSettings

PER_MILLION = 1e-6


@dataclass(slots=True)
class Usage:
    """Requests, tokens and dollars."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class Allowance:
    """What one window may reserve: its share of each cap."""

    budget: Budget
    requests: float
    tokens: float
    usd: float

    def take(self, prompt_tokens: int, completion_tokens: int) -> bool:
        """Count one request at its worst case; False if the share does not cover it."""
        tokens, usd = prompt_tokens + completion_tokens, self.budget.usd(prompt_tokens, completion_tokens)
        if self.requests < 1 or self.tokens < tokens or self.usd < usd:
            return False
        self.requests -= 1
        self.tokens -= tokens
        self.usd -= usd
        return True


class Budget:
    """Caps per episode. A request's worst case is reserved before it is sent, so that no cap is exceeded."""

    def __init__(self, settings: RealSettings) -> None:
        self._settings = settings
        self._price_in, self._price_out = settings.prices()
        self._reserved_tokens, self._reserved_usd = 0, 0.0
        self._saved = Allowance(self, 0.0, 0.0, 0.0)
        """Shares of earlier windows that were not used."""
        self.spent = Usage()
        self.reached: str | None = None
        """The cap that has been reached, in words."""

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Price of these tokens."""
        return PER_MILLION * (self._price_in * prompt_tokens + self._price_out * completion_tokens)

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> bool:
        """Reserve the worst case of one request; once a reservation would exceed a cap, False from then on."""
        tokens, usd = prompt_tokens + completion_tokens, self.usd(prompt_tokens, completion_tokens)
        spent, caps = self.spent, self._settings
        held = spent.prompt_tokens + spent.completion_tokens + self._reserved_tokens
        if self.reached is None:
            if spent.requests + 1 > caps.max_requests:
                self.reached = f"the episode's cap of {caps.max_requests} requests is reached"
            elif held + tokens > caps.max_tokens:
                self.reached = f"the episode's cap of {caps.max_tokens} tokens is reached"
            elif spent.usd + self._reserved_usd + usd > caps.max_usd:
                self.reached = f"the episode's cap of {caps.max_usd:g} USD is reached"
        if self.reached is not None:
            return False
        spent.requests += 1
        self._reserved_tokens += tokens
        self._reserved_usd += usd
        return True

    def allowance(self, windows_left: int) -> Allowance:
        """The next window's share of what is left. A share that no request fits into grows until one does."""
        spent, caps, n = self.spent, self._settings, max(windows_left, 1)
        held_tokens = spent.prompt_tokens + spent.completion_tokens + self._reserved_tokens
        self._saved.requests += (caps.max_requests - spent.requests - self._saved.requests) / n
        self._saved.tokens += (caps.max_tokens - held_tokens - self._saved.tokens) / n
        self._saved.usd += (caps.max_usd - spent.usd - self._reserved_usd - self._saved.usd) / n
        return self._saved

    def settle(self, reserved: tuple[int, int], used: tuple[int, int]) -> None:
        """Replace the reservation (prompt, completion) of a finished request by what it used."""
        self._reserved_tokens -= sum(reserved)
        self._reserved_usd -= self.usd(*reserved)
        self.spent.prompt_tokens += used[0]
        self.spent.completion_tokens += used[1]
        self.spent.usd += self.usd(*used)
