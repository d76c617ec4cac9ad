"""Holds the grammars of strata/grammar against other implementations: documents against `jsonschema`, texts against
Python's `re`, and the tokens that may follow against `llguidance`. Skipped where these are not installed.

grammar_test.py [COUNT] draws COUNT random schemas (default 400)."""

import json
import os
import random
import re
import subprocess
import sys
import unittest

try:
    import jsonschema
except ImportError:
    print("skipped: the package jsonschema is not installed")
    sys.exit(77)
try:
    import llguidance
except ImportError:
    llguidance = None

MATCH = os.environ["STRATA_GRAMMAR_MATCH"]
COUNT = 400

NAMES = ["a", "ab", "name", "x y", "\u00e9", "q\"", "\\"]
TEXTS = ["", "a", "ab", "abc", "\u00e9t\u00e9", "\U0001f600", "line\nend", "\"", "\\", "2024-02-29", "a@b.org", "10.0.0.1", "\u0001", "a\u00a0b"]
PATTERNS = ["^a", "b$", "^[a-c]{1,3}$", "\\d", "^(ab|\u00e9.)+$", "^[^a]*$", "\"", "\\n", "^$", "a|^b", "^\\S+$", "^[^\\s]*$"]
FORMATS = ["date", "email", "ipv4"]


class Documents:
    """Random schemas, and documents that are near them: members in the order of the schema."""

    def __init__(self, draw):
        self.draw = draw
        self.names = 0

    def schema(self, depth):
        draw = self.draw
        kind = draw.randrange(13 if depth else 8)
        if kind == 0:
            return draw.choice([{}, True, {"type": "null"}, {"type": "boolean"}, {"type": "number"}])
        if kind == 1:
            return self.bounds({"type": "integer"}, draw.choice([1, 12, 130, 1e6]))
        if kind in (2, 3):
            return self.string()
        if kind == 4:
            return {"enum": [self.document({}, 2) for _ in range(draw.randrange(1, 4))]}
        if kind == 5:
            return {"const": self.document({}, 2)}
        if kind == 6:
            types = draw.sample(["string", "integer", "null", "boolean", "array", "object", "number"], draw.randrange(1, 4))
            return {"type": types, "minLength": draw.randrange(3), "minimum": draw.randrange(-9, 9)} if "number" not in types else {"type": types}
        if kind == 7:
            return {"$ref": "#/$defs/d"}
        if kind == 8:
            return {draw.choice(["anyOf", "anyOf"]): [self.schema(depth - 1) for _ in range(draw.randrange(1, 4))]}
        if kind in (9, 10):
            return self.object(depth)
        if kind == 11:
            return self.joined(depth)
        return self.array(depth)

    def joined(self, depth):
        """Parts of allOf, with limits that a schema without them has, too."""
        draw = self.draw
        kind = draw.randrange(4)
        if kind == 0:
            return {"allOf": [self.bounds({"type": draw.choice(["integer", ["integer", "null"]])}, 130) for _ in range(draw.randrange(1, 4))]}
        if kind == 1:
            types = ["string", "integer", "null", "boolean", "number"]
            return {"allOf": [{"type": draw.sample(types, draw.randrange(1, 5))} for _ in range(draw.randrange(2, 4))]}
        if kind == 2:
            return {"allOf": [{"enum": draw.sample(TEXTS, 6)}, {"enum": draw.sample(TEXTS, 6)}]}
        prefix = [self.schema(0)] if draw.random() < 0.5 else []
        parts = [{"type": "array", "items": {"type": draw.choice(["integer", "null", ["integer", "null"]])}}, {"type": "array", "minItems": draw.randrange(3)}]
        for part in parts:
            if prefix and draw.random() < 0.7:
                part["prefixItems"] = prefix
        return {"allOf": parts}

    def bounds(self, schema, size):
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if self.draw.random() < 0.3:
                low = keyword.endswith("inimum")
                number = self.draw.uniform(-size, size / 4 if low else size)
                schema[keyword] = number if self.draw.random() < 0.2 else int(number)
        return schema

    def string(self):
        draw = self.draw
        kind = draw.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": draw.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": draw.choice(FORMATS)}
        least = draw.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + draw.choice([0, 1, 3, 200])} if kind == 2 else {"type": "string"}

    def object(self, depth):
        draw = self.draw
        names = draw.sample(NAMES, draw.randrange(5))
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names},
                  "required": draw.sample(names, draw.randrange(len(names) + 1)),
                  "additionalProperties": draw.choice([False, False, True, self.schema(depth - 1)])}
        if draw.random() < 0.2:
            schema = {"type": "object", "additionalProperties": self.schema(depth - 1), "minProperties": draw.randrange(2), "maxProperties": draw.randrange(1, 4)}
        return schema

    def array(self, depth):
        draw = self.draw
        schema = {"type": "array", "items": draw.choice([self.schema(depth - 1), self.schema(depth - 1), False, True])}
        if draw.random() < 0.4:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.5:
            schema["minItems"] = draw.randrange(3)
        if draw.random() < 0.5:
            schema["maxItems"] = draw.randrange(1, 5)
        return schema

    def document(self, schema, depth, defs=None):
        """A document that is often valid."""
        draw = self.draw
        if schema is True or schema == {} or schema is False or depth < -20 or draw.random() < 0.07:
            kind = draw.randrange(7 if depth > 0 else 5)
            if kind == 5:
                return [self.document({}, depth - 1) for _ in range(draw.randrange(3))]
            if kind == 6:
                return {name: self.document({}, depth - 1) for name in draw.sample(NAMES, draw.randrange(3))}
            return [None, draw.random() < 0.5, draw.randrange(-20, 200), draw.choice([0.5, -2.25, 1e-7]), draw.choice(TEXTS)][kind]
        if "$ref" in schema:
            return self.document(defs if defs is not None else {}, depth - 1, defs)
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        if "anyOf" in schema:
            return self.document(draw.choice(schema["anyOf"]), depth, defs)
        if "allOf" in schema:
            return self.document(draw.choice(schema["allOf"]), depth, defs)
        kind = schema.get("type")
        kind = draw.choice(kind) if isinstance(kind, list) else kind
        if kind is None:
            return self.document({}, depth, defs)
        if kind == "object":
            properties = schema.get("properties", {})
            document = {name: self.document(properties[name], depth - 1, defs) for name in properties
                        if name in schema.get("required", []) and draw.random() < 0.97 or draw.random() < 0.5}
            if draw.random() < 0.4:
                document["other"] = self.document(schema.get("additionalProperties", {}), depth - 1, defs)
            if draw.random() < 0.1:
                document["n\u00e4me"] = self.document(schema.get("additionalProperties", {}), depth - 1, defs)
            return document
        if kind == "array":
            count = draw.randrange(5)
            prefix = schema.get("prefixItems", [])
            return [self.document(prefix[i] if i < len(prefix) else schema.get("items", {}), depth - 1, defs) for i in range(count)]
        return {"null": None, "boolean": draw.random() < 0.5, "number": draw.choice([1, 0.5, -3e-9]),
                "integer": draw.choice([draw.randrange(-20, 20), draw.randrange(-150, 150), draw.randrange(-10**6, 10**6)]),
                "string": draw.choice(TEXTS + ["abc" * draw.randrange(70)])}[kind]


def valid(schema, document):
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return checker.is_valid(document)


def vocabulary(draw):
    """Tokens like those of a model: bytes, pieces of JSON, of words, of characters."""
    tokens = [bytes([byte]) for byte in range(256)]
    pieces = ["{\"", "\":", "\",\"", "\":{\"", "\"}", "}}", "]}", "],", "[{", "\": ", ", \"", "true", "null", "tru", "00", "123", "1.", "e+", "-1", "ab", "name",
              "  ", "\n", "\n  ", "\u00e9", "\u00e9a", "\\u", "\\\"", "\\n", "x y", "\":null", "\"a\":", "[]", "{}", ",\"q", "10.", "2024-", "@b"]
    tokens += [piece.encode() for piece in pieces]
    tokens += ["\u00e9".encode()[:1] + b"", b"\"\xc3", b"\xa9\"", b"a\xc3", "\U0001f600".encode()[:2], "\U0001f600".encode()[2:] + b"\""]
    for _ in range(300):
        tokens.append("".join(draw.choice("{}[]\":, abn\\u0e12-.xyt") for _ in range(draw.randrange(1, 5))).encode())
    return list(dict.fromkeys(tokens))


class GrammarParity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = subprocess.Popen([MATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        cls.program.stdin.close()
        cls.program.wait(timeout=60)
        cls.program.stdout.close()

    def ask(self, kind, grammar, texts, **more):
        self.program.stdin.write(json.dumps({"kind": kind, "grammar": grammar, "texts": texts, **more}) + "\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        self.assertTrue(line, f"strata ended at {grammar!r}")
        return json.loads(line)

    def random_schema(self, seed):
        draw = Documents(random.Random(seed))
        definition = draw.string() if seed % 2 else draw.object(1)
        schema = draw.schema(3)
        if isinstance(schema, dict):
            schema = {**schema, "$defs": {"d": definition}}
        return draw, schema, definition

    def test_documents_are_accepted_exactly_if_they_are_valid(self):
        compared = accepted = refused = 0
        for seed in range(COUNT):
            draw, schema, definition = self.random_schema(seed)
            documents = [draw.document(schema, 4, definition) for _ in range(40)]
            writers = [dict(separators=(",", ":")), dict(), dict(indent=2)]
            for writer in writers:
                answer = self.ask("json", schema, [json.dumps(document, ensure_ascii=False, **writer) for document in documents])
                if "error" in answer:
                    self.assertRegex(answer["error"], "no text matches|begins with itself|cannot be joined", json.dumps(schema))
                    if "cannot be joined" in answer["error"]:
                        refused += 1
                        break
                    self.assertFalse(any(valid(schema, document) for document in documents), json.dumps(schema))
                    break
                for document, accepts in zip(documents, answer["accepts"]):
                    expected = valid(schema, document)
                    self.assertEqual(accepts, expected, f"{json.dumps(schema)}\n{json.dumps(document, ensure_ascii=False, **writer)}")
                    compared += 1
                    accepted += expected
        print(f"{compared} documents of {COUNT} random schemas, {accepted} of them valid: as jsonschema; {refused} schemas refused")
        self.assertLess(refused, COUNT // 20)
        self.assertGreater(accepted, compared // 10)

    def test_patterns_match_as_in_python(self):
        draw = random.Random(5)
        atoms = ["a", "b", ".", "\\d", "\\w", "\\s", "[a-c]", "[^ab]", "\\.", "\u00e9", "[\\d_-]", "\\x41", "(?:a|bc)", "(b?)", "\\n", "\\-"]

        def pattern(depth):
            parts = []
            for _ in range(draw.randrange(1, 4)):
                # Python backtracks: its time doubles with each character if repetitions nest.
                group = depth and draw.random() < 0.4
                part = f"({pattern(depth - 1)})" if group else draw.choice(atoms)
                few, many = ["", "", "", "?", "{2}"], ["*", "+", "{1,3}", "{0,}", "*?", "{100,200}"]
                parts.append(part + draw.choice(few if group else few + many))
            return "".join(parts) + ("|" + pattern(depth - 1) if depth and draw.random() < 0.3 else "")

        matched = 0
        for _ in range(600):
            text = pattern(2)
            texts = ["".join(draw.choice("abc1_A .-\n\u00e9") for _ in range(draw.randrange(8))) for _ in range(60)] + ["a" * 150, "ab" * 60]
            answer = self.ask("regex", text, texts)
            self.assertNotIn("error", answer, text)
            for each, accepts in zip(texts, answer["accepts"]):
                expected = re.compile(text, re.ASCII).fullmatch(each) is not None
                self.assertEqual(accepts, expected, f"{text!r} {each!r}")
                matched += expected
        print(f"{matched} texts matched 600 random patterns, all as in Python")
        self.assertGreater(matched, 2000)

    @unittest.skipIf(llguidance is None, "the package llguidance is not installed")
    def test_tokens_that_may_follow_are_those_of_llguidance(self):
        draw = random.Random(7)
        tokens = vocabulary(draw)
        wrapper = llguidance.TokenizerWrapper(ByteTokens(tokens))
        tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=len(tokens) + 1)
        cases = []
        for pattern in ["[a-c]{2,5}x?", "(true|false|nu.l)", "\"[^\"\\\\]{0,150}\"", "(\u00e9|\U0001f600){1,3}", "-?(0|[1-9][0-9]*)(\\.[0-9]+)?", "[0-9a-f]{8}-[0-9a-f]{4}"]:
            cases.append(("regex", pattern, llguidance.LLMatcher.grammar_from_regex(pattern)))
        # The same white space: none.
        strict = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 150}, "n": {"enum": ["a", "ab", 1]}, "l": {"type": "array", "items": {"type": "boolean"}}},
                  "required": ["name"], "additionalProperties": False}
        cases.append(("json", schema, llguidance.LLMatcher.grammar_from_json_schema(json.dumps({**schema, "x-guidance": strict}))))
        compared = 0
        for kind, ours, theirs in cases:
            for _ in range(12):
                matcher = llguidance.LLMatcher(tokenizer, theirs)
                self.assertFalse(matcher.is_error(), matcher.get_error())
                written = b""
                for _ in range(40):
                    mask = matcher.compute_bitmask()
                    expected = [i for i in range(len(tokens)) if mask[i // 8] >> (i % 8) & 1]
                    masks = self.ask_bytes(kind, ours, written, tokens)
                    # Strata also offers white space, escapes and DEL, which the other leaves out. Where one text must
                    # follow, the other allows only the token with which it would write it.
                    missing = set(expected) - set(masks)
                    more = {i for i in set(masks) - set(expected) if not (kind == "json" and (tokens[i][:1] in b" \n" or re.search(rb"[\s\\\x7f]", tokens[i])))}
                    if len(expected) == 1:
                        more = {i for i in more if not tokens[i].startswith(tokens[expected[0]])}
                    self.assertEqual(([tokens[i] for i in missing], [tokens[i] for i in more]), ([], []), f"{ours!r} after {written!r}")
                    compared += len(tokens)
                    if not expected:
                        break
                    token = draw.choice([i for i in expected if b"\\" not in tokens[i]])  # its escapes are fewer
                    self.assertTrue(matcher.consume_token(token))
                    written += tokens[token]
        print(f"{compared} tokens compared with llguidance")

    def ask_bytes(self, kind, grammar, written, tokens):
        answer = self.ask(kind, grammar, [], prefix=written.hex(), tokens=[token.hex() for token in tokens])
        self.assertNotIn("error", answer)
        return answer["mask"]


class ByteTokens:
    """The vocabulary as llguidance reads it: the last token ends a text."""

    def __init__(self, tokens):
        self.eos_token_id = len(tokens)
        self.bos_token_id = None
        self.tokens = tokens + [b"<eos>"]
        self.special_token_ids = [self.eos_token_id]
        self.ids = {token: i for i, token in enumerate(tokens)}

    def __call__(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        return [self.ids[bytes([byte])] for byte in data]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT = int(sys.argv.pop(1))
    unittest.main()
