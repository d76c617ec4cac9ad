/// Chooses the samples of a micro-batch that a recipe leaves open (train.micro_batch: 0).
///
/// Small micro-batches keep the stages of a pipeline busy and need little memory; large ones have
/// efficient products, few launches and few messages. Powers of two up to a replica's samples, and
/// all of its samples, are planned, so that a mini-batch has at most 256 micro-batches. The fastest
/// plan that fits wins; of plans that are equally fast within 1 %, the one with the smallest
/// micro-batch, which needs the least memory.
///
/// Cost  a plan for each size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace strata {

struct MicroBatchTrial {
  std::int64_t samples = 0;
  bool fits = false;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;
  std::string reason = {};  ///< why it cannot be planned; one clause
};

struct MicroBatchChoice {
  std::vector<MicroBatchTrial> trials;  ///< ascending
  std::size_t chosen = 0;
  std::int64_t samples() const { return trials[chosen].samples; }
};

/// Ascending.
std::vector<std::int64_t> possible_micro_batches(std::int64_t replica_samples);

/// An error of `try_out` means that the size cannot be planned. If none fits: throws the first
/// error about memory, or else the first error, or a UserError.
MicroBatchChoice choose_micro_batch(
    std::int64_t replica_samples,
    const std::function<MicroBatchTrial(std::int64_t samples)>& try_out);

/// A table for the terminal.
std::string micro_batch_text(const MicroBatchChoice& choice);

}  // namespace strata
