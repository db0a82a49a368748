#!/usr/bin/env python3
"""Looks at report.html and the schedule pictures in a real browser (headless Chromium).

    python3 tests/app/report_test.py build/release/trident [--full] [--keep FOLDER]

Runs write their folders, some with losses that aren't finite, with spikes, of one iteration, and
three beside each other; `trident report` draws them. On windows of 390, 1,280 and 1,920 pixels, light
and dark (--full: each run on each), a script added to a copy of the page tells where everything lies:
nothing may be cropped, no text may be too faint to read, and a screenshot shows whether there is a
drawing in each figure: enough pixels that are neither paper nor ink of text, in more than one
colour. The page may not load anything. Zooming, smoothing and the logarithmic scale are tried. Then
the same for the SVG of `schedule`. Ends with `N passed`, or an error that names the figure. --keep
leaves the pages and their screenshots.
"""

import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

# How many colours each figure has at least.
FIGURES = {"loss": 1, "gradient-norm": 1, "learning-rate": 1, "speed": 1, "mfu": 1, "parts": 3, "bubble": 2,
           "bubble-by-rank": 1, "traffic": 1, "memory": 4, "timeline-0-0": 3, "timeline-0-1": 3}
WINDOWS = [(390, "dark"), (1280, "light"), (1920, "dark"), (390, "light"), (1280, "dark"), (1920, "light")]
MEASURE = r"""<script>
function channels(text) {  // "rgb(1, 2, 3)", "rgba(…)", "color(srgb 0.1 0.2 0.3)"
  const numbers = text.match(/[\d.]+/g).map(Number), unit = text.startsWith("color") ? 1 : 255;
  return {rgb: numbers.slice(0, 3).map(v => v / unit), alpha: numbers.length > 3 ? numbers[3] : 1};
}
function luminance(rgb) {  // WCAG 2.2
  const [r, g, b] = rgb.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element) {
  if (element.matches("text.box")) return channels(getComputedStyle(element.previousElementSibling).fill).rgb;
  for (let e = element; e; e = e.parentElement) {
    const back = channels(getComputedStyle(e).backgroundColor);
    if (back.alpha === 1) return back.rgb;
  }
  return [1, 1, 1];
}
const faint = [], cropped = [];
for (const e of document.querySelectorAll("body *")) {
  if (e.closest("script, style, title") || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (box.width === 0) continue;
  const ink = channels(e instanceof SVGElement ? style.fill : style.color).rgb;
  const [a, b] = [luminance(ink), luminance(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${e.tagName}.${e.getAttribute("class")} "${e.textContent.slice(0, 30)}" ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  const frame = e instanceof SVGElement ? e.closest("svg").getBoundingClientRect() : document.documentElement.getBoundingClientRect();
  const scrolls = e.closest(".scroll, .table, .wide, pre");
  if (!scrolls && (box.left < frame.left - 1 || box.right > frame.right + 1 || (e instanceof SVGElement && (box.top < frame.top - 1 || box.bottom > frame.bottom + 1)))) {
    cropped.push(`${e.tagName} "${e.textContent.slice(0, 30)}" ${box.left.toFixed(0)}-${box.right.toFixed(0)} in ${frame.left.toFixed(0)}-${frame.right.toFixed(0)}`);
  }
}
parent.postMessage(JSON.stringify({
  width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight, window: innerWidth, faint, cropped,
  odd: [...document.querySelectorAll("svg text")].map(t => t.textContent).filter(t => /e[+-]?0$|NaN|undefined/.test(t)), tried: window.tried || null,
  cut: [...document.querySelectorAll("figure")].flatMap(f => (f.textContent.match(/cut above .* ms; .* ms/) || []).map(text => `${f.id}: ${text}`)),
  boxes: [...document.querySelectorAll("SELECTOR")].map(f => { const b = f.getBoundingClientRect(); return [f.id, b.left, b.top, b.width, b.height]; })}), "*");
</script>
"""
# Windows of headless Chromium are at least 500 pixels wide, frames as wide as they are told.
FRAME = """<!DOCTYPE html><body><script>addEventListener("message", event =>
document.body.appendChild(Object.assign(document.createElement("pre"), {id: "told", textContent: event.data})));</script>
<iframe src="%s" style="border:0;width:%dpx;height:%dpx"></iframe>"""
# What a hand does with the page.
TRY = r"""<script>
SVGElement.prototype.setPointerCapture = () => {};
const loss = () => document.querySelector("#loss svg"), path = () => loss().querySelector("path.series").getAttribute("d");
const at = (type, part) => { const b = loss().getBoundingClientRect(); loss().dispatchEvent(new PointerEvent(type, {pointerId: 1, clientX: b.left + b.width * part, clientY: b.top + b.height / 2, bubbles: true})); };
const numbers = () => [...loss().querySelectorAll("text")].map(t => t.textContent);
const tried = window.tried = {};
const before = path();
at("pointermove", 0.5);
tried.tip = document.querySelector("#loss .tip").textContent;
const smooth = document.getElementById("smooth"), log = document.getElementById("log");
smooth.value = "0.9"; smooth.dispatchEvent(new Event("input"));
tried.smoothed = path() !== before;
smooth.value = "0"; smooth.dispatchEvent(new Event("input"));
log.checked = true; log.dispatchEvent(new Event("change"));
tried.logarithmic = path() !== before;
log.checked = false; log.dispatchEvent(new Event("change"));
tried.back = path() === before;
at("pointerdown", 0.4); at("pointermove", 0.5); at("pointerup", 0.6);
tried.zoomed = path() !== before;
tried.numbers = numbers();
loss().dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
tried.whole = path() === before;
const line = document.querySelector("#timeline-0-1"), boxes = () => line.querySelectorAll("svg rect").length, all = boxes();
line.querySelector("button").click(); line.querySelector("button").click();
tried.fewer = boxes() < all;
line.querySelectorAll("button")[2].click();
tried.again = boxes() === all;
</script>
"""


def chromium(*arguments):
    """Its output; the profile is its own and goes with it."""
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", *arguments],
            capture_output=True, text=True, timeout=120, check=True)
        return run.stdout


def pixels(path):
    """Rows of (r, g, b) of an 8-bit PNG without interlace, as Chromium writes them."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        if kind == b"IHDR":
            width, height = (int.from_bytes(data[at + 8 + i:at + 12 + i], "big") for i in (0, 4))
            depth, colour = data[at + 16], data[at + 17]
            assert depth == 8 and colour in (2, 6) and data[at + 20] == 0
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    step = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(packed), [], bytearray(width * step)
    for y in range(height):
        begin = y * (width * step + 1)
        how, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + width * step])
        for i in range(len(row)) if how else ():
            left = row[i - step] if i >= step else 0
            up, corner = above[i], above[i - step] if i >= step else 0
            if how == 1:
                row[i] = (row[i] + left) & 255
            elif how == 2:
                row[i] = (row[i] + up) & 255
            elif how == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            else:
                p = left + up - corner
                best = min((abs(p - left), 0, left), (abs(p - up), 1, up),
                           (abs(p - corner), 2, corner))[2]
                row[i] = (row[i] + best) & 255
        rows.append(row)
        above = row
    return rows, step


def drawn_colours(image, box):
    """Colours, coarsely, of at least 30 pixels in `box` that are no shade of grey."""
    rows, step = image
    _, left, top, width, height = box
    count = {}
    for row in rows[max(0, int(top)):int(top + height)]:
        for x in range(max(0, int(left)), int(min(left + width, len(row) // step))):
            r, g, b = row[x * step:x * step + 3]
            if max(r, g, b) - min(r, g, b) > 60:
                key = (r // 48, g // 48, b // 48)
                count[key] = count.get(key, 0) + 1
    return [key for key, n in count.items() if n >= 30]


def look(folder, name, html, selector, wanted, size, scheme="light", more="", pixel=True):
    """Opens `html` and checks that every element that `selector` finds has been drawn."""
    outside = re.sub(r"<script type=.*?</script>", "", html, flags=re.S)  # the data
    assert not re.search(r"(src|href)\s*=|@import|url\((?!#)", outside.replace("url(#${clip})", "")), f"{name} loads something"
    page = folder / f"{name}.html"
    page.write_text(html + more + MEASURE.replace("SELECTOR", selector))
    width, height = map(int, size.split(","))
    frame = folder / f"{name}.frame.html"
    frame.write_text(FRAME % (page.name, width, height))
    window = ["--virtual-time-budget=5000", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    dom = chromium(*window, "--dump-dom", frame.as_uri())
    frame.unlink()
    found = re.search(r'<pre id="told">(.*?)</pre>', dom, re.S)
    assert found, f"{name}: its script has failed"
    told = json.loads(found.group(1).replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    boxes = told["boxes"]
    assert sorted(b[0] for b in boxes) == sorted(wanted), f"{name}: figures {[b[0] for b in boxes]}"
    assert told["window"] == width, told["window"]
    assert told["width"] <= width, f"{name}: {told['width']} wide in a window of {width}"
    assert not told["cropped"], f"{name}: cropped: {told['cropped'][:5]}"
    assert not told["odd"], f"{name}: numbers like {told['odd'][:5]}"
    assert not told["faint"], f"{name}: too faint: {told['faint'][:5]}"
    for box in boxes:
        assert box[3] > 100 and box[4] > 40, f"{name}: {box} is too small to see"
    if not pixel:
        return len(boxes), told
    page.write_text(html)
    picture = folder / f"{name}.png"
    height = max(told["height"], 600)
    chromium(f"--window-size={width},{height}", window[1], f"--screenshot={picture}", page.as_uri())
    image = pixels(picture)
    for box in boxes:
        colours = drawn_colours(image, box)
        assert len(colours) >= wanted[box[0]], f"{name}: {box[0]} shows only {colours}"
    return len(boxes), told


def config(dir, iterations, pipeline):
    return {
        "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 32,
                  "num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 256},
        "parallel": {"pipeline_model_parallel_size": pipeline, "data_parallel_size": pipeline},
        "pipeline": {"schedule": "zbv" if pipeline > 1 else "1f1b"},
        "batch": {"micro_batch_size": 1, "global_batch_size": 8},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "data": {"train": [{"path": "text.txt"}], "validation": [{"path": "text.txt"}]},
        "training": {"train_iters": iterations, "eval_interval": 4, "eval_iters": 1},
        "checkpoint": {"save": dir + "/weights"},
        "logging": {"dir": dir}}


def another(folder, name, iterations, change):
    """A folder as of a run of so many iterations, made of run's, its lines changed by `change`."""
    made = folder / name
    made.mkdir(parents=True)
    for file in ("config.json", "run.json", "timeline.json"):
        shutil.copy(folder / "run" / file, made / file)
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    with open(made / "metrics.jsonl", "w") as file:
        for k in range(1, iterations + 1):
            line = {**lines[min(k, len(lines)) - 1], "iteration": k}
            line.pop("validation_loss", None)
            change(k, line)
            file.write(json.dumps(line) + "\n")


def of_nan(k, line):
    line["parts_ms"] = {name: 50 if k == 1 else 2 for name in line["parts_ms"]}
    line["loss"] = 3 * math.exp(-k / 50)
    if 20 <= k < 25 or k == 60:
        line["loss"] = line["grad_norm"] = None


def of_spikes(k, line):
    line["parts_ms"] = {name: 2 if k < 2600 else 10 for name in line["parts_ms"]}  # most are short
    line["loss"] = 8 * math.exp(-k / 800) + 0.8 + 0.2 * random.random() + (6 if k in (1234, 3210) else 0)
    line["learning_rate"] = 3e-4 * min(1, k / 200)
    line["batch_size"] = 8 if k < 1000 else 16
    if k % 500 == 0:
        line["validation_loss"] = {"books": line["loss"] + 0.1, "a set with a long name": 2}


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    full = "--full" in sys.argv
    if not shutil.which("chromium"):
        sys.exit("report_test: chromium is not installed (scripts/packages_browser.txt)")
    with tempfile.TemporaryDirectory() as name:
        folder, looked = pathlib.Path(name), 0
        if "--keep" in sys.argv:
            folder = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]).resolve()
            folder.mkdir(parents=True)

        def trident(*arguments):
            run = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            return run.stdout

        (folder / "text.txt").write_text("In the beginning was the word & the </script><word>. " * 200)
        (folder / "c.json").write_text(json.dumps(config("run", 40, 2)))
        (folder / "one.json").write_text(json.dumps(config("one", 1, 1)))
        assert "run/report.html" in trident("train", "c.json")
        trident("train", "one.json")
        another(folder, "nan", 100, of_nan)
        another(folder, "spikes", 5000, of_spikes)
        another(folder, "none", 3, lambda k, line: line.update(loss=None))
        for rate in ("0.1", "0.01", "a run with quite a long name"):
            another(folder, f"runs/{rate}", 60, lambda k, line: line.update(loss=math.exp(-k / 40)))
        for one in ("nan", "spikes", "none"):
            trident("report", one)
        trident("report", "runs/0.1", "runs/0.01/", "runs/a run with quite a long name", "--out", "three.html")

        html = (folder / "run/report.html").read_text()
        assert html.index("predicted bubble") < html.index("measured bubble")
        for fact in ("perplexity", "best validation", "trident train c.json", "AMD" if "AMD" in pathlib.Path("/proc/cpuinfo").read_text() else "Intel",
                     "And "):  # the sample
            assert fact in html, f"report.html doesn't say {fact}"
        single = {k: v for k, v in FIGURES.items() if k not in ("bubble", "bubble-by-rank", "traffic")}
        single |= {"timeline-0-0": 2, "timeline-0-1": 2, "parts": 1}
        several = {k: v for k, v in FIGURES.items() if not k.startswith(("parts", "memory", "timeline"))}
        for r in range(3):
            several |= {f"parts-{r}": 3, f"memory-{r}": 4, f"timeline-{r}-0": 3, f"timeline-{r}-1": 3}
        several |= {"loss": 3}
        pages = [("run/report", FIGURES, 4), ("one/report", single, 1), ("nan/report", FIGURES, 1),
                 ("spikes/report", FIGURES | {"batch-size": 1, "loss": 3}, 2),
                 ("none/report", FIGURES | {"loss": 0}, 1), ("three", several, 2)]
        # A long first iteration is cut out of its figure, the later ones of a ramp aren't.
        cut = {"nan/report": ["parts: cut above 8 ms; iteration 1: 200 ms"], "spikes/report": []}
        for page, wanted, windows in pages:
            html = (folder / f"{page}.html").read_text()
            for width, scheme in WINDOWS[:6 if full else windows]:
                more = TRY if page == "run/report" and width == 1280 else ""
                count, told = look(folder, f"{page.replace('/', '-')}-{width}-{scheme}", html, "figure", wanted, f"{width},1000", scheme, more,
                                    full or (width, scheme) == WINDOWS[0])
                looked += count
                if page in cut:
                    assert told["cut"] == cut[page], f"{page}: cut: {told['cut']}"
                if more:
                    tried = told["tried"]
                    assert tried["tip"].startswith("iteration ") and "training: " in tried["tip"], tried
                    assert all(tried[key] for key in ("smoothed", "logarithmic", "back", "zoomed", "whole", "fewer", "again")), tried
                    assert "1" not in tried["numbers"] and "20" in tried["numbers"], tried
        for kind, m in (("1f1b", 8), ("dualpipev", 16)):
            svg = subprocess.run([program, "schedule", "--kind", kind, "--stages", "4",
                                  "--microbatches", str(m), "--format", "svg"],
                                 capture_output=True, text=True, check=True).stdout
            body = "<!DOCTYPE html><html><body style='margin:0;background:#fff'>" + svg.replace("<svg ", '<svg id="drawing" ', 1)
            looked += look(folder, kind, body, "svg", {"drawing": 2 if kind == "1f1b" else 4}, "1800,300")[0]
    print(f"{looked} passed")


if __name__ == "__main__":
    main()
