#include "strata/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

const Manifest kManifest{
    .step = 400,
    .samples_seen = 12800,
    .threads_per_rank = 2,
    .strata_version = "0.1.0",
    .recipe = "model: {kind: gpt}\n",
    .model = completed({.layers = 3, .width = 48, .heads = 4, .dropout = 0.25}),
    .tokenizer = "bytes",
    .files = {
        {"model.safetensors", {.bytes = kChunkBytes + 7, .checksums = {0xfedcba9876543210, 5}}}}};

TEST(Manifest, ReadsWrittenFields) {
  const Manifest read = parse_manifest(write_manifest(kManifest), "manifest.json");
  EXPECT_EQ(read.step, 400);
  EXPECT_EQ(read.samples_seen, 12800);
  EXPECT_EQ(read.threads_per_rank, 2);
  EXPECT_EQ(read.strata_version, "0.1.0");
  EXPECT_EQ(read.recipe, kManifest.recipe);
  EXPECT_EQ(read.model, kManifest.model);
  EXPECT_EQ(read.tokenizer, "bytes");
  ASSERT_EQ(read.files.size(), 1u);
  EXPECT_EQ(read.files[0].name, "model.safetensors");
  EXPECT_EQ(read.files[0].digest, kManifest.files[0].digest);
}

// Programs that know no patterns refuse the field, and read models without it.
TEST(Manifest, DescribesPatternOnlyOfSparseModels) {
  EXPECT_EQ(write_manifest(kManifest).find("\"attention\""), std::string::npos);
  Manifest manifest = kManifest;
  manifest.model->attention = {
      .kind = PatternKind::kBigBird, .window = 128, .random_blocks = 2, .forms = 4};
  EXPECT_EQ(parse_manifest(write_manifest(manifest), "m").model, manifest.model);
}

TEST(Manifest, ReadsRecipesThatAreNotUtf8) {
  Manifest manifest = kManifest;
  manifest.recipe = "train: caf\xe9.txt";
  EXPECT_EQ(parse_manifest(write_manifest(manifest), "m").recipe, "train: caf\uFFFD.txt");
}

TEST(Manifest, RejectsEveryFlippedBit) {
  const std::string text = write_manifest(kManifest);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char bit : {1, 2, 4}) {
      std::string damaged = text;
      damaged[i] ^= bit;
      try {
        const Manifest read = parse_manifest(damaged, "m");
        // Only white space between fields may change without an error.
        EXPECT_EQ(write_manifest(read), text) << i;
      } catch (const UserError& error) {
        EXPECT_EQ(error.text().where, "m");
        EXPECT_FALSE(error.text().fix.empty());
      }
    }
  }
}

// A manifest of the format before models were described in it.
TEST(Manifest, ReadsFormatWithoutModel) {
  const std::string text = R"({
  "format_version": 2,
  "step": 2,
  "samples_seen": 8,
  "threads_per_rank": 2,
  "strata_version": "0.1.0",
  "recipe": "model:\n  kind: gpt\n  layers: 1\n  width: 16\n  heads: 2\n  vocab: 256\n  context: 16\n  dropout: 0\n  tie: true\n  skip: false\n  kv_heads: 0\n  head_width: 0\n  mlp_width: 0\n  norm_epsilon: 1e-05\n  qkv_bias: false\n  qk_norm: false\n  rope:\n    theta: 10000\n    factor: 1\n    low_frequency_factor: 1\n    high_frequency_factor: 4\n    original_context: 8192\ndata:\n  train: text.txt\n  tokenizer: bytes\n  validation: \"\"\n  validation_fraction: 0\n  shuffle: true\ntrain:\n  steps: 2\n  mini_batch: 4\n  micro_batch: 2\n  warmup: 0\n  decay: cosine\n  final_fraction: 0.1\n  clip: 1\n  label_smoothing: 0\n  precision: fp32\n  seed: 1\n  validate_every: 0\n  validation_samples: 256\n  checkpoint_folder: saved\n  checkpoint_every: 0\n  keep_checkpoints: 2\n  tensorboard: \"\"\n  optimizer:\n    kind: adamw\n    learning_rate: 0.001\n    beta1: 0.9\n    beta2: 0.95\n    epsilon: 1e-08\n    weight_decay: 0.1\n    momentum: 0.9\nmesh:\n  auto: false\n  ranks: 0\n  pp: 1\n  dp: 1\n  tp: 1\n  zero: 0\n  shard_ranks: 0\n  reduce: auto\n  sequence_parallel: false\n  virtual_stages: 1\n  schedule: 1f1b\n  threads: 0\nmemory:\n  device: 0\n  recompute: cheap\n",
  "files": [
    {
      "name": "model.safetensors",
      "bytes": 32136,
      "checksums": [
        "0a3b28534be420b2"
      ]
    },
    {
      "name": "optimizer.safetensors",
      "bytes": 64296,
      "checksums": [
        "59fb9b42d3467de5"
      ]
    },
    {
      "name": "config.json",
      "bytes": 509,
      "checksums": [
        "456280c1425fa8b7"
      ]
    }
  ],
  "manifest_checksum": "783286a88d6a938b"
}
)";
  const Manifest read = parse_manifest(text, "m");
  EXPECT_EQ(read.step, 2);
  EXPECT_EQ(read.samples_seen, 8);
  EXPECT_FALSE(read.model.has_value());
  EXPECT_EQ(read.tokenizer, "");
  EXPECT_EQ(read.files.size(), 3u);
}

TEST(Manifest, RejectsUnknownModel) {
  const auto refused = [](const std::string& from, const std::string& to) -> std::string {
    std::string text = write_manifest(kManifest);
    const std::size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    const std::size_t field = text.find(",\n  \"manifest_checksum\"");
    text = text.substr(0, field) + "\n}";
    const std::uint64_t sum = checksum(std::as_bytes(std::span(text)));
    text.insert(text.size() - 2, ",\n  \"manifest_checksum\": \"" + checksum_text(sum) + "\"");
    try {
      parse_manifest(text + "\n", "m");
    } catch (const UserError& error) {
      return error.text().what;
    }
    return "nothing refused";
  };
  EXPECT_EQ(refused("\"version\": 1", "\"version\": 1"), "nothing refused");
  EXPECT_EQ(refused("\"version\": 1", "\"version\": 2"), "model.version cannot be used");
  EXPECT_EQ(refused("\"layers\": 3", "\"depth\": 3"), "model.layers cannot be used");
  EXPECT_EQ(refused("\"layers\": 3", "\"layers\": 3, \"x\": 3"), "model.x cannot be used");
  EXPECT_EQ(refused("\"layers\": 3", "\"layers\": 1e300"), "model.layers cannot be used");
  EXPECT_EQ(refused("\"width\": 48", "\"width\": 9223372036854775807"),
            "model.width cannot be used");
  EXPECT_EQ(refused("\"gpt\"", "\"rnn\""), "model.kind cannot be used");
  EXPECT_EQ(refused("\"layers\": 3", "\"layers\": 3, \"attention\": 4"),
            "model.attention cannot be used");
  EXPECT_NE(refused("\"layers\": 3", "\"layers\": 3, \"attention\": \"{pattern: band}\""),
            "nothing refused");
  EXPECT_NE(
      refused("\"layers\": 3", "\"layers\": 3, \"attention\": \"{pattern: fixed, window: 5}\""),
      "nothing refused");
  EXPECT_NE(refused("\"layers\": 3", "\"layers\": 3, \"attention\": \"{pattern: [\""),
            "nothing refused");
}

TEST(Manifest, RejectsOtherFormats) {
  for (const char* version : {"1", "3"}) {
    std::string text = write_manifest(kManifest);
    const std::size_t place = text.find("\"format_version\": 2");
    ASSERT_NE(place, std::string::npos);
    text.replace(place, 19, std::string("\"format_version\": ") + version);
    try {
      parse_manifest(text, "m");
      FAIL() << "read format " << version;
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().what, "the checkpoint has another format version");
      EXPECT_EQ(error.text().got, version);
    }
  }
}

TEST(Manifest, RejectsFileWithTooFewChecksums) {
  Manifest manifest = kManifest;
  manifest.files[0].digest.checksums.pop_back();
  EXPECT_THROW(parse_manifest(write_manifest(manifest), "m"), UserError);
}

TEST(Manifest, RejectsMalformedJson) {
  for (const char* text : {"", "{", "[]", "{}", R"({"format_version": "one"})"}) {
    EXPECT_THROW(parse_manifest(text, "m"), UserError) << text;
  }
}

}  // namespace
}  // namespace strata
