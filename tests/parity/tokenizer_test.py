"""Compares our tokens and texts with those of the `tokenizers` library."""

import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from oracle import import_transformers

import_transformers()
import tokenizers  # noqa: E402
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
SHAKESPEARE = DATA / "text" / "tinyshakespeare.txt"
PUBLISHED = [DATA / "tokenizers" / "gpt2", DATA / "models" / "stories260K"]

ODD = ["", " ", "  ", "\n", "a", " a", "a ", "Hello, world!\n\n  It's  3,141 o'clock\t \r\n",
       "I'll we've you'RE 'S 'ſ", "naïve café ÀÉÎõü", "e\u0301 vs \u00e9, \u1100\u1161\u11a8 \ufb01",
       "日本語のテキスト、中文", "русский текст", "עברית العربية", "हिन्दी ๑๒๓ ٣٤٥ ²³ Ⅷ",
       "👩‍👩‍👧‍👦 🇩🇪 😀😀", "\u00a0\u2003x\u3000y\u2028z\u0085.", "\u200b\ufeffa\x00b\x7f", "▁ ▁▁a ▁",
       "<s> a</s>b <unk><0x41> <|endoftext|>a<|endoftext|> <|end", "x" * 3000, " " * 500 + "a",
       "\t\t\tif (x == 10000000) {\n\t\t\t\treturn -1;\n\t\t\t}", "ab" * 400 + "日本" * 300]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def random_texts():
    draw = random.Random(1)
    letters = "abc ABC  \n\t'.,0123éß日本😀\u0301\u00a0▁<s>"
    ranges = [(0x20, 0x7f), (0xa0, 0x250), (0x370, 0x500), (0x900, 0xa00), (0x4e00, 0x4f00),
              (0x1f600, 0x1f640)]
    for _ in range(60):
        yield "".join(draw.choice(letters) for _ in range(draw.randrange(1, 80)))
        yield "".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(40))


def trained(model, normalizer, pre_tokenizer, decoder, alphabet, added=()):
    tokenizer = tokenizers.Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    special = ["<unk>", "<s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, initial_alphabet=alphabet,
                                  show_progress=False)
    tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


def of_bytes(normalizer, *cuts, **bpe):
    steps = [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    added = [AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), "<note>", "<notes>"]
    return trained(models.BPE(**bpe), normalizer, pre_tokenizers.Sequence(steps),
                   decoders.ByteLevel(), pre_tokenizers.ByteLevel.alphabet(), added)


def of_characters(normalizer, pre_tokenizer, decoder, fallback):
    model = models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=True)
    return trained(model, normalizer, pre_tokenizer, decoder, [])


def like_those_of_others():
    split = pre_tokenizers.Split
    regex = tokenizers.Regex
    sentences = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return {
        "llama 3": of_bytes(None, split(regex(LLAMA3), "isolated"), ignore_merges=True),
        "qwen 2": of_bytes(normalizers.NFC(), split(regex(QWEN), "isolated")),
        "smollm": of_bytes(None, pre_tokenizers.Digits(individual_digits=True),
                           split(regex(r"\s"), "merged_with_next")),
        "kept": of_bytes(normalizers.NFKC(), split(regex(r"\w+|[^\w\s]+"), "removed", invert=True)),
        "previous": of_bytes(None, split(" ", "merged_with_previous")),
        "contiguous": of_bytes(None, split(regex(r"\d"), "contiguous")),
        "llama 2": of_characters(spaces, None, sentences, True),
        "unknown": of_characters(spaces, None, sentences, False),
        "metaspace": of_characters(None, pre_tokenizers.Metaspace(prepend_scheme="first"),
                                   decoders.Metaspace(prepend_scheme="first"), False),
    }


class Tokenizer(unittest.TestCase):

    def expect_equal(self, folder, theirs, texts):
        with tempfile.TemporaryDirectory() as scratch:
            paths = []
            for i, text in enumerate(texts):
                paths.append(pathlib.Path(scratch) / f"{i}.txt")
                paths[-1].write_bytes(text.encode())
            done = subprocess.run([os.environ["PARITY_TOKENS"], folder, *paths],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            self.assertEqual(len(lines), len(texts))
            for text, path, line in zip(texts, paths, lines):
                tokens = theirs.encode(text, add_special_tokens=False).ids
                self.assertEqual([int(token) for token in line.split()], tokens, repr(text[:200]))
                decoded = pathlib.Path(f"{path}.decoded").read_bytes()
                expected = theirs.decode(tokens, skip_special_tokens=True)
                if "\ufffd" not in expected:
                    self.assertEqual(decoded.decode(), expected, repr(text[:200]))

    def test_matches_published_tokenizers(self):
        found = [folder for folder in PUBLISHED if (folder / "tokenizer.json").exists()]
        if not found:
            self.skipTest("no tokenizer at ../shared/data")
        texts = ODD + list(random_texts())
        if SHAKESPEARE.exists():
            texts.append(SHAKESPEARE.read_text(encoding="utf-8"))
        for folder in found:
            with self.subTest(folder.name):
                theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
                self.expect_equal(folder, theirs, texts)

    def test_matches_trained_tokenizers(self):
        texts = ODD + list(random_texts()) + [TEXT, "a <mask> b<note>\n<notes> <mask>"]
        for name, theirs in like_those_of_others().items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                theirs.save(folder + "/tokenizer.json")
                self.expect_equal(folder, theirs, texts)


if __name__ == "__main__":
    unittest.main()
