#include "strata/train/manifest.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

const Manifest kManifest{
    .step = 400,
    .samples_seen = 12800,
    .threads_per_rank = 2,
    .strata_version = "0.1.0",
    .recipe = "model: {kind: gpt}\n",
    .files = {
        {"model.safetensors", {.bytes = kChunkBytes + 7, .checksums = {0xfedcba9876543210, 5}}}}};

TEST(Manifest, ReadsBackWhatWasWritten) {
  const Manifest read = parse_manifest(write_manifest(kManifest), "manifest.json");
  EXPECT_EQ(read.step, 400);
  EXPECT_EQ(read.samples_seen, 12800);
  EXPECT_EQ(read.threads_per_rank, 2);
  EXPECT_EQ(read.strata_version, "0.1.0");
  EXPECT_EQ(read.recipe, kManifest.recipe);
  ASSERT_EQ(read.files.size(), 1u);
  EXPECT_EQ(read.files[0].name, "model.safetensors");
  EXPECT_EQ(read.files[0].digest, kManifest.files[0].digest);
}

TEST(Manifest, KeepsRecipesThatAreNoUtf8Readable) {
  Manifest manifest = kManifest;
  manifest.recipe = "train: caf\xe9.txt";
  EXPECT_EQ(parse_manifest(write_manifest(manifest), "m").recipe, "train: caf\uFFFD.txt");
}

TEST(Manifest, RefusesEveryFlippedBitThatChangesWhatItSays) {
  const std::string text = write_manifest(kManifest);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char bit : {1, 2, 4}) {
      std::string damaged = text;
      damaged[i] ^= bit;
      try {
        const Manifest read = parse_manifest(damaged, "m");
        // Only white space between fields may change unseen.
        EXPECT_EQ(write_manifest(read), text) << i;
      } catch (const UserError& error) {
        EXPECT_EQ(error.text().where, "m");
        EXPECT_FALSE(error.text().fix.empty());
      }
    }
  }
}

TEST(Manifest, RefusesOtherFormats) {
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

TEST(Manifest, RefusesAFileWithTooFewChecksums) {
  Manifest manifest = kManifest;
  manifest.files[0].digest.checksums.pop_back();
  EXPECT_THROW(parse_manifest(write_manifest(manifest), "m"), UserError);
}

TEST(Manifest, RefusesWhatIsNoManifest) {
  for (const char* text : {"", "{", "[]", "{}", R"({"format_version": "one"})"}) {
    EXPECT_THROW(parse_manifest(text, "m"), UserError) << text;
  }
}

}  // namespace
}  // namespace strata
