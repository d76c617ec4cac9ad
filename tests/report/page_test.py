"""Opens example reports in a headless Chromium and counts what the page's script has drawn.

report_test writes the examples. Exit code 77, with the reason, where no Chromium is installed.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = os.environ.get("STRATA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
HOSTILE = '</script><img src=x onerror="window.hacked = true"><!--'
RECORDER = """<script>
const errors = [];
addEventListener('error', event => errors.push(event.message));
</script>"""
# Writes the values of expressions into the page, from which --dump-dom takes them.
PROBE = """<script>
addEventListener('load', () => {
  const count = selector => document.querySelectorAll(selector).length;
  const texts = selector => [...document.querySelectorAll(selector)].map(node => node.textContent);
  const box = selector => document.querySelector(selector).getBoundingClientRect();
  const values = {%s};
  const node = document.createElement('pre');
  node.id = 'probe';
  node.textContent = JSON.stringify({...values, errors});
  document.body.append(node);
});
</script>"""


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def example(self, name):
        """The text of an example's page and its JSON."""
        path = self.folder / "report.html"
        subprocess.run([os.environ["STRATA_REPORT_TEST"], "--gtest_filter=Report.IsWrittenToFileForViewing"],
                       env=dict(os.environ, STRATA_REPORT=str(path), STRATA_REPORT_EXAMPLE=name), check=True,
                       stdout=subprocess.DEVNULL)
        text = path.read_text()
        return text, json.loads(text.split('type="application/json">')[1].split("<")[0])

    def open(self, text, **expressions):
        """The values of JavaScript expressions in the open page. No script may fail."""
        probe = PROBE % ",".join(f"{name}: {code}" for name, code in expressions.items())
        path = self.folder / "probed.html"
        path.write_text(text.replace("<head>", "<head>" + RECORDER, 1).replace("</body>", probe + "</body>"))
        dom = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,2000",
             "--virtual-time-budget=1000", f"--user-data-dir={self.folder / 'profile'}", "--dump-dom", path.as_uri()],
            capture_output=True, text=True, timeout=120).stdout
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
        self.assertIsNotNone(found, dom[-2000:])
        values = json.loads(html.unescape(found[1]))
        self.assertEqual(values.pop("errors"), [])
        return values

    def marks(self, page):
        """The numbers of marks that the JSON of a page calls for."""
        cards = page["cards"]
        rows = [row for card in cards if "timeline" in card for rank in card["timeline"]["ranks"] for row in rank["rows"]]
        spans = [span for row in rows for side in row["sides"] for span in side["spans"]]
        bars = [bar for card in cards for row in card.get("bars", []) for bar in row["bars"]]
        curves = [curve for card in cards for curve in card.get("curves", [])]
        return {
            "cards": len(cards), "tiles": len(page["tiles"]), "facts": len(page["facts"]),
            "tracks": len(rows), "spans": len(spans), "numbers": sum(span["number"] != "" for span in spans),
            "ends": sum(len(card["timeline"]["ends"]) for card in cards if "timeline" in card),
            "bars": len(bars), "segments": sum(len(bar["segments"]) for bar in bars),
            "budgets": sum(row["budget_percent"] > 0 for card in cards for row in card.get("bars", [])),
            "curves": len(curves), "dots": sum(len(curve["points"]) for curve in curves if curve["dots"]),
            "keys": sum(len(card.get("legend", [])) for card in cards) + len({span["style"] for span in spans})
            + sum(curve["name"] != "" for curve in curves),
            "cells": sum(len(row) - 1 for card in cards if "table" in card for row in card["table"]["rows"]),
            "appendices": len(page["appendices"])}

    def drawn(self, text):
        selectors = {
            "cards": "section.card", "tiles": ".tile", "facts": "dd", "tracks": ".track", "spans": ".span rect",
            "numbers": ".span text", "ends": ".end", "bars": ".bar", "segments": ".segment", "budgets": ".budget",
            "curves": ".curve path", "dots": ".curve circle", "keys": ".legend .key", "cells": "tbody td",
            "appendices": "details"}
        return self.open(text, **{name: f"count('{selector}')" for name, selector in selectors.items()})

    def test_draws_every_mark_of_every_example(self):
        for name in ("pipeline", "devices", "offload", "recommender"):
            with self.subTest(example=name):
                text, page = self.example(name)
                self.assertEqual(self.drawn(text), self.marks(page))

    def test_places_marks_in_proportion(self):
        text, page = self.example("pipeline")
        timeline = page["cards"][0]["timeline"]
        got = self.open(
            text, axis="box('.track').left", width="box('.track').width",
            ends="[...document.querySelectorAll('.end line')].map(line => line.getBoundingClientRect().left)",
            spans="[...document.querySelectorAll('.span rect')].map(rect => rect.getBoundingClientRect())"
                  ".map(({left, width}) => [left, width])",
            bar="box('#idle .bar').width", segment="box('#idle .segment').width",
            dots="[...document.querySelectorAll('#loss circle')].map(dot => [+dot.getAttribute('cx'), +dot.getAttribute('cy')])")
        pixels = got["width"] / timeline["seconds"]
        for end, place in zip(timeline["ends"], got["ends"]):
            self.assertAlmostEqual(place, got["axis"] + pixels * end["at"], delta=1)
        spans = [span for rank in timeline["ranks"] for row in rank["rows"] for side in row["sides"] for span in side["spans"]]
        for span, (left, width) in zip(spans, got["spans"], strict=True):
            self.assertAlmostEqual(left, got["axis"] + pixels * span["begin"], delta=1)
            self.assertAlmostEqual(width, max(.4, pixels * (span["end"] - span["begin"]) - .6), delta=1)
        share = page["cards"][1]["bars"][0]["bars"][0]["segments"][0]["percent"] / 100
        self.assertAlmostEqual(got["segment"], share * got["bar"], delta=1)
        steps, values = zip(*page["cards"][2]["curves"][-1]["points"])
        for axis, numbers, sign in ((0, steps, 1), (1, values, -1)):
            places = [sign * dot[axis] for dot in got["dots"]]
            scale = (places[-1] - places[0]) / (numbers[-1] - numbers[0])
            for place, number in zip(places, numbers, strict=True):
                self.assertAlmostEqual(place, places[0] + scale * (number - numbers[0]), delta=.1)
            self.assertGreater(scale, 0)

    def test_shows_names_as_text(self):
        text, page = self.example("hostile")
        got = self.open(text, hacked="'hacked' in window", images="count('img')", scripts="count('script')",
                        title="document.title", heading="texts('h1')[0]", fact="texts('dd')[0]", name="texts('dt')[0]",
                        tables="texts('#embeddings tbody th')", bars="texts('#staleness .rank')",
                        kinds="texts('#memory .key')", labels="[...document.querySelectorAll('#memory .segment')]"
                        ".map(node => node.getAttribute('aria-label'))", sample="texts('blockquote')[0]",
                        plan="texts('pre')[0]")
        self.assertEqual((got["hacked"], got["images"], got["scripts"]), (False, 0, 4))  # two of them are this test's
        self.assertEqual(got["title"], HOSTILE + " \u00b7 Strata")
        for part in ("heading", "fact", "name", "plan"):
            self.assertEqual(got[part], HOSTILE, part)
        for part in ("tables", "bars", "kinds"):
            self.assertIn(HOSTILE, got[part], part)
        self.assertTrue(any(label.startswith(HOSTILE) for label in got["labels"]))
        self.assertEqual(got["sample"], HOSTILE * 2 + "\ufffd\ufffd")  # a byte that is not UTF-8, a control character

    def test_puts_long_facts_on_separate_lines(self):
        text, page = self.example("hostile")
        wide = self.open(text, wide="texts('.wide dt')")["wide"]
        self.assertEqual(wide, [name for name, value in page["facts"] if len(value) > 60])
        self.assertEqual(len(wide), 1)

    def test_describes_every_drawing_to_screen_readers(self):
        got = self.open(self.example("pipeline")[0],
                        unnamed="count('.plot svg:not([aria-label]), .span:not([aria-label]), .segment:not([aria-label])')",
                        span="document.querySelector('.span').getAttribute('aria-label')",
                        segment="document.querySelector('.segment').getAttribute('aria-label')")
        self.assertEqual(got["unnamed"], 0)
        self.assertRegex(got["span"], r"^rank 0, predicted: forward\nstage 0\nmicro-batch 0\n60 ms, from 0")
        self.assertRegex(got["segment"], r"^predicted compute: 1.65 s, 89.0 %$")

    def test_zooms_into_the_timeline(self):
        text, _ = self.example("pipeline")
        state = "[texts('#timeline .axis text'), [...document.querySelectorAll('.span')]" \
                ".filter(span => span.style.display === 'none').length]"
        got = self.open(text, whole=state, click="document.querySelector('[aria-label=\"Zoom in\"]').click()", near=state,
                        back="[...document.querySelectorAll('button')].at(-1).click()", again=state,
                        view="(view => (view.width = GUTTER + 100 + RIGHT, view.scale(2, 1), [view.from, view.to, "
                             "view.x(.5) - GUTTER, view.x(1.5) - GUTTER, view.seconds(GUTTER + 50)]))(new TimeView(2))")
        self.assertEqual(got["whole"], [["0", "0.5 s", "1.0 s", "1.5 s"], 0])
        self.assertGreater(got["near"][1], 10)
        self.assertNotIn("1.5 s", got["near"][0])
        self.assertEqual(got["again"], got["whole"])
        self.assertEqual(got["view"], [.5, 1.5, 0, 100, 1])  # the middle half of two seconds, on 100 pixels

    def test_explains_marks_under_the_pointer(self):
        point = "node => {{ const {{left, top, width, height}} = node.getBoundingClientRect(); " \
                "node.dispatchEvent(new PointerEvent('pointermove', {{clientX: left + {} * width, clientY: top + height / 2}})); " \
                "return document.getElementById('tip').textContent; }}"
        got = self.open(self.example("recommender")[0],
                        span=f"({point.format(.5)})(document.querySelector('.span'))",
                        curve=f"({point.format(.98)})(document.querySelector('#loss .plot svg'))",
                        cursor="document.querySelector('#loss .cursor').style.visibility")
        self.assertTrue(got["span"].startswith("rank 0, predicted: forward"), got["span"])
        self.assertRegex(got["curve"], r"^step 400\ntraining 1\.\d{4}\nvalidation 1\.7905$")
        self.assertEqual(got["cursor"], "visible")

    def test_chooses_round_ticks(self):
        got = self.open(self.example("pipeline")[0], even="axisTicks(0, 10, 5)", steps="axisTicks(1, 400, 7)",
                        fine="axisTicks(1.61, 1.69, 4)", empty="axisTicks(3, 3, 5)",
                        decimals="[[0, 20, 40], [0, .5, 1], [1.62, 1.64]].map(tickDecimals)",
                        seconds="[secondsTexts([0, .5, 1], 1), secondsTexts([0, .02], .02), secondsTexts([0, 1e-4], 1e-4)]")
        self.assertEqual(got["even"], [0, 2, 4, 6, 8, 10])
        self.assertEqual(got["steps"], [100, 200, 300, 400])
        self.assertEqual([round(tick, 9) for tick in got["fine"]], [1.62, 1.64, 1.66, 1.68])
        self.assertEqual(got["empty"], [3])
        self.assertEqual(got["decimals"], [0, 1, 2])
        self.assertEqual(got["seconds"], [["0", "0.5 s", "1.0 s"], ["0", "20 ms"], ["0", "100 us"]])

    def test_keeps_lines_and_letters_and_replaces_control_characters(self):
        letters = "a\tb\ngr\u00fc\u00df \u05d0 \u4e2d \U0001F600"
        got = self.open(self.example("pipeline")[0], letters=f"printable({json.dumps(letters)})",
                        controls="printable('a\\0b\\x1b\\x7f')", markup="element('p', {title: '<b>'}, '<b>').outerHTML")
        self.assertEqual(got["letters"], letters)
        self.assertEqual(got["controls"], "a\ufffdb\ufffd\ufffd")
        self.assertIn(got["markup"], ('<p title="<b>">&lt;b&gt;</p>', '<p title="&lt;b&gt;">&lt;b&gt;</p>'))


if __name__ == "__main__":
    if not CHROMIUM:
        print("skipped: no Chromium is installed (apt-get install chromium), so no browser opened the report")
        sys.exit(77)
    unittest.main()
