"""What stands around every page: head, way back, status; and the pieces that are replaced while one looks."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.common.markup import Markup, embedded_json, join, tag
from autoscout.web.guard import Session


def document(
    title: str, body: object, *, live: str = "", session: Session | None = None, data: object = None, trail: Sequence[tuple[str, str]] = ()
) -> str:
    """A whole page.

    Args:
        title: Of the window.
        body: What stands in `main`.
        live: The study or list whose changes the page follows; empty for none.
        session: Of whoever has signed in.
        data: What tooltips read.
        trail: The way back: titles and addresses.
    """
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title}: AutoScout"),
            tag("link", rel="icon", href="data:,"),
            tag("link", rel="stylesheet", href="/static/page.css"),
            tag("link", rel="stylesheet", href="/static/dashboard.css"),
            tag("script", src="/static/page.js", defer=True),
            tag("script", src="/static/dashboard.js", defer=True),
        ]
    )
    links: list[object] = [tag("a", "AutoScout", href="/", class_="home")]
    for text, address in trail:
        links += [tag("span", " / ", class_="quiet"), tag("a", text, href=address)]
    leave: object = ""
    if session is not None and session.csrf:
        hidden = tag("input", type="hidden", name="csrf", value=session.csrf)
        leave = tag("form", hidden, tag("button", "Sign out", type="submit"), method="post", action="/logout", class_="leave")
    status = tag("span", "", id="live", role="status", class_="quiet small")
    bar = tag("nav", tag("div", *links), tag("div", status, " ", leave, class_="right"), class_="bar", aria_label="Where you are")
    skip = tag("a", "Skip to the result", href="#content", class_="skip")
    tip = tag("div", "", id="tip", role="status", aria_live="off", hidden=True)
    texts = tag("script", embedded_json(data), type="application/json", id="data") if data is not None else ""
    inner = [skip, bar, tag("main", body, id="content"), tip, tag("div", texts, class_="part", id="part-data", data_live=True)]
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', *inner, data_live=live or None), lang='en')}\n"


def part(name: str, content: object = "", *, source: str = "") -> Markup:
    """A piece of a page that is replaced when the study changes; one with a source is fetched after the first paint."""
    waiting = tag("p", "…", class_="quiet waiting") if source else ""
    return tag("div", content or waiting, class_="part", id=f"part-{name}", data_live=True, data_src=source or None)


__all__ = ["document", "part"]
