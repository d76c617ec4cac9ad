#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/pretrained/example_gguf_test.h"
#include "strata/pretrained/gguf_architecture.h"
#include "strata/pretrained/gguf_blocks.h"
#include "strata/pretrained/gguf_file.h"
#include "strata/pretrained/gguf_texts.h"
#include "strata/pretrained/gguf_weights.h"

namespace strata {
namespace {

using nlohmann::json;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

class GgufTest : public ::testing::Test {
 protected:
  std::shared_ptr<const GgufFile> opened(const ExampleGguf& file) {
    file.write(path_);
    return GgufFile::open(path_);
  }
  json text(const ExampleGguf& file, const std::string& name) {
    file.write(path_);
    return json::parse(GgufTexts(path_, {}).text(name));
  }
  ErrorText refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      EXPECT_TRUE(error.text().where.starts_with(path_)) << error.what();
      EXPECT_FALSE(error.text().expected.empty() || error.text().fix.empty()) << error.what();
      return error.text();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }
  std::string config_refusal(const ExampleGguf& file) {
    return refusal([&] { text(file, "config.json"); }).where.substr(path_.size());
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("m.gguf");
};

TEST_F(GgufTest, ReadsValuesOfEveryType) {
  for (const std::uint32_t version : {2, 3}) {
    ExampleGguf file;
    file.version = version;
    file.number("u8", 0, std::uint8_t{200}).number("i8", 1, std::int8_t{-3});
    file.number("u16", 2, std::uint16_t{60000}).number("i16", 3, std::int16_t{-300});
    file.number("u32", 4, 4000000000u).number("i32", 5, -70000);
    file.number("f32", 6, 1e-5f).flag("yes", true).text("s", "text");
    file.number("u64", 10, std::uint64_t{1} << 40).number("i64", 11, std::int64_t{-1} << 40);
    file.number("f64", 12, 0.1).number("big", 10, ~std::uint64_t{0});
    file.texts("list", {"a", "", "c"}).numbers<std::int32_t>("ids", 5, {1, -2});
    file.numbers<float>("scores", 6, {0.5f}).numbers<std::uint8_t>("bytes", 0, {1, 2, 3});
    const auto read = opened(file);
    const std::int64_t least = INT64_MIN, most = INT64_MAX;
    EXPECT_EQ(read->integer("u8"), 200);
    EXPECT_EQ(read->integer("i8", least), -3);
    EXPECT_EQ(read->integer("u16"), 60000);
    EXPECT_EQ(read->integer("i16", least), -300);
    EXPECT_EQ(read->integer("u32", 0, most), 4000000000);
    EXPECT_EQ(read->integer("i32", least), -70000);
    EXPECT_EQ(read->integer("u64", 0, most), std::int64_t{1} << 40);
    EXPECT_EQ(read->integer("i64", least), std::int64_t{-1} << 40);
    EXPECT_EQ(read->real("f32"), 1e-5);
    EXPECT_EQ(read->real("f64"), 0.1);
    EXPECT_TRUE(read->flag("yes", false));
    EXPECT_TRUE(read->flag("no such key", true));
    EXPECT_EQ(read->text("s"), "text");
    EXPECT_EQ(read->texts("list"), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_EQ(read->integers("ids"), (std::vector<std::int32_t>{1, -2}));
    EXPECT_EQ(read->reals("scores"), (std::vector<float>{0.5f}));
    refusal([&] { read->integer("s"); });
    refusal([&] { read->integer("u8", 0, 100); });
    refusal([&] { read->integer("big"); });
    refusal([&] { read->texts("ids"); });
    refusal([&] { read->integers("bytes"); });
    refusal([&] { read->text("missing"); });
  }
}

TEST_F(GgufTest, ReadsTensorsAtTheirAlignment) {
  for (const std::uint32_t alignment : {8, 32, 64}) {
    ExampleGguf file;
    file.alignment = alignment;
    file.integer("general.alignment", alignment);
    file.floats("a", {3}, {1, 2, 3}).floats("b", {2, 3}, counted(6));
    const auto read = opened(file);
    const GgufTensor& b = read->tensors().at("b");
    EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 3}));
    std::vector<float> values(4);
    read_elements(*read, b, 1, values);
    EXPECT_EQ(values, (std::vector<float>{2, 3, 4, 5}));
  }
}

TEST_F(GgufTest, RefusesOtherContainers) {
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return refusal([&] { GgufFile::open(path_); }).what;
  };
  const std::string whole = ExampleGguf().floats("a", {3}, {1, 2, 3}).bytes();
  EXPECT_NE(refused("nothing of the kind").find("not a GGUF file"), std::string::npos);
  for (const char* version : {"\1\0\0\0", "\0\0\0\3", "\4\0\0\0"})
    EXPECT_NE(refused("GGUF" + std::string(version, 4) + whole.substr(8)).find("version"),
              std::string::npos);
  for (std::size_t size = 1; size + 20 < whole.size(); ++size) refused(whole.substr(0, size));
  refused(ExampleGguf().integer("k", 1).integer("k", 2).bytes());
  refused(ExampleGguf().floats("t", {1}, {1}).floats("t", {1}, {1}).bytes());
  refused(ExampleGguf().integer("general.alignment", 0).floats("t", {1}, {1}).bytes());
  refused(ExampleGguf().tensor("t", {20}, 8, std::string(34, 'x')).bytes());  // no whole blocks
  refused(ExampleGguf().tensor("t", {std::int64_t{1} << 62, 8}, 0, "").bytes());
  refused(ExampleGguf().tensor("t", {0}, 0, "").bytes());
  refused(ExampleGguf().tensor("t", {1, 1, 1, 1, 1}, 0, "abcd").bytes());
  refused(ExampleGguf().tensor("t", {100}, 0, "abcd").bytes());
  refused(ExampleGguf().tensor("t", {16}, 0, "abcd").floats("u", {8}, counted(8)).bytes());
}

// Hand-made blocks; random ones are compared with the package `gguf` in tests/parity.
TEST_F(GgufTest, WidensBlocks) {
  const auto widened = [&](std::uint32_t type, const std::string& block) {
    const BlockType* known = find_block_type(type);
    EXPECT_EQ(static_cast<std::int64_t>(block.size()), known->bytes) << known->name;
    std::vector<float> values(static_cast<std::size_t>(known->elements));
    known->widen(reinterpret_cast<const std::byte*>(block.data()), values.data());
    return values;
  };
  const std::string half("\0\x38", 2), two("\0\x40", 2), tiny("\1\0", 2);  // 0.5, 2, 2^-24
  EXPECT_EQ(widened(1, tiny)[0], 0x1p-24f);
  EXPECT_EQ(widened(1, std::string("\0\xC0", 2))[0], -2.0f);
  EXPECT_EQ(widened(30, std::string("\0\x40", 2))[0], 2.0f);
  std::vector<float> values = widened(8, half + std::string(31, '\0') + "\xFE");
  EXPECT_EQ(values[31], -1);
  values = widened(2, half + std::string(15, '\x88') + "\x1F");
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[15], 3.5f);
  EXPECT_EQ(values[31], -3.5f);
  values = widened(3, half + two + std::string(15, '\0') + "\x1F");
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[15], 9.5f);
  EXPECT_EQ(values[31], 2.5f);
  values = widened(6, half + std::string("\0\0\0\x80", 4) + std::string(16, '\0'));
  EXPECT_EQ(values[0], -8);
  EXPECT_EQ(values[31], 0);
  values = widened(7, half + two + std::string("\1\0\0\0", 4) + std::string(16, '\x33'));
  EXPECT_EQ(values[0], 11.5f);
  EXPECT_EQ(values[1], 3.5f);
}

TEST_F(GgufTest, ReadsTheSameElementsInAnyParts) {
  std::mt19937 random(1);
  for (const std::uint32_t type : {0, 1, 30, 8, 2, 3, 6, 7, 12, 13, 14}) {
    const BlockType* known = find_block_type(type);
    ASSERT_NE(known, nullptr) << type;
    const std::int64_t columns = 512, rows = 6;
    std::string bytes(static_cast<std::size_t>(rows * columns / known->elements * known->bytes),
                      '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() & 0x3F);  // no infinities
    ExampleGguf file;
    add_example_llama(file).tensor("token_embd.weight", {rows, columns}, type, bytes);
    const GgufWeights weights(opened(file));
    std::vector<float> whole(static_cast<std::size_t>(rows * columns)), part;
    weights.read("model.embed_tokens.weight", 0, whole);
    EXPECT_NE(whole[1], whole[700]);
    for (int i = 0; i < 50; ++i) {
      const std::size_t begin = random() % whole.size(), end = random() % (whole.size() + 1);
      if (begin > end) continue;
      part.assign(end - begin, -1.0f);
      weights.read("model.embed_tokens.weight", static_cast<std::int64_t>(begin), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << known->name;
    }
  }
}

// Heads of width 4: the file's rows 0, 2, 1, 3 are rows 0, 1, 2, 3 of Hugging Face.
TEST_F(GgufTest, ReturnsRowsOfLlamaInHuggingFaceOrder) {
  for (const bool interleaved : {true, false}) {
    ExampleGguf file;
    add_example_llama(file, interleaved ? "llama" : "qwen2");
    std::vector<float> rows = counted(64);
    file.floats("blk.0.attn_q.weight", {8, 8}, rows)
        .floats("blk.0.attn_v.weight", {4, 8}, counted(32));
    const GgufWeights weights(opened(file));
    std::vector<float> expected;
    for (const int row : {0, 2, 1, 3, 4, 6, 5, 7})
      expected.insert(expected.end(), rows.begin() + row * 8, rows.begin() + row * 8 + 8);
    if (!interleaved) expected = rows;
    for (const std::size_t begin : {0, 5, 16, 63}) {
      std::vector<float> part(std::min<std::size_t>(64 - begin, 43));
      weights.read("model.layers.0.self_attn.q_proj.weight", static_cast<std::int64_t>(begin),
                   part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + begin)) << begin;
    }
    std::vector<float> values(32);
    weights.read("model.layers.0.self_attn.v_proj.weight", 0, values);
    EXPECT_EQ(values, counted(32));
  }
}

TEST_F(GgufTest, RefusesUnknownTensors) {
  const auto refused = [&](const std::string& name, std::uint32_t type, const char* architecture) {
    ExampleGguf file;
    add_example_llama(file, architecture).tensor(name, {8, 8}, type, std::string(256, '\0'));
    return refusal([&] { GgufWeights weights(opened(file)); });
  };
  EXPECT_EQ(refused("blk.0.attn_q.weight", 23, "llama").got, "IQ4_XS");
  EXPECT_EQ(refused("blk.0.attn_q.weight", 99, "llama").got, "type 99");
  EXPECT_EQ(refused("blk.0.attn_q.weight", 23, "llama").expected,
            "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", "blk.0.ffn_up.bias",
                           "blk.0.ffn_gate_inp.weight", "blk..attn_q.weight", "cls.weight"})
    EXPECT_EQ(refused(name, 0, "llama").where, path_ + ": " + name);
  refused("blk.0.ffn_up.bias", 0, "qwen2");
  refused("blk.0.attn_q.bias", 0, "qwen3");
  refused("blk.0.attn_q.weight", 0, "falcon");
}

TEST_F(GgufTest, TranslatesSizes) {
  ExampleGguf file;
  add_example_llama(file).real("llama.rope.freq_base", 1e6f).integer("llama.vocab_size", 7);
  file.floats("token_embd.weight", {7, 8}, counted(56));
  const json config = text(file, "config.json");
  EXPECT_EQ(config, json::parse(R"({"model_type": "llama", "vocab_size": 7,
    "tie_word_embeddings": true, "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 1e6})"));
  file.floats("output.weight", {7, 8}, counted(56));
  EXPECT_EQ(text(file, "config.json")["tie_word_embeddings"], false);
  // The factors that llama.cpp writes for Llama 3.2: 32 times slower, from 8192 positions on.
  std::vector<float> factors(32);
  for (int i = 0; i < 32; ++i) {
    const double wave = 2 * M_PI * std::pow(500000.0, i / 32.0);
    const double smooth = (8192 / wave - 1) / 3;
    factors[i] = static_cast<float>(wave < 2048   ? 1
                                    : wave > 8192 ? 32
                                                  : 1 / ((1 - smooth) / 32 + smooth));
  }
  const auto with_factors = [&] {
    ExampleGguf llama3;
    add_example_llama(llama3).integer("llama.attention.key_length", 64);
    llama3.integer("llama.rope.dimension_count", 64).real("llama.rope.freq_base", 500000);
    llama3.floats("token_embd.weight", {7, 8}, counted(56));
    return llama3.floats("rope_freqs.weight", {32}, factors);
  };
  EXPECT_EQ(text(with_factors(), "config.json")["rope_scaling"], json::parse(R"({
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192})"));
  factors[31] = 31;
  EXPECT_EQ(config_refusal(with_factors()), ": rope_freqs.weight");
}

TEST_F(GgufTest, RefusesWhatChangesNumbers) {
  const auto refused = [&](const std::function<void(ExampleGguf&)>& change) {
    ExampleGguf file;
    add_example_llama(file).floats("token_embd.weight", {7, 8}, counted(56));
    change(file);
    return config_refusal(file);
  };
  EXPECT_EQ(refused([](auto& f) { f.text("llama.rope.scaling.type", "yarn"); }),
            ": llama.rope.scaling.type");
  EXPECT_EQ(refused([](auto& f) { f.integer("llama.expert_count", 8); }), ": llama.expert_count");
  EXPECT_EQ(refused([](auto& f) { f.integer("llama.rope.dimension_count", 2); }),
            ": llama.rope.dimension_count");
  EXPECT_EQ(refused([](auto& f) { f.integer("llama.attention.sliding_window", 4096); }),
            ": llama.attention.sliding_window");
  EXPECT_EQ(refused([](auto& f) { f.real("llama.logit_scale", 2); }), ": llama.logit_scale");
  EXPECT_EQ(config_refusal(ExampleGguf().text("general.architecture", "gemma3")),
            ": general.architecture");
  EXPECT_EQ(config_refusal(ExampleGguf()), ": general.architecture");
}

TEST_F(GgufTest, TranslatesByteLevelTokenizers) {
  const auto tokenizer = [&](const std::string& pre) {
    ExampleGguf file;
    return text(add_example_tokenizer(file, pre), "tokenizer.json");
  };
  const json gpt2 = tokenizer("gpt-2");
  EXPECT_EQ(gpt2["model"]["vocab"]["Ġa"], 5);
  EXPECT_EQ(gpt2["model"]["merges"], json::parse(R"(["a b", "Ġ a"])"));
  ASSERT_EQ(gpt2["added_tokens"].size(), 1u);
  EXPECT_EQ(gpt2["added_tokens"][0]["content"], "<|end|>");
  EXPECT_EQ(gpt2["added_tokens"][0]["special"], true);
  EXPECT_EQ(gpt2["pre_tokenizer"]["use_regex"], true);
  EXPECT_EQ(tokenizer("smollm")["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
  EXPECT_EQ(tokenizer("qwen2")["normalizer"]["type"], "NFC");
  EXPECT_EQ(tokenizer("llama-bpe")["model"]["ignore_merges"], true);
  EXPECT_EQ(refusal([&] { tokenizer("tekken"); }).got, "tekken");
  ExampleGguf file;
  add_example_tokenizer(file).integer("tokenizer.ggml.bos_token_id", 6);
  EXPECT_EQ(text(file, "tokenizer_config.json"),
            json::parse(R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|end|>",
              "eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}"})"));
  EXPECT_TRUE(text(file, "tokenizer.json")["post_processor"].is_null());
  file.flag("tokenizer.ggml.add_bos_token", true);
  EXPECT_EQ(text(file, "tokenizer.json")["post_processor"]["special_tokens"]["<|end|>"]["ids"],
            json::parse("[6]"));
}

TEST_F(GgufTest, RefusesTokensAndMergesThatAreNotUtf8) {
  for (const char* list : {"tokens", "merges"}) {
    ExampleGguf file;
    add_example_tokenizer(file);
    std::string bytes = file.bytes();
    bytes[bytes.find(std::string(list) == "tokens" ? "<|end|>" : "a b")] = '\xA0';
    std::ofstream(path_, std::ios::binary) << bytes;
    const ErrorText error = refusal([&] { GgufTexts(path_, {}).text("tokenizer.json"); });
    EXPECT_NE(error.where.find(std::string("tokenizer.ggml.") + list), std::string::npos);
    EXPECT_EQ(error.what, "a text is not UTF-8");
  }
}

TEST_F(GgufTest, RanksMergesOfPiecesByScore) {
  ExampleGguf file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens",
             {"<unk>", "<s>", "<0x0A>", "▁", "a", "ä", "äa", "▁a", "▁äa", "<u>"});
  file.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 6, 1, 1, 1, 1, 1, 1, 4});
  file.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -9, -9, -9, -2, -1, -3, 0});
  file.integer("tokenizer.ggml.unknown_token_id", 0).integer("tokenizer.ggml.bos_token_id", 1);
  const json tokenizer = text(file, "tokenizer.json");
  EXPECT_EQ(tokenizer["model"]["merges"], json::parse(R"([["▁", "a"], ["ä", "a"], ["▁", "äa"]])"));
  EXPECT_EQ(tokenizer["model"]["unk_token"], "<unk>");
  EXPECT_EQ(tokenizer["normalizer"]["normalizers"].size(), 2u);
  EXPECT_EQ(tokenizer["added_tokens"].size(), 3u);
  EXPECT_EQ(tokenizer["post_processor"]["type"], "TemplateProcessing");
  file.flag("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(text(file, "tokenizer.json")["normalizer"]["normalizers"].size(), 1u);
  EXPECT_EQ(refusal([&] {
              text(ExampleGguf().text("tokenizer.ggml.model", "bert"), "tokenizer.json");
            }).got,
            "bert");
}

TEST_F(GgufTest, HasOnlyTheTextsOfItsMetadata) {
  ExampleGguf().text("tokenizer.ggml.model", "no_vocab").write(path_);
  const GgufTexts none(path_, {});
  EXPECT_TRUE(none.has("config.json"));
  EXPECT_FALSE(none.has("tokenizer.json"));
  EXPECT_FALSE(none.has("chat_template.jinja"));
  refusal([&] { none.text("tokenizer.json"); });
  EXPECT_TRUE(is_gguf(path_));
  ExampleGguf().write(folder_.path("blob"));
  EXPECT_TRUE(is_gguf(folder_.path("blob")));
  std::ofstream(folder_.path("text")) << "GGU";
  for (const char* other : {"text", "nothing.gguf", ""}) EXPECT_FALSE(is_gguf(folder_.path(other)));
}

// Everything that a program reads of a file.
void read_all(const std::string& path) {
  const GgufTexts texts(path, {});
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    try {
      texts.text(name);
    } catch (const UserError&) {
    }
  }
  const GgufWeights weights(GgufFile::open(path));
  std::vector<float> values(16);
  for (const std::string& name : weights.names()) {
    std::int64_t numel = 1;
    for (const std::int64_t size : weights.shape(name)) numel *= size;
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(numel, 16));
    weights.read(name, 0, std::span(values).first(count));
    weights.read(name, numel - static_cast<std::int64_t>(count), std::span(values).first(count));
  }
}

TEST_F(GgufTest, EveryChangeIsReadOrRefused) {
  ExampleGguf llama, pieces;
  add_example_tokenizer(add_example_llama(llama), "smollm");
  llama.numbers<float>("list", 6, {1, 2}).floats("token_embd.weight", {7, 8}, counted(56));
  llama.floats("blk.0.attn_q.weight", {8, 8}, counted(64)).floats("rope_freqs.weight", {2}, {1, 1});
  llama.tensor("blk.0.ffn_up.weight", {16, 32}, 8, std::string(16 * 34, '\x11'));
  pieces.text("general.architecture", "gpt2").text("tokenizer.ggml.model", "llama");
  pieces.texts("tokenizer.ggml.tokens", {"<s>", "▁", "a", "▁a"});
  pieces.numbers<float>("tokenizer.ggml.scores", 6, {0, -1, -2, -3});
  pieces.integer("tokenizer.ggml.bos_token_id", 0).floats("position_embd.weight", {3}, counted(3));
  std::mt19937 random(5);
  int refused = 0;
  constexpr int kChanges = 6000;
  for (int change = 0; change < kChanges; ++change) {
    std::string bytes = (change % 3 == 0 ? pieces : llama).bytes();
    const std::size_t at = random() % bytes.size();
    const std::uint64_t sizes[] = {~std::uint64_t{0}, std::uint64_t{1} << 62, 0x7FFFFFFF, 1u << 24,
                                   0};
    switch (random() % 6) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes.resize(std::max<std::size_t>(at, 1));
        break;
      case 2:
        bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, 1 + random() % 40);
        break;
      case 4:
        bytes.replace(at, 8, ExampleGguf::bytes_of(sizes[random() % 5]));
        break;
      default:
        bytes.replace(at, 4, ExampleGguf::bytes_of(static_cast<std::uint32_t>(random() % 32)));
    }
    std::ofstream(path_, std::ios::binary) << (bytes.empty() ? "x" : bytes);
    try {
      read_all(path_);
    } catch (const std::exception& error) {
      ASSERT_EQ(exit_code(error), 2) << "change " << change << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, kChanges / 3);
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 19) << "KiB: a length in a file was believed";
}

}  // namespace
}  // namespace strata
