"""Holds the chat templates of strata/jinja against transformers' own: every text that Strata renders is the text
that transformers renders, and what transformers refuses Strata refuses.

jinja_test.py [COUNT] draws COUNT random templates (default 1,500) after the fixed ones."""

import json
import os
import random
import subprocess
import sys
import unittest

from oracle import import_transformers

import_transformers()
from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

RENDER = os.environ["STRATA_JINJA_RENDER"]
COUNT = 1500

CHATML = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{% for message in messages if message.role != 'system' %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

STRICT = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""

TOOLS = """{%- macro describe(name, spec, depth=0) -%}
{{ '  ' * depth }}{{ name }}: {{ spec.type if spec.type is string else spec.type | join(' or ') }}
{%- if spec.properties is defined %}
{% for key, value in spec.properties | dictsort %}
{{ describe(key, value, depth + 1) }}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- set ns = namespace(last=-1, seen=[]) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == "user" and message.content is string %}
        {%- set ns.last = index %}
    {%- endif %}
    {%- set ns.seen = ns.seen + [message.role] %}
{%- endfor %}
{%- if tools %}
# Tools
{% for tool in tools %}
{{ tool | tojson }}
{{ describe(tool.function.name, tool.function.parameters) }}
{% endfor %}
{{ tools | tojson(indent=2) }}
{% endif %}
{{ ns.last }} {{ ns.seen | join(',') }}
{%- for m in messages -%}
{% generation %}{{ m.content }}{% endgeneration %}
{%- if loop.last %}!{% else %}|{% endif %}
{%- if loop.index > 3 %}{% break %}{% endif %}
{%- endfor %}
{%- filter upper | replace('A', 'b') %} filtered {{ messages | map(attribute='role') | unique | join('/') }}{% endfilter %}
{%- set text %}
 block {{ messages | length }}
{% endset %}
{{ text | trim }}
{% call(x) wrap() %}{{ x }}{% endcall %}
""".replace("{% call(x) wrap() %}", "{% macro wrap() %}<{{ caller('in') }}>{% endmacro %}{% call(x) wrap() %}")

SPACES = """a
  {% if true %}
  b
  {%+ if true %} c {% endif +%}
  {#- comment -#}  d
\t{# comment #}
  {{ 1 }}
  {%- raw %} {{ raw }} {% endraw -%}
   e {{- 2 -}} f
{% raw -%}
 x {% y %}
  {%- endraw %}
\r\n{% set a = 1 %}\r
end {% endif %}  
"""

FIXED = [CHATML, STRICT, TOOLS, SPACES]

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Grüße \U0001f600 <b>&\"'"},
     {"role": "assistant", "content": "ok\n\n"}, {"role": "user", "content": ""}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
     {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}],
]
TOOL = [{"type": "function", "function": {"name": "weather", "description": "It's \"sunny\"\t\u00e9\u2028", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "Days": {"type": ["integer", "null"]},
                                     "at": {"type": "object", "properties": {"x": {"type": "number"}}}}}}}]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "n": 7, "x": 2.5, "t": "Some text, xß and ñ: a b  c\n", "e": "",
             "l": [3, 1, 2, "b", None], "nums": [5, -2, 9, 0], "words": ["pear", "Apple", "fig", "apple"], "d": {"b": 1, "a": [1, {"k": "v"}], "C": None},
             "flag": True, "none": None, "rows": [{"a": 1, "b": "x"}, {"a": 3, "b": "Y"}, {"a": 2, "b": "x"}]}


def oracle(template, messages, variables):
    extra = {key: value for key, value in variables.items() if key not in ("messages", "tools", "add_generation_prompt")}
    try:
        texts, _ = render_jinja_template(conversations=[messages], chat_template=template, tools=variables.get("tools"),
                                         add_generation_prompt=variables.get("add_generation_prompt", False), **extra)
        return texts[0], None
    except RecursionError:
        raise
    except Exception as error:  # the template's refusals are of many types
        return None, f"{type(error).__name__}: {error}"


class Expressions:
    """Random expressions: most have a meaning, some are refused."""

    NAMES = ["n", "x", "t", "e", "l", "nums", "words", "d", "flag", "none", "rows", "messages", "missing", "tools", "s", "u"]
    TEXTS = ["'a'", "'p'", "\"it's\"", "'\\n'", "' pad '", "'é'", "''", "'a b  c'", "','"]
    FILTERS = ["abs", "capitalize", "count", "default('z')", "d('z', true)", "dictsort", "first", "float", "indent(2)", "indent(1, true)", "int", "int(3)",
               "items | list", "join", "join(', ')", "join('-', attribute='a')", "last", "length", "list", "lower", "map('upper') | list",
               "map(attribute='a') | list", "map('string') | join", "max", "min", "reject('none') | list", "rejectattr('b', 'eq', 'x') | list",
               "replace('a', 'bb')", "replace('p', '', 1)", "reverse | list", "round", "round(1)", "round(1, 'floor')", "select | list", "select('string') | list",
               "selectattr('a', 'gt', 1) | list", "selectattr('a') | list", "sort", "sort(reverse=true)", "sort(attribute='b')", "string", "sum",
               "sum(attribute='a')", "title", "tojson", "tojson(indent=1)", "tojson(separators=(',', ':'))", "trim", "trim('a')", "unique | list", "upper", "wordcount",
               "batch(2) | list", "center(9)", "map(attribute='zz', default='q') | list"]
    TESTS = ["boolean", "defined", "undefined", "divisibleby 2", "even", "odd", "false", "true", "float", "integer", "iterable", "lower", "upper", "mapping",
             "none", "number", "sequence", "string", "eq 2", "ne 'a'", "in [1, 2, 'a']", "gt 1", "callable"]
    METHODS = [".strip()", ".lstrip('S')", ".rstrip()", ".split()", ".split(' ')", ".split(',', 1)", ".rsplit(' ', 1)", ".splitlines()",
               ".startswith('S')", ".endswith(('a', '\\n'))", ".upper()", ".lower()", ".title()", ".capitalize()", ".replace('e', 'EE')", ".join(['x', 'y'])",
               ".find('t')", ".rfind('t')", ".count('a')", ".removeprefix('So')", ".removesuffix('\\n')", ".partition(',')", ".rpartition('zz')",
               ".items() | list", ".keys() | list", ".values() | list", ".get('a')", ".get('zz', 4)", ".index(1)", ".a", ".b", ".zz", "['a']", "[0]", "[-1]", "[1:]",
               "[::-1]", "[:2]", "[-2:]", "[5:1:-2]", "['zz']", ".0", ".append(1)", ".isdigit()", ".format(1)", "[x]", "(1)"]

    def __init__(self, draw):
        self.draw = draw

    def atom(self):
        kind = self.draw.randrange(6)
        if kind < 3:
            return self.draw.choice(self.NAMES)
        if kind == 3:
            return self.draw.choice(self.TEXTS)
        if kind == 4:
            return self.draw.choice(["0", "1", "2", "-3", "1.5", "1e3", "2_0", "true", "False", "none"])
        return self.draw.choice(["[]", "[1, 'a', 2.0]", "(1, 2)", "('a',)", "{}", "{'k': 1, 'j': [1]}", "range(4) | list", "range(5, 0, -2) | list", "dict(a=1)"])

    def expression(self, depth):
        if depth == 0 or self.draw.random() < 0.15:
            return self.atom()
        kind = self.draw.randrange(10)
        inner = self.expression(depth - 1)
        if kind < 3:
            return f"({inner}) | {self.draw.choice(self.FILTERS)}"
        if kind < 5:
            return f"({inner}){self.draw.choice(self.METHODS)}"
        if kind == 5:
            return f"{inner} is {self.draw.choice(['', 'not '])}{self.draw.choice(self.TESTS)}"
        other = self.expression(depth - 1)
        if kind == 6:
            return f"{inner} {self.draw.choice(['+', '-', '*', '/', '//', '%', '~', '**'])} {other}"
        if kind == 7:
            return f"{inner} {self.draw.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in', 'and', 'or'])} {other}"
        if kind == 8:
            return f"{inner} if {other}" + (f" else {self.atom()}" if self.draw.random() < 0.8 else "")
        return f"({self.draw.choice(['-', 'not ', '+', ''])}{inner})"

    def body(self, depth):
        return "".join(self.piece(depth) for _ in range(self.draw.randrange(1, 4)))

    def tag(self, text):
        return self.draw.choice(["{%", "{%-", "{%+", "{%"]) + f" {text} " + self.draw.choice(["%}", "-%}", "+%}", "%}"])

    def piece(self, depth):
        kind = self.draw.randrange(12 if depth > 0 else 5)
        space = self.draw.choice(["", " ", "\n", "\n  ", " \n\n\t", "x", "\r\n"])
        if kind < 4:
            opening, closing = self.draw.choice([("{{", "}}"), ("{{-", "}}"), ("{{", "-}}")])
            return f"{space}{opening} {self.expression(2)} {closing}"
        if kind == 4:
            return space + self.draw.choice(["text", "{# c #}", "{#- c -#}\n", "<é>"])
        tag, body = self.tag, lambda: self.body(depth - 1)
        if kind < 7:
            middle = self.draw.choice([lambda: "", lambda: tag("else") + body(), lambda: tag(f"elif {self.expression(1)}") + body()])
            return space + tag(f"if {self.expression(2)}") + body() + middle() + tag("endif")
        if kind < 9:
            target, items = self.draw.choice([("i", "nums"), ("i", "words"), ("k, v", "d.items()"), ("m", "messages"), ("i", "range(3)"), ("r", "rows"), ("i", self.expression(1))])
            test = f" if {self.expression(1)}" if self.draw.random() < 0.2 else ""
            inside = body() + self.draw.choice(["{{ loop.index }}", "{{ loop.last }}{{ i }}", "{{ loop.previtem }}", "{% if loop.index0 == 1 %}{% continue %}{% endif %}",
                                                "{% if loop.first %}{% break %}{% endif %}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(i) }}", "{{ m.role }}{{ r.a }}"])
            otherwise = tag("else") + body() if self.draw.random() < 0.3 else ""
            return space + tag(f"for {target} in {items}{test}") + inside + otherwise + tag("endfor")
        if kind == 9:
            name = self.draw.choice(["s", "u"])
            if self.draw.random() < 0.3:
                return tag(f"set {name}") + body() + tag("endset") + "{{ " + name + " }}"
            return tag(f"set {name} = {self.expression(2)}") + "{{ " + name + " }}"
        if kind == 10:
            return (tag("macro f(a, b=2)") + "{{ a }}" + body() + "{{ b }}" + tag("endmacro") + "{{ f(" + self.draw.choice(["1", "1, 3", "b=4", "a=n", "1, 2, 3"]) + ") }}")
        return self.draw.choice([
            "{% set ns = namespace(i=0) %}{% for j in nums %}{% set ns.i = ns.i + j %}{% endfor %}{{ ns.i }}",
            tag("with a = 1, b = n") + body() + "{{ a }}" + tag("endwith") + "{{ a }}",
            tag("filter " + self.draw.choice(["upper", "trim", "replace('a', 'o') | title"])) + body() + tag("endfilter"),
            "{% set a, b = (1, 2) %}{{ b }}{{ a }}",
            tag("generation") + body() + tag("endgeneration"),
            tag("raw") + " {{ x }} {% if %}" + tag("endraw")])


class Jinja(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = subprocess.Popen([RENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        cls.program.stdin.close()
        cls.program.wait(timeout=60)
        cls.program.stdout.close()

    def strata(self, template, messages, variables):
        task = {"template": template, "variables": {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, **variables}}
        self.program.stdin.write(json.dumps(task) + "\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        self.assertTrue(line, f"strata ended at {template!r}")
        answer = json.loads(line)
        return answer.get("text"), answer.get("error")

    def compare(self, template, messages, variables):
        """Whether Strata rendered it; fails if both differ."""
        expected, refusal = oracle(template, messages, variables)
        text, error = self.strata(template, messages, variables)
        if text is not None:
            self.assertEqual(text, expected, f"template {template!r}\ntransformers refuses: {refusal}")
        elif refusal is None:
            self.assertRegex(error, "support|too (long|large|deeply)|has no text of its own|has no slices", f"template {template!r}\ntransformers renders {expected!r}")
        return text is not None

    def test_chat_templates_match_transformers(self):
        for template in FIXED:
            for messages in CHATS:
                for tools in (None, TOOL):
                    for prompt in (False, True):
                        variables = {**VARIABLES, "tools": tools, "add_generation_prompt": prompt}
                        rendered = self.compare(template, messages, variables)
                        self.assertTrue(rendered or template is STRICT, self.strata(template, messages, variables)[1])

    def test_random_templates_match_transformers(self):
        draw = random.Random(1)
        rendered = 0
        for _ in range(COUNT):
            template = Expressions(draw).body(2)
            rendered += self.compare(template, draw.choice(CHATS), {**VARIABLES, "tools": draw.choice([None, TOOL])})
        self.assertGreater(rendered, COUNT // 8, "most random templates must mean something")
        print(f"{rendered} of {COUNT} random templates rendered, all as transformers renders them")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT = int(sys.argv.pop(1))
    unittest.main()
