/// States what a service of one language model may use, and what that makes it plan.
///
/// Errors   UserError: a cache without room for a page or for `context`, a context that the model
///          or its draft model lacks, a cache on a disk that is not named.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "strata/serve/served_model.h"
#include "strata/serve/serving_plan.h"

namespace strata {

struct ServiceOptions {
  /// Of keys and values, per rank. None: 1 GiB, or half of memory.device if that is less.
  std::optional<std::int64_t> cache_bytes = {};
  /// Of keys and values that no answer needs now, per rank: in host memory, and on the disk.
  std::int64_t host_cache_bytes = 0;
  std::int64_t disk_cache_bytes = 0;
  /// Tokens of the longest sequence; 0: the model's, or what the cache has room for if that is
  /// less.
  std::int64_t context = 0;
  std::int64_t sequences = 16;     ///< running at once
  std::int64_t pass_tokens = 512;  ///< new tokens of a pass
  std::int64_t waiting = 256;      ///< requests
  std::int64_t guesses = 0;        ///< tokens guessed of each sequence per pass
  /// The model that guesses them, whole on the rank that decides; check_draft() has accepted it.
  /// Its weights stay. None: n-grams of the sequence guess.
  std::optional<ServedModel> draft = {};
  std::chrono::milliseconds longest_wait{0};  ///< as BatchLimits::longest_wait
  /// Called with a sentence about a stalled rank, and with the error of a request that the model
  /// failed; from several threads. May be null.
  std::function<void(const std::string&)> warn = {};
};

/// The network of the model that guesses, if there is one.
std::optional<Sequential> network_of_draft(const ServiceOptions& options);

/// What a service with these options plans; `model`: made for the tensor-parallel ranks of
/// `served`.
ServingRequest serving_request(const ServedModel& served, const Sequential& model,
                               const ServiceOptions& options);

}  // namespace strata
