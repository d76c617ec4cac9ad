"""Tests `strata claim`: the list, one claim, all of them, their files, and refusals."""

import json
import math
import pathlib
import re
import unittest

from strata_program import ProgramTest

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/claims.md"

NAMES = {"gpipe-memory", "gpipe-throughput", "torchgpipe", "zero", "zero-plus-plus", "deepspeed-3d", "sc21", "activation-memory", "mt-nlg",
         "zero-bubble", "offload", "stronghold", "persia", "mlperf"}

VERDICTS = ("reproduced", "consistent", "explained", "not explained")


class Claim(ProgramTest):
    def test_lists_claims_without_name(self):
        out = self.succeed("claim")
        self.assertEqual({line.split()[0] for line in out.split("\n\n")[0].splitlines()}, NAMES)
        self.assertIn("strata claim all", out)

    def test_prints_published_and_reproduced_numbers(self):
        out = self.succeed("claim", "zero")
        for words in ("arXiv 1910.02054", "published", "reproduced", "7.5 G on 64 ranks, ZeRO 3",
                      "Strata on the same machines", "0 missed"):
            self.assertIn(words, out)
        row = next(line for line in out.splitlines() if line.startswith("7.5 G on 64 ranks, ZeRO 1"))
        self.assertEqual(row.split()[7:10], ["31.4", "31.4", "GB"])

    def test_writes_all_claims_to_files(self):
        out = self.succeed("claim", "all", "--html", "claims.html", "--json", "claims.json")
        claims = json.loads((self.folder / "claims.json").read_text())
        self.assertEqual({claim["name"] for claim in claims}, NAMES)
        rows = [row for claim in claims for row in claim["rows"]]
        verdicts = [row["verdict"] for row in rows]
        self.assertEqual(set(verdicts), set(VERDICTS))
        self.assertTrue(all(row.get("explanation") for row in rows if "explained" in row["verdict"]))
        self.assertIn(f"14 claims: {verdicts.count('reproduced')} rows reproduced, "
                      f"{verdicts.count('consistent')} consistent, {verdicts.count('explained')} explained, "
                      f"{verdicts.count('not explained')} not explained, 0 missed", out)
        cards = {card.get("id"): card for card in self.page("claims.html")["cards"]}
        both = {f"{claim['name']}-figures" for claim in claims if "plans" in claim and "figures" in claim}
        self.assertEqual(both, {"deepspeed-3d-figures", "activation-memory-figures"})
        self.assertEqual(set(cards), NAMES | both | {f"{name}-strata" for name in NAMES})
        self.assertEqual(len(cards["sc21"]["table"]["rows"]), 43)
        page = (self.folder / "claims.html").read_text()
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))
        self.assertNotIn("https://", page)

    def test_document_has_the_counts_of_the_program(self):
        self.succeed("claim", "all", "--json", "claims.json")
        counts = {}
        for claim in json.loads((self.folder / "claims.json").read_text()):
            verdicts = [row["verdict"] for row in claim["rows"]]
            counts[claim["name"]] = tuple(verdicts.count(name) for name in VERDICTS)
        rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", DOCUMENT.read_text(), re.MULTILINE)
        self.assertEqual({name: tuple(map(int, numbers)) for name, *numbers in rows}, counts)

    def test_plans_thousands_of_ranks(self):
        self.succeed("claim", "deepspeed-3d", "--json", "claims.json")
        plans = json.loads((self.folder / "claims.json").read_text())[0]["plans"]
        self.assertIn("4,096 A100 of 40 GB", plans[-1]["model"])
        sizes = [int(part.split()[1]) for part in plans[-1]["mesh"].split(", ")[:4]]
        self.assertEqual(math.prod(sizes), 4096)
        self.assertLessEqual(plans[-1]["bytes"], plans[-1]["device_bytes"])

    def test_refuses_unknown_claims_and_files(self):
        self.refuse("claim", "zero-buble", says=["claim.arguments", "no claim has this name", "did you mean 'zero-bubble'"])
        self.refuse("claim", "everything", says=["sc21", "run strata claim without a name"])
        self.refuse("claim", "zero", "--html", ".", says="--html")
        self.refuse("claim", "--json", "claims.json", says="name")
        self.assertFalse((self.folder / "claims.json").exists())


if __name__ == "__main__":
    unittest.main()
