// sparse_attention HEADS WIDTH THREADS: times attention of one sample on the host. Reads requests,
// a line each: CONTESTANT TOKENS SECONDS PATTERN, and answers each with a line of JSON.
//
//     sparse-forward, sparse-step     with the pattern; a step is forward and backward
//     flash-forward, flash-step       dense, by ATen's fused kernel
//     scores-forward, scores-step     dense, by its formula: the scores of all pairs exist at once
//     blocks                          no attention: the pattern's blocks of keys, densities
//
// An answer has the seconds of every repetition within SECONDS, at least one after one that is not
// counted, and the most bytes that tensors of a repetition took, operands included.
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "strata/device/account.h"
#include "strata/device/thread_pool.h"
#include "strata/models/attention_options.h"
#include "strata/nn/ops/heads.h"
#include "strata/nn/primitives/primitives.h"

namespace {

using namespace strata;

struct Sizes {
  std::int64_t heads, width;
};

// Operands as a layer has them: packed projections, and the gradient at the output.
struct Operands {
  Operands(const Sizes& sizes, std::int64_t tokens)
      : packed(at::randn({1, tokens, 3 * sizes.heads * sizes.width})),
        dy(at::randn({1, tokens, sizes.heads * sizes.width})),
        heads(split_heads(packed, {.width = sizes.width, .key_heads = sizes.heads})) {}
  at::Tensor packed, dy;
  Heads heads;
};

void run_primitives(const Operands& x, const Sizes& sizes, const AttentionPattern* pattern,
                    bool step) {
  const auto& [q, k, v] = x.heads;
  const AttentionPrimitives& attention = primitives(q).attention;
  const Attended made =
      pattern ? attention.attend_sparse(q, k, v, {*pattern}) : attention.attend(q, k, v);
  if (!step) return;
  const at::Tensor gradients = at::empty_like(x.packed);
  const Heads d = split_heads(gradients, {.width = sizes.width, .key_heads = sizes.heads});
  if (pattern)
    attention.attend_sparse_gradient(q, k, v, made, x.dy, d.q, d.k, d.v, {*pattern});
  else
    attention.attend_gradient(q, k, v, made, x.dy, d.q, d.k, d.v);
}

void run_scores(const Operands& x, bool step) {
  const auto heads = [&](const at::Tensor& part) {
    return part.detach().transpose(1, 2).requires_grad_(step);
  };
  const at::Tensor q = heads(x.heads.q), k = heads(x.heads.k), v = heads(x.heads.v);
  const std::int64_t tokens = q.size(2);
  const at::Tensor later = at::ones({tokens, tokens}, at::kBool).triu_(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor shares = at::matmul(q, k.transpose(2, 3))
                                .mul(scale)
                                .masked_fill(later, -std::numeric_limits<float>::infinity())
                                .softmax(-1);
  const at::Tensor y = at::matmul(shares, v).transpose(1, 2).flatten(2);
  if (step) y.backward(x.dy);
}

nlohmann::json blocks_of(const AttentionPattern& pattern, std::int64_t tokens) {
  nlohmann::json forms = nlohmann::json::array();
  for (std::int64_t form = 0; form < pattern.forms; ++form) {
    nlohmann::json lists = nlohmann::json::array();
    for (std::int64_t block = 0; block * pattern.block < tokens; ++block) {
      std::vector<std::int32_t> keys;
      pattern.key_blocks(form, block, keys);
      lists.push_back(keys);
    }
    forms.push_back(lists);
  }
  return {{"blocks", forms},
          {"block", pattern.block},
          {"window", pattern.exact_window()},
          {"density", pattern.density(tokens)},
          {"work_share", pattern.work(tokens).share}};
}

nlohmann::json measure(const std::string& contestant, const Sizes& sizes, std::int64_t tokens,
                       double seconds, const AttentionPattern& pattern) {
  MemoryAccount& account = immortal_account("bench");
  const AccountScope scope(account);
  const Operands x(sizes, tokens);
  const bool step = contestant.ends_with("-step");
  const auto run = [&] {
    if (contestant.starts_with("scores")) return run_scores(x, step);
    run_primitives(x, sizes, contestant.starts_with("sparse") ? &pattern : nullptr, step);
  };
  run();
  nlohmann::json times = nlohmann::json::array();
  for (double total = 0; total < seconds || times.empty();) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const double taken =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    total += taken;
    times.push_back(taken);
  }
  return {{"seconds", times}, {"peak_bytes", account.peak_bytes()}};
}

}  // namespace

int main(int, char** arguments) {
  install_accounting_allocator();
  const Sizes sizes{std::stoll(arguments[1]), std::stoll(arguments[2])};
  const int threads = std::stoi(arguments[3]);
  at::set_num_threads(threads);
  ThreadPool pool(threads);
  const ThreadPoolScope scope(pool, ThreadPoolScope::AtenThreads::kKeep);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string contestant, text;
    std::int64_t tokens = 0;
    double seconds = 0;
    words >> contestant >> tokens >> seconds >> std::ws;
    std::getline(words, text);
    const AttentionPattern pattern = read_pattern(text, "request");
    const nlohmann::json answer = contestant == "blocks"
                                      ? blocks_of(pattern, tokens)
                                      : measure(contestant, sizes, tokens, seconds, pattern);
    std::cout << answer.dump() << std::endl;
  }
}
