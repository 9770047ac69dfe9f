"""Opens pages in a headless Chromium and measures them: how long a page of 500 nodes takes, and how smoothly it moves.

    pip install playwright      # a Chromium on the path, or `playwright install chromium`
    python scripts/browser.py [--site FOLDER] [--pictures FOLDER]

`--site` looks at each page of the built site at the width of a desk and of a phone, light and dark: errors that the
browser reports, addresses that fail, text that leaves the page sideways. `--pictures` keeps what the browser showed.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import puregraph as pg

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FRAMES = """() => new Promise(done => {
  const times = [];
  const next = now => {
    times.push(now);
    if (times.length < 120 && now - times[0] < 4000) requestAnimationFrame(next); else done(times);
  };
  requestAnimationFrame(next);
})"""
PRINTED = """() => {
  window.dispatchEvent(new Event("beforeprint"));
  const sheets = [...document.querySelectorAll(".printed")].map(sheet => sheet.viewBox.baseVal);
  const ends = sheets.map(each => each.y + each.height).slice(0, -1);
  const boxes = [...document.querySelectorAll(".pane svg:not(.printed):not([hidden]) .box")].map(box => box.getBBox());
  return [sheets.length, boxes.filter(box => ends.some(end => box.y < end && end < box.y + box.height)).length];
}"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def residual(blocks):
    """A network of `blocks` residual blocks of four nodes each, and one more."""
    x = h = pg.Input(name="x").node()
    for i in range(blocks):
        inner = pg.Relu(name=f"relu{i}")(pg.Linear(8, 8, name=f"fc{i}")(h))
        h = pg.Add(name=f"add{i}")(pg.Tanh(name=f"tanh{i}")(inner), h)
    return pg.Graph(x, pg.Linear(8, 2, name="out")(h), name=f"residual{blocks}")


def measured(browser, path):
    """Of one page: milliseconds to open, frames a second while it is dragged and zoomed, requests, errors."""
    opened, dragged, zoomed, requests, errors = [], [], [], [], []
    for _ in range(5):
        page = browser.new_page(viewport=DESK)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        opened.append(page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart"))
        pane = page.query_selector(".pane").bounding_box()
        x, y = pane["x"] + pane["width"] / 2, pane["y"] + pane["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        dragged.append(rate(page, ((page.mouse.move, x + 3 * (i % 40), y - 5 * (i % 60)) for i in count())))
        page.mouse.up()
        zoomed.append(rate(page, ((page.mouse.wheel, 0, 40 if i % 20 < 10 else -40) for i in count())))
        page.close()
    outside = {url for url in requests if not url.startswith("file:")}
    return statistics.median(opened), statistics.median(dragged), statistics.median(zoomed), len(outside), errors


def rate(page, moves):
    """Frames a second while the pointer moves."""
    page.evaluate(f"void (window.frames_ = ({FRAMES})())")  # begins, and is not waited for
    end = time.perf_counter() + 2
    for function, *given in moves:
        function(*given)
        if time.perf_counter() > end:
            break
    times = page.evaluate("window.frames_")
    return 1000 * (len(times) - 1) / (times[-1] - times[0])


def sheetsOf(browser, path):
    """How many sheets a page prints, and how many boxes the ends of sheets run through."""
    page = browser.new_page(viewport=DESK)
    page.goto(path.as_uri())
    found = page.evaluate(PRINTED)
    page.close()
    return found


def lookAtPages(browser, folder, pictures):
    """Each page of a site at two widths, in light and dark: what the browser reports of it."""
    found, pages = [], sorted(Path(folder).rglob("*.html"))
    for size, width in (("desk", DESK), ("phone", PHONE)):
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=width, color_scheme=scheme)
            page = context.new_page()
            told = []
            page.on("pageerror", lambda error, told=told: told.append(str(error)))
            page.on("requestfailed", lambda request, told=told: told.append(f"no {request.url}"))
            for path in pages:
                told.clear()
                page.goto(path.resolve().as_uri())
                if page.evaluate(SIDEWAYS) > 0:
                    told.append(f"wider than the page by {page.evaluate(SIDEWAYS)} pixels")
                found += [f"{path.relative_to(folder)} ({size}, {scheme}): {each}" for each in told]
                if pictures and path.parent == Path(folder):
                    page.screenshot(path=str(Path(pictures) / f"{path.stem}-{size}-{scheme}.png"), full_page=False)
            context.close()
    return len(pages), found


def main():
    """Draw, open, measure, count the sheets of what is printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site")
    parser.add_argument("--pictures")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright  # optional: for this script alone

    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        print(f"Chromium {browser.version}, without a display; medians of five\n")
        heads = ("boxes", 7), ("kB", 7), ("open, ms", 10), ("drag, fps", 11), ("zoom, fps", 11), ("requests", 10)
        print("page".ljust(34) + "".join(f"{h:>{w}}" for h, w in (*heads, ("sheets", 8), ("boxes cut", 11))))
        cases = {
            "LeNet": (pg.models.lenet(), ("N", 1, 28, 28), {}),
            "500 nodes": (residual(125), ("N", 8), {}),
            "GPT-2, every block": (pg.models.gpt2(), ("N", 64), {"repeats": True}),
        }
        for name, (net, shape, options) in cases.items():
            path = Path(folder) / "page.html"
            drawing = net.draw(str(path), shape, **options)
            boxes = str(drawing).split(":")[-1].split()[0]
            opened, dragged, zoomed, requests, errors = measured(browser, path)
            size, (sheets, cut) = path.stat().st_size / 1000, sheetsOf(browser, path)
            rates = f"{opened:>10.0f}{dragged:>11.0f}{zoomed:>11.0f}"
            print(f"{name:<34}{boxes:>7}{size:>7.0f}{rates}{requests:>10}{sheets:>8}{cut:>11}")
            print(*errors, sep="\n", end="\n" if errors else "")
        if given.site:
            pages, found = lookAtPages(browser, given.site, given.pictures)
            print(f"\n{pages} pages of the site at two widths, light and dark: {len(found)} complaints")
            print(*found, sep="\n")
        browser.close()


if __name__ == "__main__":
    main()
