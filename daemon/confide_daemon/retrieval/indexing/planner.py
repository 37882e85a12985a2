"""Which generation should serve, which are filled and which go: a decision without any state of its own.

The first configured model is the wanted one. Its generation is filled and, when it is complete, swapped in. While it cannot be used
(down for a while, refused, its budget spent), the next model in order does the same with a generation of its own. Generations of
configured models are never dropped: when the first recovers only what is missing has to be embedded, however often that happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from confide_daemon.store.rows import Generation
from confide_daemon.store.store import Store


class Condition(Enum):
    """What can be expected of a model."""

    LOADING = auto()  # not known yet
    READY = auto()
    DOWN = auto()  # fails, and may come back by itself
    REFUSED = auto()  # does not come back until somebody acts or the month ends


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a model must be down before the next one takes its place, in seconds.

    One that costs nothing takes it soon. One that is paid for has to embed everything for it, so it waits until the outage is clearly
    more than a restart or a rate limit.
    """

    free_s: float = 60.0
    paid_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A configured model as the plan sees it."""

    name: str | None  # of its vectors (provider/model/dimensions); None: not known yet
    condition: Condition
    is_due: bool = False  # it is down, and it is time to try it again
    outage_s: float = 0.0  # how long it has been down
    is_free: bool = True  # a token costs nothing

    @property
    def can_embed(self) -> bool:
        return self.name is not None and (self.condition is Condition.READY or self.is_due)


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Held:
    """A generation and how many pieces it lacks."""

    generation: Generation
    missing: int


def live_generation(store: Store) -> Generation | None:
    """The generation that is swapped in, if there is one yet."""
    return next((one for one in store.vectors.generations() if one.live), None)


def holdings(store: Store) -> list[Held]:
    """The generations, the oldest first, each with how many pieces it lacks."""
    return [Held(one, store.vectors.waiting_count(one.id)) for one in store.vectors.generations()]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now; `add` and `fill` name models by their place in the order."""

    target: int | None = None  # the model whose generation should serve; None: to be seen
    drop: tuple[int, ...] = ()  # generations that nobody needs any more
    add: int | None = None  # the model that needs a new generation; `add_live`: there is none that serves
    add_live: bool = False
    swap: int | None = None  # the generation to make live; the one before stays beside it, until it is dropped
    fill: tuple[tuple[int, int], ...] = ()  # (generation, model) that lack vectors, the first first
    probe: tuple[int, ...] = ()  # models that are down and are to be asked whether they are back

    @property
    def changes(self) -> bool:
        """Whether a generation comes or goes live."""
        return self.add is not None or self.swap is not None


def decide(
    held: Sequence[Held], models: Sequence[Standing], *, renew: bool = False, patience: Patience = PATIENCE
) -> Plan:
    """What to do with these generations, the oldest first, and these models, the wanted one first.

    `renew`: a new generation of the model that should serve was asked for.
    """
    target = _target(models, patience)
    wanted = None if target is None else models[target].name
    live = next((one for one in held if one.generation.live), None)
    building = None if renew else successor(held, wanted)
    add = target if wanted is not None and building is None and (renew or _name(live) != wanted) else None
    swap = building if building is not None and building.missing == 0 else None
    serving = building or (live if _name(live) == wanted else None)
    drop = list(_left_over(held, {model.name for model in models}))
    fill = tuple(_fill([one for one in held if one not in drop], models, live, serving))
    return Plan(
        target=target,
        drop=tuple(one.generation.id for one in drop),
        add=add,
        add_live=live is None,
        swap=swap.generation.id if swap else None,
        fill=fill,
        probe=tuple(_probe(models, {place for _, place in fill})),
    )


def successor(held: Sequence[Held], name: str | None) -> Held | None:
    """The generation of this name that is to take the live one's place: the newest, unless that is the live one itself."""
    newest = next((one for one in reversed(held) if one.generation.name == name), None)
    return None if newest is None or newest.generation.live else newest


def _left_over(held: Sequence[Held], names: set[str | None]) -> Iterable[Held]:
    """Generations that have a newer one of the same model, or whose model is not configured."""
    newest = {one.generation.name: one for one in held}
    for one in held:
        # While a model is not loaded, any of them may be its own.
        is_strange = None not in names and one.generation.name not in names
        if not one.generation.live and (is_strange or newest[one.generation.name] is not one):
            yield one


def _name(held: Held | None) -> str | None:
    return held.generation.name if held else None


def _target(models: Sequence[Standing], patience: Patience) -> int | None:
    """The first that can be used; while one before it loads, or is down not long enough, that is not decided."""
    for place, model in enumerate(models):
        if model.condition is Condition.READY:
            return place
        if model.condition is Condition.LOADING:
            return None
        if model.condition is Condition.DOWN:
            after = next((one for one in models[place + 1 :] if one.condition is Condition.READY), None)
            if model.outage_s < (patience.free_s if after is None or after.is_free else patience.paid_s):
                return None
    return None


def _fill(
    kept: Sequence[Held], models: Sequence[Standing], live: Held | None, serving: Held | None
) -> Iterable[tuple[int, int]]:
    """The live one first, so that what was just stored is found; then the one that is to serve, then what costs nothing."""
    places = {model.name: place for place, model in enumerate(models) if model.can_embed}
    for one in kept:
        place = places.get(one.generation.name)
        if place is None or not one.missing:
            continue
        # The wanted model's is filled as soon as that is back, whatever serves; one of a paid model that is not needed now is left.
        if one is live or one is serving or place == 0 or models[place].is_free:
            yield one.generation.id, place


def _probe(models: Sequence[Standing], filled: set[int]) -> Iterable[int]:
    """Models that nothing else asks whether they are back, while another one could serve in their place."""
    if len(models) < 2:
        return
    for place, model in enumerate(models):
        if model.is_due and place not in filled:
            yield place


def servers(held: Sequence[Held], models: Sequence[Standing]) -> list[tuple[Generation, int]]:
    """The generations that may answer a search, the best first, each with its model.

    The live one, whatever it lacks (that is found by its words); after it those that lack nothing, in the order of their models.
    """
    places = {model.name: place for place, model in reversed(list(enumerate(models)))}
    usable = [(one, places[one.generation.name]) for one in held if one.generation.name in places]
    whole = [(one, place) for one, place in usable if one.generation.live or not one.missing]
    whole.sort(key=lambda pair: (not pair[0].generation.live, pair[1]))
    return [(one.generation, place) for one, place in whole]
