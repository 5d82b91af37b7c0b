"""The page of reports in a real browser, on a narrow and a wide screen, light and dark."""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape

import browser
import pytest
from report_lines import line, slow_brokers

from spark_kafka_sink.__main__ import main

pytestmark = pytest.mark.skipif(
    browser.command() is None, reason=f"no Chromium: apt-get install {browser.PACKAGE}"
)
WIDTHS = (400, 1200)
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"

# The page itself runs no script, so a frame around it measures.
FRAMES = """<!DOCTYPE html><body><pre id="found"></pre><script>
const page = PAGE, widths = WIDTHS;
const frames = widths.map(width => {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width: width, height: 4000, frameBorder: 0, srcdoc: page});
  document.body.append(frame);
  return frame;
});
const box = element => {
  const {left, right, top, bottom} = element.getBoundingClientRect();
  return {left, right, top, bottom};
};
addEventListener("load", () => {
  const found = frames.map(frame => {
    const inside = frame.contentDocument;
    return {
      scrollWidth: inside.documentElement.scrollWidth,
      background: frame.contentWindow.getComputedStyle(inside.body).backgroundColor,
      plots: [...inside.querySelectorAll("svg")].map(svg => ({
        box: box(svg),
        texts: [...svg.querySelectorAll("text")].map(
          text => ({text: text.textContent, ...box(text)})
        ),
        areas: [...svg.querySelectorAll("path")].filter(path => {
          const {width, height} = path.getBoundingClientRect();
          return width > 100 && height > 20;
        }).length,
      })),
    };
  });
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A usual history, and one with names that no layout expects."""
    long = "a" * 249
    hostile = line(0, records_by_topic={long: 1}, broker_error=long, query_id=long, outcome=long)
    folder = tmp_path_factory.mktemp("reports")
    for name, lines in {"usual": slow_brokers(), "long names": [hostile]}.items():
        reports = folder / f"{name}.jsonl"
        reports.write_bytes(b"".join(lines))
        assert main(["report", str(reports), "--html", str(folder / f"{name}.html")]) == 0
    return folder


@cache
def measured(page, *options):
    """What the browser finds at each of WIDTHS."""
    text = json.dumps(page.read_text(encoding="utf-8"))
    frames = page.with_name(f"frames of {page.name}")
    frames.write_text(
        FRAMES.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGE", text.replace("</", r"<\/")),
        encoding="utf-8",
    )
    dom = browser.run(frames, "--window-size=1300,4000", "--dump-dom", *options)
    (printed,) = re.findall(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    return dict(zip(WIDTHS, json.loads(unescape(printed)), strict=True))


@pytest.mark.parametrize("name", ["usual", "long names"])
def test_nothing_is_wider_than_the_screen(pages, name):
    for width, page in measured(pages / f"{name}.html").items():
        assert page["scrollWidth"] <= width


def test_plots_are_drawn_and_their_texts_fit(pages):
    for width, page in measured(pages / "usual.html").items():
        assert len(page["plots"]) == 6
        for plot in page["plots"]:
            box = plot["box"]
            assert box["right"] - box["left"] > 300
            assert box["right"] <= width
            assert plot["areas"] > 0
            assert plot["texts"]
            for text in plot["texts"]:
                assert box["left"] - 1 <= text["left"] <= text["right"] <= box["right"] + 1, text
                assert box["top"] - 1 <= text["top"] <= text["bottom"] <= box["bottom"] + 1, text


def test_wide_screens_have_two_plots_side_by_side(pages):
    sizes = measured(pages / "usual.html")
    narrow, wide = (len({plot["box"]["left"] for plot in sizes[w]["plots"]}) for w in WIDTHS)
    assert (narrow, wide) == (1, 2)


def test_the_page_is_dark_where_the_browser_is(pages):
    backgrounds = [
        measured(pages / "usual.html", option)[400]["background"] for option in (LIGHT, DARK)
    ]
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]
