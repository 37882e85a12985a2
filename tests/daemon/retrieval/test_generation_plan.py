"""The decision which generation serves, is filled, comes or goes: properties that hold whatever the models do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.draws import draws

from confide_daemon.retrieval.indexing.generations import GenerationGap, GenerationPlan, Patience, decide, servers
from confide_daemon.retrieval.indexing.indexed_model import Condition, ModelStatus
from confide_daemon.store.tables.pieces import Generation

NAMES = ("a/m/3", "b/m/3", "c/m/3")
PATIENCE = Patience(60, 900)
READY = ModelStatus(NAMES[0], Condition.READY)


@dataclass
class World:
    """Generations as a database holds them, and what is done to them."""

    pieces: int = 5
    held: list[GenerationGap] = field(default_factory=list)
    made: int = 0

    def add(self, name: str, *, live: bool, missing: int) -> None:
        provider, model, dimensions = name.split("/")
        self.made += 1
        self.held.append(GenerationGap(Generation(self.made, provider, model, int(dimensions), live), missing))

    def apply(self, plan: GenerationPlan, models: list[ModelStatus]) -> None:
        if plan.add is not None:
            name = models[plan.add].name
            assert name is not None
            self.add(name, live=plan.add_live, missing=self.pieces)
        if plan.swap is not None:
            self.held = [
                replace(one, generation=replace(one.generation, live=one.generation.id == plan.swap))
                for one in self.held
            ]

    def settle(self, models: list[ModelStatus], *, renew: bool = False) -> GenerationPlan:
        for _ in range(8):
            plan = decide(self.held, models, renew=renew, patience=PATIENCE)
            self.held = [one for one in self.held if one.generation.id not in plan.drop]
            if not plan.changes:
                return plan
            self.apply(plan, models)
            renew = renew and plan.add is None
        raise AssertionError("it never comes to rest")

    @property
    def live(self) -> GenerationGap | None:
        found = [one for one in self.held if one.generation.live]
        assert len(found) <= 1
        return found[0] if found else None


@st.composite
def standings(draw: st.DrawFn) -> list[ModelStatus]:
    found = []
    for name in draw(st.permutations(NAMES))[: draw(st.integers(1, 3))]:
        condition = draw(st.sampled_from(Condition))
        is_known = condition is not Condition.LOADING and draw(st.integers(0, 9)) > 0
        is_down = condition in (Condition.DOWN, Condition.REFUSED)
        found.append(
            ModelStatus(
                name=name if is_known or condition is Condition.READY else None,
                condition=condition,
                is_due=is_down and is_known and draw(st.booleans()),
                outage_s=draw(st.sampled_from((0.0, 100.0, 1000.0))) if condition is Condition.DOWN else 0.0,
                is_free=draw(st.booleans()),
            )
        )
    return found


WORLDS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=4, unique_by=lambda pair: pair[0])
STEPS = st.lists(st.tuples(standings(), st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=draws(150), deadline=None)
@given(WORLDS, STEPS)
def test_whatever_the_models_do_what_serves_is_whole_or_the_first_there_was(
    start: list[tuple[str, int]], steps: list[tuple[list[ModelStatus], int, bool]]
) -> None:
    """A swap is only to a generation that lacks nothing; vectors of configured models stay; only what may be asked is."""
    world = World()
    for place, (name, missing) in enumerate(start):
        world.add(name, live=place == 0, missing=missing)
    for models, stored, renew in steps:
        before = {one.generation.id: one for one in world.held}
        live_before = world.live
        plan = world.settle(models, renew=renew)
        live = world.live
        if live_before is not None:
            assert live is not None
            if live.generation.id != live_before.generation.id:
                assert live.missing == 0
                assert live.generation.name in {model.name for model in models}
        names = {model.name for model in models}
        gone = [one for one in before.values() if one.generation.id not in {now.generation.id for now in world.held}]
        if None in names:
            assert all(one is live_before or renew or _has_twin(one, before) for one in gone)
        for one in gone:
            is_replaced = renew or _has_twin(one, before)
            assert one.generation.name not in names or is_replaced
        by_id = {one.generation.id: one for one in world.held}
        asked = [place for _, place in plan.fill]
        for generation, place in plan.fill:
            assert models[place].can_embed
            assert models[place].name == by_id[generation].generation.name
            assert by_id[generation].missing
        for place in plan.probe:
            assert models[place].is_due
            assert place not in asked
        # Whoever is due is asked by something, or its timer would go round for nothing.
        if len(models) > 1:
            assert {place for place, model in enumerate(models) if model.is_due} <= {*asked, *plan.probe}
        # Everything that is filled becomes complete, then something is stored.
        filled = {generation for generation, _ in plan.fill}
        world.held = [replace(one, missing=0) if one.generation.id in filled else one for one in world.held]
        world.settle(models)
        world.held = [replace(one, missing=one.missing + stored) for one in world.held]
        world.pieces += stored


def _has_twin(one: GenerationGap, others: dict[int, GenerationGap]) -> bool:
    return any(
        other.generation.name == one.generation.name and other.generation.id > one.generation.id
        for other in others.values()
    )


@settings(max_examples=draws(100), deadline=None)
@given(WORLDS, standings())
def test_a_wanted_model_that_is_ready_always_comes_to_serve(
    start: list[tuple[str, int]], models: list[ModelStatus]
) -> None:
    """From whatever state, after one round of filling."""
    world = World()
    for place, (name, missing) in enumerate(start):
        world.add(name, live=place == 0, missing=missing)
    models[0] = replace(models[0], name=models[0].name or "d/m/3", condition=Condition.READY)
    plan = world.settle(models)
    assert plan.target == 0
    filled = {generation for generation, _ in plan.fill}
    world.held = [replace(one, missing=0) if one.generation.id in filled else one for one in world.held]
    world.settle(models)
    assert world.live is not None
    assert world.live.generation.name == models[0].name
    assert world.live.missing == 0


def test_patience_is_longer_where_the_next_model_is_paid_for() -> None:
    """A free one takes over after a minute, a paid one after a quarter of an hour; a refusal waits for nothing."""
    live = [GenerationGap(Generation(1, "a", "m", 3, True), 0)]
    for outage_s, is_free, condition, target in (
        (59, True, Condition.DOWN, None),
        (61, True, Condition.DOWN, 1),
        (61, False, Condition.DOWN, None),
        (901, False, Condition.DOWN, 1),
        (0, False, Condition.REFUSED, 1),
    ):
        models = [
            ModelStatus(NAMES[0], condition, outage_s=outage_s),
            ModelStatus(NAMES[1], Condition.READY, is_free=is_free),
        ]
        assert decide(live, models, patience=PATIENCE).target == target


def test_a_paid_generation_that_is_not_needed_is_left_as_it_is() -> None:
    """It is not filled at every store for nothing, and not dropped either: the next outage needs only what is missing."""
    held = [GenerationGap(Generation(1, "a", "m", 3, True), 2), GenerationGap(Generation(2, "b", "m", 3, False), 2)]
    paid = decide(held, [READY, ModelStatus(NAMES[1], Condition.READY, is_free=False)])
    free = decide(held, [READY, ModelStatus(NAMES[1], Condition.READY)])
    assert (paid.fill, paid.drop) == (((1, 0),), ())
    assert free.fill == ((1, 0), (2, 1))


def test_only_the_live_generation_may_answer_with_pieces_missing() -> None:
    """The live one comes first whatever its model's place."""
    held = [GenerationGap(Generation(1, "a", "m", 3, False), 0), GenerationGap(Generation(2, "b", "m", 3, True), 3)]
    models = [READY, ModelStatus(NAMES[1], Condition.READY), ModelStatus(NAMES[2], Condition.READY)]
    assert [place for _, place in servers(held, models)] == [1, 0]
    held[0] = replace(held[0], missing=1)
    assert [place for _, place in servers(held, models)] == [1]
