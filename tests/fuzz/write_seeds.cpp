// Writes inputs that reach much of what is fuzzed: write_fuzz_seeds FUZZER FOLDER.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "strata/pretrained/example_gguf_test.h"

namespace {

using namespace std::string_literals;
using Seeds = std::vector<std::string>;

Seeds templates() {
  return {
      "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% if not loop.last %}\n{% "
      "endif "
      "%}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "{%- set ns = namespace(found=false) -%}{%- for m in messages if m.role != 'system' -%}{%- "
      "set "
      "ns.found = true -%}{{ loop.index0 ~ m.content|default('none', true)|upper }}{%- else "
      "-%}-{%- endfor -%}",
      "{% macro item(x, y=2) %}{{ x ** y // 3 % 7 }}{% endmacro %}{{ item(4) }}{{ item(2, y=3) }}",
      "{{ tools | tojson(indent=2) }}{{ messages[::-1] | map(attribute='role') | join(', ') }}",
      "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ strftime_now('%d "
      "%b %Y') }}",
      "{% if messages[0]['content'] is string and 'a' in 'abc' %}{{ raise_exception('no') }}{% "
      "elif 1 < 2 <= 3 "
      "%}{{ {'a': [1, 2.5, none]}.items() | list }}{% endif %}",
      "{% filter upper %}{# a comment #}{{ 'a,b'.split(',') | first }}{% endfilter %}{% raw %}{{ "
      "}}{% endraw %}",
      "{% generation %}{{ '%s' | format(bos_token) | replace('s', 't') }}{% endgeneration %}{% "
      "break %}",
  };
}

Seeds grammars() {
  const auto seed = [](int notation, const std::string& grammar, const std::string& text) {
    return std::string(1, static_cast<char>(notation)) + grammar + "\0"s + text;
  };
  return {
      seed(0, "(a|b[^c-e]){2,5}\\d+\\.?\\s*\\x41\\u00e9$", "abz12 A"),
      seed(1, "^[a-zA-Z_]\\w*(?:,\\W+)?|\\S{3}.", "name, x"),
      seed(2, "root ::= item (\",\" item)* # list\nitem ::= [a-z]{1,3} | \"(\" root \")\"",
           "ab,(c,d)"),
      seed(
          3,
          R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": -5, "maximum": 120},
          "b": {"enum": [null, "x", 1.5]}}, "required": ["a"], "additionalProperties": false})",
          R"({"a": 17, "b": "x"})"),
      seed(3, R"({"$defs": {"n": {"anyOf": [{"type": "string", "pattern": "^a+$", "maxLength": 3},
          {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}]}}, "$ref": "#/$defs/n"})",
           R"(["aa", ["a"]])"),
      seed(3, R"({"allOf": [{"type": "string", "format": "date-time"}, {"minLength": 2}]})",
           "\"2026-11-24T10:00:00Z\""),
  };
}

Seeds model_files() {
  strata::ExampleGguf llama, gpt2;
  strata::add_example_tokenizer(strata::add_example_llama(llama), "llama-bpe")
      .floats("token_embd.weight", {7, 8}, std::vector<float>(56, 0.5F))
      .tensor("blk.0.attn_q.weight", {8, 32}, 8, std::string(8 * 34, '\1'))     // Q8_0
      .tensor("blk.0.ffn_up.weight", {16, 32}, 2, std::string(16 * 18, '\2'));  // Q4_0
  gpt2.text("general.architecture", "gpt2").integer("gpt2.context_length", 16);
  return {llama.bytes(), gpt2.bytes()};
}

Seeds tokenizers() {
  return {
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}, "added_tokens": [
          {"id": 4, "content": "<s>", "special": true}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true,
          "use_regex": true}, "decoder": {"type": "ByteLevel"}})"
      "\0ab a<s>b"s,
      R"({"model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 0, "▁a": 1, "▁": 2,
          "a": 3, "<0x62>": 4}, "merges": [["▁", "a"]]}, "normalizer": {"type": "Sequence", "normalizers": [{"type":
          "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "decoder":
          {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}})"
      "\0a b"s,
      R"json({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "NFC"}, "pre_tokenizer": {
          "type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)"},
         "behavior" : "Isolated", "invert" : false
}
})json"
      "\0a\xCC\x81 a"s,
  };
}

Seeds openai_requests() {
  return {
      "\0"s
      R"({"prompt": "abc", "max_tokens": 5, "temperature": 0.5, "seed": 3, "n": 2, "logprobs": 2, "echo": true})",
      "\0"s
      R"({"prompt": [[97, 98], [99]], "stop": ["x", "yz"], "stream": true, "stream_options": {"include_usage": true}})",
      "\1"s
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 4, "top_logprobs": 1,
          "logprobs": true, "response_format": {"type": "json_object"}})",
      "\1"s
      R"({"model": "m", "messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 3, "structured_outputs":
          {"regex": "[ab]{2}"}, "logit_bias": {"98": 4}, "min_tokens": 1, "ignore_eos": true, "top_p": 0.9, "top_k": 3,
          "presence_penalty": 1, "chat_template_kwargs": {"shout": true}})",
      "\2"s
      R"({"prompt": "abc", "add_special_tokens": false})",
      "\3"s
      R"({"tokens": [97, 98, 300]})",
  };
}

Seeds kserve_requests() {
  return {
      "\0"s
      R"({"id": "1", "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["ab"]}, {"name":
          "max_tokens", "datatype": "INT32", "shape": [1], "data": [3]}], "outputs": [{"name": "text_output"}]})",
      "\0"s
      R"({"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}],
          "parameters": {"binary_data_output": true, "temperature": 0}})"
      "\0\2\0\0\0ab"s,
      "\1"s
      R"({"text_input": "ab", "max_tokens": 3, "parameters": {"seed": 4}})",
      "\2"s
      R"({"text_input": "ab", "max_tokens": 3, "temperature": 0.5})",
      "\3"s
      R"({"ready": true})",
  };
}

}  // namespace

int main(int count, char** arguments) {
  static const std::map<std::string, Seeds (*)()> kSeeds = {
      {"grammar", grammars},       {"kserve", kserve_requests}, {"model_file", model_files},
      {"openai", openai_requests}, {"template", templates},     {"tokenizer", tokenizers}};
  if (count != 3 || !kSeeds.contains(arguments[1])) return 2;
  std::filesystem::create_directories(arguments[2]);
  int number = 0;
  for (const std::string& seed : kSeeds.at(arguments[1])())
    std::ofstream(std::string(arguments[2]) + "/" + std::to_string(number++), std::ios::binary)
        << seed;
}
