"""Tests that a published Llama generates the story that its authors printed."""

import os
import unittest

from oracle import import_transformers, parity_model, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(os.path.dirname(ROOT), "shared", "data", "models", "stories260K")
if not os.path.isdir(FOLDER):
    skip("the weights of stories260K are not at ../shared/data/models/stories260K")
transformers = import_transformers()

BEGIN = 1


def generated_story():
    """The first sample of the model's page: greedy, without a prompt."""
    with open(os.path.join(FOLDER, "stories260K.md"), encoding="utf-8") as page:
        text = page.read()
    block = text[text.index("-t 0.0"):]
    return block[block.index("\n") + 1:block.index("```")].strip()


class Stories(unittest.TestCase):

    def test_greedy_tokens_match_printed_story(self):
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(FOLDER)
        story = generated_story()
        count = len(tokenizer(story, add_special_tokens=False)["input_ids"])
        self.assertGreater(count, 200)
        tokens = [int(token) for token in
                  parity_model("generate", FOLDER, count, tokens=[[BEGIN]])[0]]
        self.assertEqual(tokenizer.decode(tokens).strip(), story)


if __name__ == "__main__":
    unittest.main()
