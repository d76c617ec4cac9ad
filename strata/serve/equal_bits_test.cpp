// Compares the logits of decoding with those of whole samples, bit by bit, for every position:
// alone, in batches, in chunks, again after other texts took the pages, with pages of another text.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>

#include "strata/comm/ranks.h"
#include "strata/comm/tensor_group.h"
#include "strata/models/model.h"
#include "strata/serve/bit_check.h"
#include "strata/serve/decoder.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr std::int64_t kVocabulary = 300, kPage = 24, kPages = 120, kTexts = 3;
constexpr std::int64_t kCommon = 2 * kPage;  // tokens with which texts 0 and 1 begin

struct Shape {
  const char* name;
  DecoderOptions options;
};

// Two with attention patterns. Contexts of the others: a block of keys and a part of one, a block
// whose sums have two pieces, a short one with heads that the kernel for few queries does not take.
std::vector<Shape> shapes() {
  const DecoderOptions llama{.kind = DecoderKind::kLlama,
                             .layers = 2,
                             .width = 96,
                             .heads = 6,
                             .vocab = kVocabulary,
                             .context = 600,
                             .kv_heads = 2,
                             .head_width = 24,
                             .mlp_width = 112};
  DecoderOptions qwen = llama;
  qwen.heads = 8;
  qwen.kv_heads = 4;
  qwen.width = 64;
  qwen.head_width = 8;
  qwen.context = 100;
  qwen.qk_norm = true;
  DecoderOptions mistral = llama;
  mistral.context = 200;
  mistral.attention = {.kind = PatternKind::kSliding, .window = 75, .dense_every = 2};
  DecoderOptions bigbird{
      .layers = 3, .width = 64, .heads = 4, .vocab = kVocabulary, .context = 200};
  bigbird.attention = {
      .kind = PatternKind::kBigBird, .block = 16, .window = 32, .random_blocks = 2, .forms = 4};
  return {{"Mistral", mistral},
          {"BigBird", bigbird},
          {"Gpt2", {.layers = 2, .width = 64, .heads = 4, .vocab = kVocabulary, .context = 300}},
          {"Llama", llama},
          {"Qwen", qwen}};
}

constexpr double kDeviation = 0.2;

at::Tensor weight_of(const std::string& name, const std::vector<std::int64_t>& shape) {
  return example_weight(name, shape, kDeviation);
}

using Tokens = std::vector<std::int64_t>;

std::vector<Tokens> texts(std::int64_t length) {
  std::vector<Tokens> all(kTexts);
  std::mt19937 random(7);
  for (Tokens& text : all)
    for (std::int64_t i = 0; i < length; ++i)
      text.push_back(static_cast<std::int64_t>(random() % kVocabulary));
  std::copy_n(all[0].begin(), kCommon, all[1].begin());
  return all;
}

// The logits of whole samples, [T, V] for each text, on so many tensor-parallel ranks.
const std::vector<at::Tensor>& whole_samples(std::size_t shape, at::ScalarType precision,
                                             int ranks) {
  static std::map<std::tuple<std::size_t, at::ScalarType, int>, std::vector<at::Tensor>> known;
  std::vector<at::Tensor>& logits = known[{shape, precision, ranks}];
  if (!logits.empty()) return logits;
  const DecoderOptions options = shapes()[shape].options;
  const Sequential model = make_model(options, DecoderOutput::kLogits, {.ranks = ranks}, precision);
  logits.resize(kTexts);
  run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
    const TensorGroup line(group, false);
    for (std::size_t text = 0; text < kTexts; ++text) {
      const at::Tensor whole =
          whole_logits(model, ranks > 1 ? &line : nullptr, texts(options.context)[text], weight_of);
      if (group.rank() == 0) logits[text] = whole.clone();
    }
  });
  return logits;
}

// A text that joins the passes at pass `start` and runs in chunks of these tokens.
struct Sequence {
  int text = 0;
  std::vector<std::int64_t> chunks = {};
  int start = 0;
  std::int64_t position = 0;
  std::vector<std::int32_t> pages = {};
  std::size_t chunk = 0;

  std::int64_t end() const { return std::accumulate(chunks.begin(), chunks.end(), position); }
};

class EqualBits : public testing::TestWithParam<std::tuple<std::size_t, at::ScalarType, Mesh>> {
 protected:
  std::size_t shape() const { return std::get<0>(GetParam()); }
  at::ScalarType precision() const { return std::get<1>(GetParam()); }
  Mesh mesh() const { return std::get<2>(GetParam()); }
  std::int64_t context() const { return shapes()[shape()].options.context; }

  // Runs the sequences to their ends and compares all of their logits.
  void play(Decoder& decoder, std::vector<Sequence> sequences) {
    for (int pass = 0;; ++pass) {
      Pass tokens;
      std::vector<at::Tensor> expected;
      bool waiting = false;
      for (Sequence& one : sequences) {
        if (one.chunk == one.chunks.size()) continue;
        waiting = true;
        if (pass < one.start) continue;
        const std::int64_t count = one.chunks[one.chunk++], begin = one.position;
        const Tokens& text = texts_[one.text];
        const std::int64_t used = (begin + count + kPage - 1) / kPage;
        // Some need fewer logits than tokens.
        const std::int64_t logits =
            one.start % 3 == 2 ? std::min<std::int64_t>(count, pass % 2) : count;
        tokens.push_back({.tokens = {text.begin() + begin, text.begin() + begin + count},
                          .position = begin,
                          .pages = {one.pages.begin(), one.pages.begin() + used},
                          .logits = logits});
        expected.push_back(whole_[one.text].narrow(0, begin + count - logits, logits));
        one.position += count;
      }
      if (!waiting) return;
      if (tokens.empty()) continue;
      const at::Tensor logits = decoder.forward(tokens).logits;
      if (!decoder.decides()) continue;
      ASSERT_EQ(logits.size(1), kVocabulary);
      std::int64_t row = 0;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t count = tokens[i].logits;
        EXPECT_TRUE(logits.narrow(0, row, count).equal(expected[i]))
            << "pass " << pass << ", " << tokens[i].tokens.size() << " tokens from "
            << tokens[i].position;
        row += count;
      }
      ASSERT_EQ(row, logits.size(0));
    }
  }

  // Pages for each sequence, in a random order.
  std::vector<Sequence> placed(std::vector<Sequence> sequences, unsigned seed) const {
    std::vector<std::int32_t> free(kPages);
    std::iota(free.begin(), free.end(), 0);
    std::ranges::shuffle(free, std::mt19937(seed));
    for (Sequence& one : sequences)
      while (std::ssize(one.pages) * kPage < one.end()) {
        one.pages.push_back(free.back());
        free.pop_back();
      }
    return sequences;
  }

  std::vector<std::int64_t> random_chunks(std::int64_t total, std::int64_t most,
                                          unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<std::int64_t> chunks;
    while (total > 0) {
      chunks.push_back(
          std::min<std::int64_t>(total, 1 + static_cast<std::int64_t>(random() % most)));
      total -= chunks.back();
    }
    return chunks;
  }

  void with_decoder(const std::function<void(Decoder&)>& run) {
    const Sequential model = make_model(shapes()[shape()].options, DecoderOutput::kLogits,
                                        {.ranks = mesh()[Axis::kTensor]}, precision());
    run_thread_ranks({.ranks = mesh().size()}, [&](Group& group, MemoryAccount&) {
      Decoder decoder(model, mesh(), {.page_tokens = kPage, .pages = kPages}, group);
      fill_with_examples(decoder, kDeviation);
      run(decoder);
    });
  }

  const std::vector<Tokens> texts_ = texts(context());
  const std::vector<at::Tensor>& whole_ =
      whole_samples(shape(), precision(), mesh()[Axis::kTensor]);
};

// A prompt, single tokens at the beginning, at borders of pages and of blocks of keys, the rest.
TEST_P(EqualBits, HoldForATextAlone) {
  std::vector<std::int64_t> chunks = {5, 1, 1, 2, 3, 1, 9, 1, 1, 1, 1, 40, 1};
  const std::int64_t begun = std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0});
  if (context() > 512)
    chunks.insert(chunks.end(), {509 - begun, 1, 1, 1, 1, 1, 1, 20, 1, 1, 40, 1});
  const std::int64_t left =
      context() - std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0});
  chunks.insert(chunks.end(), {left - 3, 1, 1, 1});
  with_decoder([&](Decoder& decoder) { play(decoder, placed({{.chunks = chunks}}, 1)); });
}

TEST_P(EqualBits, HoldForChunksOfRandomSizes) {
  with_decoder([&](Decoder& decoder) {
    play(decoder, placed({{.text = 1, .chunks = random_chunks(context(), 70, 3)}}, 2));
  });
}

// Sixteen texts, which join at different passes: most decode one token each, some a part of a
// prompt.
TEST_P(EqualBits, HoldForABatchMixedWithChunksOfPrompts) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < 16; ++i) {
    std::vector<std::int64_t> chunks = random_chunks(20 + 4 * i, 40, i);
    chunks.insert(chunks.end(), 8, 1);
    sequences.push_back({.text = i % 3, .chunks = chunks, .start = i % 5});
  }
  with_decoder([&](Decoder& decoder) { play(decoder, placed(sequences, 3)); });
}

TEST_P(EqualBits, HoldAfterPagesAreDroppedAndRecomputed) {
  const Sequence one{.text = 2, .chunks = {30, 1, 1, 1, 7}}, other{.chunks = {64, 1}};
  with_decoder([&](Decoder& decoder) {
    play(decoder, placed({one}, 4));
    play(decoder, placed({other}, 4));  // overwrites the pages
    Sequence again = one;
    again.chunks = {1, 38, 1, 1, 1, 20};
    play(decoder, placed({again}, 4));
  });
}

// Text 1 begins like text 0 and reads its first pages: filled before, and in the same pass.
TEST_P(EqualBits, HoldForCommonPages) {
  with_decoder([&](Decoder& decoder) {
    std::vector<Sequence> both =
        placed({{.text = 0, .chunks = {kCommon + 10, 1, 1, 1, 12}},
                {.text = 1, .chunks = {9, 1, 1, 3, 1, 1}, .position = kCommon}},
               5);
    std::copy_n(both[0].pages.begin(), kCommon / kPage, both[1].pages.begin());
    for (const int start : {1, 0}) {
      both[1].start = start;
      play(decoder, both);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EqualBits,
    testing::Combine(testing::Range<std::size_t>(0, shapes().size()),
                     testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}})),
    [](const auto& info) {
      const Mesh mesh = std::get<2>(info.param);
      return std::string(shapes()[std::get<0>(info.param)].name) +
             c10::toString(std::get<1>(info.param)) + "Pp" + std::to_string(mesh[Axis::kPipeline]) +
             "Tp" + std::to_string(mesh[Axis::kTensor]);
    });

}  // namespace
}  // namespace strata
