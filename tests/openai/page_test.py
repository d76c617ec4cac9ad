"""Opens the chat page in a headless Chromium and talks to the fake service through it.

Exit code 77, with the reason, where no Chromium is installed.
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
import urllib.request

from fake_server import FakeServer

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = os.environ.get("STRATA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
HOSTILE = '<img src=x onerror="window.hacked = true"><script>window.hacked = true</script>'
# Records errors, runs a script when the models are listed, and writes its result into the page, from which --dump-dom
# takes it.
PROBE = """<script>
const errors = [];
addEventListener('error', event => errors.push(event.message));
addEventListener('unhandledrejection', event => errors.push(String(event.reason)));
</script><!--page--><script>
const count = selector => document.querySelectorAll(selector).length;
const texts = selector => [...document.querySelectorAll(selector)].map(node => node.textContent);
const until = async done => { while (!done()) await fetch('/health'); };
const type = text => { part('prompt').value = text; part('prompt').dispatchEvent(new Event('input')); };
const say = async text => { type(text); part('send').click(); await until(() => !running && count('.assistant .note')); };
const point = node => {
  const {left, top, width, height} = node.getBoundingClientRect();
  node.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: left + width / 2, clientY: top + height / 2}));
};
(async () => {
  let values = {};
  try { await until(() => %s); values = await (async () => { %s })(); } catch (error) { errors.push(String(error)); }
  const node = document.createElement('pre');
  node.id = 'probe';
  node.textContent = JSON.stringify({...values, errors});
  document.body.append(node);
})();
</script>"""


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def open(self, script, begins="models.size > 0", **options):
        """What a script returns in the open page. No script of the page may fail."""
        probe = self.folder / "probe.html"
        probe.write_text(PROBE % (begins, script))
        with FakeServer(probe=probe, **options) as server:
            dom = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,800", "--virtual-time-budget=60000",
                 f"--user-data-dir={self.folder / 'profile'}", "--dump-dom", f"http://{server.address}/"],
                capture_output=True, text=True, timeout=120).stdout
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
        self.assertIsNotNone(found, dom[-3000:])
        values = json.loads(html.unescape(found[1]))
        self.assertEqual(values.pop("errors"), [])
        return values

    def test_shows_an_answer_token_by_token(self):
        got = self.open("await say('Hello?'); return {user: texts('.user'), tokens: texts('.assistant .token'), "
                        "note: texts('.assistant .note')[0], left: part('prompt').value, stop: part('stop').hidden, "
                        "waiting: count('.waiting'), empty: part('empty').hidden, model: part('model').value, messages}",
                        answer="Good day\x03")
        self.assertEqual(got["user"], ["Hello?"])
        self.assertEqual("".join(got["tokens"]), "Good day")
        self.assertEqual(len(got["tokens"]), 8)
        self.assertTrue(got["note"].startswith("8 tokens"), got["note"])
        self.assertEqual((got["left"], got["stop"], got["waiting"], got["empty"], got["model"]), ("", True, 0, True, "fake"))
        self.assertEqual(got["messages"], [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Good day"}])

    def test_sends_the_whole_conversation(self):
        # Without a script the fake repeats the conversation, a message a line.
        got = self.open("part('temperature').value = 0; await say('one'); await say('two'); return {answers: messages}")
        self.assertTrue(got["answers"][1]["content"].startswith("oneoneone"))
        self.assertTrue(got["answers"][3]["content"].startswith("one\noneoneone"), got["answers"][3]["content"][:30])

    def test_shows_text_of_the_model_as_text(self):
        got = self.open("await say(%s); return {hacked: 'hacked' in window, images: count('img'), "
                        "answer: texts('.assistant .token').join(''), user: texts('.user')[0]}" % json.dumps(HOSTILE).replace("</", "<\\/"),
                        answer=HOSTILE + "\x03")
        self.assertEqual((got["hacked"], got["images"]), (False, 0))
        self.assertEqual((got["answer"], got["user"]), (HOSTILE, HOSTILE))

    def test_shows_probabilities(self):
        got = self.open(
            "await say('x'); const tokens = [...document.querySelectorAll('.assistant .token')]; point(tokens[1]); "
            "const shown = part('tip').textContent, rows = texts('#tip .name'), picked = texts('#tip .picked .name'); "
            "part('shade').click(); const color = getComputedStyle(tokens[1]).backgroundColor; "
            "point(document.querySelector('.user')); "
            "return {shown, rows, picked, color, doubt: tokens.map(node => node.style.getPropertyValue('--doubt')), "
            "hidden: part('tip').hidden, scores: tokens.map(node => node.score.logprob)}", answer="a b\x03")
        share = 2.718281828 ** got["scores"][1]
        self.assertTrue(got["shown"].startswith(f"{100 * share:.1f} % likely"), got["shown"])
        self.assertEqual(got["rows"], ["\u00b7", "!", '"', "#", "$"])
        self.assertEqual(got["picked"], ["\u00b7"])
        for doubt, score in zip(got["doubt"], got["scores"], strict=True):
            self.assertAlmostEqual(float(doubt), .75 * (1 - 2.718281828 ** score), delta=.001)
        self.assertRegex(got["color"], r"^rgba\(")
        self.assertTrue(got["hidden"])

    def test_stops(self):
        # The whole answer takes 13 minutes, so it has not ended when a slow machine stops it.
        got = self.open("part('max-tokens').value = 4000; type('x'); part('send').click(); "
                        "await until(() => count('.assistant .token') > 3); const stop = part('stop').hidden; "
                        "part('stop').click(); await until(() => !running); "
                        "return {stop, note: texts('.assistant .note')[0], send: part('send').hidden}", token_ms=200)
        self.assertEqual((got["stop"], got["send"]), (False, False))
        self.assertRegex(got["note"], r"^\d+ tokens.*, stopped$")

    def test_sends_settings(self):
        got = self.open("part('max-tokens').value = 3; part('temperature').value = 1.5; "
                        "part('temperature').dispatchEvent(new Event('input')); await say('xyz'); "
                        "return {note: texts('.assistant .note')[0], shown: part('temperature-shown').value, "
                        "body: requestOf('p')[1]}")
        self.assertRegex(got["note"], r"^3 tokens.*, stopped at max tokens$")
        self.assertEqual(got["shown"], "1.50")
        self.assertEqual((got["body"]["temperature"], got["body"]["max_tokens"]), (1.5, 3))

    def test_continues_texts_without_a_chat_template(self):
        got = self.open("part('temperature').value = 0; part('max-tokens').value = 6; await say('abc'); "
                        "return {answer: texts('.assistant .token').join(''), hint: part('prompt').placeholder, "
                        "score: document.querySelector('.token').score}", chat="no")
        self.assertEqual(got["answer"], "abcabc")
        self.assertEqual(got["hint"], "Write the beginning of a text")
        self.assertEqual(got["score"]["token"], "a")
        self.assertEqual(len(got["score"]["alternatives"]), 5)

    def test_new_button_clears_the_conversation(self):
        got = self.open("await say('x'); part('clear').click(); return {turns: count('.turn'), empty: part('empty').hidden, "
                        "messages}", answer="y\x03")
        self.assertEqual(got, {"turns": 0, "empty": False, "messages": []})

    def test_reports_refusals(self):
        got = self.open("part('max-tokens').value = 4096; await say('x'); const failed = [...messages]; "
                        "part('max-tokens').value = 2; await say('y'); return {shown: texts('.error'), failed, messages}",
                        answer="ok\x03")
        self.assertEqual(len(got["shown"]), 1)
        # A failed message is not part of the conversation.
        self.assertEqual(got["failed"], [])
        self.assertEqual(got["messages"], [{"role": "user", "content": "y"}, {"role": "assistant", "content": "ok"}])
        self.assertIn("context is 4096 tokens", got["shown"][0])

    def test_asks_for_a_key(self):
        keys = self.folder / "keys.yaml"
        keys.write_text("keys: [{name: a, key: sk-1}]")
        got = self.open("const before = models.size; part('key').value = 'sk-1'; part('use-key').click(); "
                        "await until(() => models.size); await say('x'); "
                        "return {before, after: part('key-field').hidden, answer: texts('.assistant .token').join('')}",
                        begins="!part('key-field').hidden", keys=keys, answer="ok\x03")
        self.assertEqual(got, {"before": 0, "after": True, "answer": "ok"})

    def test_needs_no_other_file(self):
        with FakeServer() as server, urllib.request.urlopen(f"http://{server.address}/") as answer:
            page = answer.read().decode()
        self.assertIn("default-src 'none'", page)
        self.assertNotRegex(page, r"https?://|\bsrc=|@import|innerHTML|insertAdjacentHTML|document\.write|eval\(")


if __name__ == "__main__":
    if not CHROMIUM:
        print("skipped: no Chromium is installed (apt-get install chromium), so no browser opened the page")
        sys.exit(77)
    unittest.main()
