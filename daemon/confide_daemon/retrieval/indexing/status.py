"""How generations and models are, as status shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confide_daemon.retrieval.indexing.model import Provider
from confide_daemon.retrieval.indexing.planner import Condition, Held
from confide_daemon.retrieval.indexing.serving import ALONE, loading
from confide_daemon.store.rows import Generation

# From here on a budget is spoken of before it is used up.
BUDGET_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """The vectors of one model. `state`: live, building (it will serve when it is complete), standby (it would serve if it had to)."""

    id: int
    provider: str
    model: str
    dimensions: int
    state: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A configured model.

    Attributes:
        state: loading, ready, down, refused.
        reason: why it cannot be used; for people.
        retry_in_s: until it is tried again by itself.
        tokens: sent this month by this space; None where nothing is counted (models on this machine).
        cost_usd: of those tokens; None where the price is not known.
        monthly_tokens: the budget; None: there is none.
    """

    name: str
    model: str | None
    state: str
    reason: str | None
    retry_in_s: float | None
    tokens: int | None
    cost_usd: float | None
    monthly_tokens: int | None


def generation_status(held: Sequence[Held], building: int | None, total: int) -> list[GenerationStatus]:
    """All of them, the oldest first. `building`: the one that is to serve next."""

    def state(one: Generation) -> str:
        return "live" if one.live else "building" if one.id == building else "standby"

    return [
        GenerationStatus(
            one.generation.id,
            one.generation.provider,
            one.generation.model,
            one.generation.dimensions,
            state(one.generation),
            total - one.missing,
            total,
        )
        for one in held
    ]


def provider_status(provider: Provider) -> ProviderStatus:
    """One model as it is now."""
    condition = provider.standing().condition
    reason = None if condition is Condition.READY else provider.reason
    price = provider.model.price_per_million
    tokens = provider.tokens_used if provider.is_counted else None
    return ProviderStatus(
        name=provider.model.label,
        model=provider.model_name,
        state=condition.name.lower(),
        reason=None if reason is None else str(reason),
        retry_in_s=provider.retry_in_s,
        tokens=tokens,
        cost_usd=None if tokens is None or price is None else round(tokens * price / 1e6, 6),
        monthly_tokens=provider.model.monthly_tokens or None,
    )


def warnings(providers: Sequence[Provider], live: Generation | None) -> list[str]:
    """What a person should know of the models."""
    said = []
    serving = next((one for one in providers if live is not None and one.name == live.name), None)
    for place, provider in enumerate(providers):
        condition = provider.standing().condition
        if condition is Condition.LOADING and place == 0:
            said.append(f"{loading(provider)}; {ALONE}")
        elif condition in (Condition.DOWN, Condition.REFUSED):
            is_replaced = serving is not None and serving is not provider
            then = (
                f"; {serving.model.label} serves meanwhile"
                if is_replaced and serving
                else f"; {ALONE}"
                if place == 0
                else ""
            )
            said.append(f"{provider.reason or provider.model.label + ' is down'}{then}")
        limit = provider.model.monthly_tokens
        if limit and not provider.is_spent and provider.tokens_used >= BUDGET_SHARE * limit:
            said.append(f"{provider.tokens_used:,} of {limit:,} tokens with {provider.model.label} are used this month")
    return said
