"""Links and visits: what is good once, for how long, and for whom."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from confide_panel.browser_sessions import IDLE_S, MOST, MOST_KEPT, BrowserSessions
from confide_panel.links import GOOD_S, Links


def test_a_link_opens_its_page_once(tmp_path: Path) -> None:
    links = Links(tmp_path / "links")
    code = links.make("note/mem_1f72a")
    (kept,) = (tmp_path / "links").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert code not in kept.name
    assert Links(tmp_path / "links").use(code) == "note/mem_1f72a"
    assert links.use(code) is None


def test_a_link_is_good_for_a_minute(tmp_path: Path) -> None:
    """One from the future neither: somebody has set a clock. What nobody used goes when the next is made."""
    links = Links(tmp_path / "links")
    for made in (time.time() - GOOD_S - 1, time.time() + 3600):
        code = links.make()
        (kept,) = (tmp_path / "links").iterdir()
        os.utime(kept, (made, made))
        assert links.use(code) is None
    links.make()
    (old,) = (tmp_path / "links").iterdir()
    os.utime(old, (1, 1))
    links.make()
    assert len(list((tmp_path / "links").iterdir())) == 1


def test_a_file_that_others_could_have_written_is_no_link(tmp_path: Path) -> None:
    links = Links(tmp_path / "links")
    code = links.make()
    (kept,) = (tmp_path / "links").iterdir()
    kept.chmod(0o666)
    assert links.use(code) is None
    for wrong in ("", "../../etc/passwd", "A" * 42, "A" * 44, code + "\n"):
        assert links.use(wrong) is None


def test_a_cookie_is_good_at_its_own_place() -> None:
    visits = BrowserSessions()
    (one, cookie), (other, another) = visits.begin(), visits.begin()
    assert visits.find(one.place, cookie) is one
    for place, shown in (
        (one.place, another),
        (other.place, cookie),
        (one.place, None),
        (one.place, ""),
        ("x", cookie),
    ):
        assert visits.find(place, shown) is None
    assert cookie not in repr(vars(one))


def test_a_visit_ends_when_nobody_has_used_it() -> None:
    now = [0.0]
    visits = BrowserSessions(lambda: now[0])
    visit, cookie = visits.begin()
    for _ in range(3):
        now[0] += IDLE_S - 1
        assert visits.find(visit.place, cookie) is visit
    now[0] += IDLE_S
    assert not visits.is_good(visit)
    assert visits.find(visit.place, cookie) is None
    now[0] -= IDLE_S
    assert visits.find(visit.place, cookie) is None


def test_there_is_an_end_to_what_is_kept() -> None:
    visits = BrowserSessions()
    begun = [visits.begin() for _ in range(MOST + 1)]
    assert visits.find(begun[0][0].place, begun[0][1]) is None
    visit = begun[-1][0]
    numbers = [visit.keep({"q": str(n)}) for n in range(MOST_KEPT + 1)]
    assert visit.form_values(numbers[0]) == {}
    assert visit.form_values(numbers[-1]) == {"q": str(MOST_KEPT)}


def test_forms_are_told_apart() -> None:
    visits = BrowserSessions()
    (one, _), (other, _) = visits.begin(), visits.begin()
    assert one.is_own_form(one.form_token)
    for wrong in ("", other.form_token, one.form_token[:-1], "ä"):
        assert not one.is_own_form(wrong)
