"""The dashboard in a real browser."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _dashboard_studies import HOSTILE, TOKEN, cluster_entries, make_clusters, make_folder, make_record, make_trial
from _page_checks import CUT
from autoscout.core.actions import Action, ActionKind
from autoscout.store.sql.store import SqlStore

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks._browser import browser, dashboard, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "a browser is here")]

PLOTS = ("convergence", "timeline", "tradeoff", "importance", "slice", "contour", "parallel", "predicted")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def page(chrome: Any) -> Iterator[Any]:
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    made.set_default_timeout(20_000)
    made.problems = []
    made.on("pageerror", lambda error: made.problems.append(str(error)))
    made.on(
        "request",
        lambda request: (
            made.problems.append(request.url) if "127.0.0.1" not in request.url and not request.url.startswith("data:") else None
        ),
    )
    made.on("dialog", lambda dialog: made.problems.append(dialog.message))
    yield made
    context.close()
    assert made.problems == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    root = make_folder(tmp_path_factory.mktemp("results"), hostile=HOSTILE)
    with dashboard(str(root), token=TOKEN) as (url, library):
        yield url, f"{url}/studies/{library.entries()[0].key}"


def test_every_plot_is_drawn(page: Any, site: tuple[str, str]) -> None:
    page.goto(site[1])
    for kind in PLOTS:
        plot = page.wait_for_selector(f"svg.{kind}")
        box = plot.bounding_box()
        assert box["width"] > 200, kind
        assert box["height"] > 40, kind
        marks = plot.evaluate("plot => plot.querySelectorAll('circle, path, rect').length")
        assert marks > 2, kind
        assert plot.query_selector("title").text_content(), "a screen reader has something to say"
    page.wait_for_selector("table#trials tbody tr")


@pytest.mark.parametrize("width", [400, 1400, 2560])
def test_nothing_is_cut_off(page: Any, site: tuple[str, str], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("", "/trials/7"):
        page.goto(site[1] + path)
        page.wait_for_selector("svg.parallel" if not path else "pre.log")
        assert page.evaluate(CUT) == []


def test_numbers_are_not_broken_in_two(page: Any, site: tuple[str, str]) -> None:
    """Other cells of a table break their words, so that it fits on a phone."""
    page.goto(f"{site[1]}/trials/7")
    styles = page.evaluate("[...document.querySelectorAll('td.number')].map(cell => getComputedStyle(cell).overflowWrap)")
    assert len(styles) > 5
    assert set(styles) == {"normal"}


def test_the_history_of_a_controller_is_drawn(page: Any, tmp_path: Path) -> None:
    make_clusters(tmp_path / "control.db", hostile=HOSTILE)
    with dashboard(str(tmp_path)) as (url, library):
        cluster_entries(library)[-1].follow()
        page.goto(url)
        page.get_by_role("link", name="lab").click()
        for kind in ("settings", "gains", "compare"):
            plot = page.wait_for_selector(f"svg.{kind}")
            assert plot.bounding_box()["height"] > 40, kind
            assert plot.query_selector("title").text_content(), "a screen reader has something to say"
        page.get_by_role("link", name="2", exact=True).click()
        page.wait_for_selector("pre")
        assert page.title() != "owned"
        assert page.locator("main img").count() == 0


def test_hostile_names_and_logs_stay_text(page: Any, site: tuple[str, str]) -> None:
    for path in ("", "/trials?status=failed", "/trials/7"):
        page.goto(site[1] + path)
        page.wait_for_timeout(300)
        assert "owned" not in page.title()
        assert page.locator("main img").count() == 0
    assert "onerror" in page.locator("pre.log").first.text_content(), "it is shown as what it is"


def test_keyboard_and_screen_reader(page: Any, site: tuple[str, str]) -> None:
    page.goto(site[1])
    page.wait_for_selector("table#trials")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the result"
    page.keyboard.press("Enter")
    assert page.url.endswith("#content")
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.locator("[role=status]#live").count() == 1
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input:not([type=hidden]), select, button, a, svg[role=img]")].filter((one) =>
          !(one.textContent.trim() || one.getAttribute("aria-label") || one.closest("label") || one.querySelector("title"))).length"""
    )
    assert unnamed == 0, "everything that can be used has a name"
    without_scope = page.evaluate("() => document.querySelectorAll('th:not([scope])').length")
    assert without_scope == 0
    page.focus("table#trials thead a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials?**")
    assert page.locator("th[aria-sort]").count() == 1


def test_a_running_study_updates_by_itself(page: Any, tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "store.db")
    store.open(make_record())
    store.append("engine", [make_trial(number) for number in range(5)])
    with dashboard(str(tmp_path / "store.db")) as (url, library):
        page.goto(f"{url}/studies/{library.entries()[0].key}")
        page.wait_for_selector("#live:has-text('live')")
        assert page.locator(".facts dd").first.text_content() == "5"
        thread = threading.Thread(target=lambda: [store.append("engine", [make_trial(number)]) for number in range(5, 16)])
        thread.start()
        page.wait_for_selector(".facts div:first-child dd:text-is('16')")
        page.locator("svg.convergence [data-i]").nth(15).wait_for(state="attached")
        thread.join()
        page.goto(url)
        page.wait_for_selector("#live:has-text('live')")
        store.open(make_record("another"))
        page.wait_for_selector("tbody th a:has-text('another')")
    store.close()


def test_a_study_is_steered_by_who_knows_the_token(page: Any, tmp_path: Path) -> None:
    make_folder(tmp_path)
    with dashboard(str(tmp_path), token=TOKEN) as (url, library):
        study = f"{url}/studies/{library.entries()[0].key}"
        page.goto(study)
        assert page.locator("form.act-stop").count() == 0, "read-only without the token"
        page.goto(f"{url}/login")
        page.fill("input[name=token]", "something else altogether")
        page.click("main button[type=submit]")
        page.wait_for_selector("[role=alert]")
        page.fill("input[name=token]", TOKEN)
        page.click("main button[type=submit]")
        page.wait_for_url(f"{url}/")
        page.goto(study)
        page.fill("form.act-try input[name=settings]", "threads=8, flash=on")
        page.click("form.act-try button")
        page.wait_for_selector(".asked li:has-text('threads=8')")
        page.goto(f"{study}/trials/3")
        page.fill("form.act-invalid input[name=reason]", "a backup ran")
        page.click("form.act-invalid button")
        page.wait_for_selector(".badge:has-text('marked invalid: a backup ran')")
        assert [action.kind.value for action in library.entries()[0].view().actions] == ["try", "invalid"]


def test_without_a_token_nobody_can_steer(page: Any, tmp_path: Path) -> None:
    make_folder(tmp_path)
    with dashboard(str(tmp_path)) as (url, library):
        page.goto(f"{url}/studies/{library.entries()[0].key}")
        assert page.locator("form.act-stop").count() == 0
        assert "Read-only" in page.locator("#part-actions").text_content()


def test_whoever_is_not_signed_in_is_led_to_where_one_signs_in(page: Any, tmp_path: Path) -> None:
    make_folder(tmp_path)
    with dashboard(str(tmp_path), token=TOKEN, host="0.0.0.0") as (url, library):
        entry = library.entries()[0]
        page.goto(url)
        page.fill("input[type=password]", TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.goto(f"{url}/studies/{entry.key}")
        page.wait_for_selector("svg.parallel")
        page.wait_for_selector("#live:text-is('live')")
        page.context.clear_cookies()
        entry.act(Action(kind=ActionKind.STOP))
        page.wait_for_selector("#live:has-text('signed out')")
        assert page.locator("svg.parallel").count() == 1, "what is shown stays"
        assert page.locator("input[type=password]").count() == 0
        page.reload()
        assert page.url == f"{url}/login"
