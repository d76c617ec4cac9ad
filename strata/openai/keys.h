/// Reads a file of keys, finds the key of a request, and holds each key to its limits.
///
///     keys:
///       - {name: alice, key: sk-..., requests_per_minute: 60, tokens_per_minute: 100000}
///       - {name: batch, key: sk-..., concurrency: 4, models: [small]}
///
/// The file is YAML or JSON. A limit of 0 is no limit; a key without `models` may use all. A
/// budget of a minute refills continuously. A request reserves the tokens of its prompts and
/// max_tokens of each choice; when it ends, those that it did not use are returned.
///
/// Threads  any.
/// Errors   UserError: the file, with line and column. ApiError: 401, 403, 429.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/transport/secret.h"

namespace strata {

class OptionSet;

struct KeyOptions {
  std::string name;  ///< whose key it is, for messages
  std::string key;   ///< what clients send
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;
  std::int64_t concurrency = 0;  ///< requests at once
  std::vector<std::string> models = {};
};
void describe(OptionSet& set, const std::string& prefix, KeyOptions& key);

/// A number of units that refills to `limit` within a minute.
class MinuteBudget {
 public:
  using Clock = std::chrono::steady_clock;
  explicit MinuteBudget(std::int64_t limit) : limit_(limit), left_(static_cast<double>(limit)) {}

  /// Takes `units`; one request may take more than the limit if the budget is full. Else returns
  /// when it may succeed, and takes nothing.
  std::chrono::milliseconds take(double units, Clock::time_point now);
  void give_back(double units);
  std::int64_t limit() const { return limit_; }
  std::int64_t left() const;

 private:
  std::int64_t limit_;
  double left_;
  Clock::time_point last_ = {};
};

class ApiKey;

/// One request of a key: it counts until settle(), or until this object ends, which returns all
/// that was reserved.
class KeyUse {
 public:
  KeyUse(std::shared_ptr<ApiKey> key, std::int64_t tokens)
      : key_(std::move(key)), tokens_(tokens) {}
  ~KeyUse();
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;
  void settle(std::int64_t used_tokens);  ///< returns what was reserved and not used

 private:
  std::shared_ptr<ApiKey> key_;
  std::int64_t tokens_;
};

class ApiKey : public std::enable_shared_from_this<ApiKey> {
 public:
  using Clock = MinuteBudget::Clock;
  /// `number`: different for each key of a server; not 0.
  ApiKey(KeyOptions options, std::uint64_t number);

  const KeyOptions& options() const { return options_; }
  std::uint64_t number() const { return number_; }
  bool may_use(const std::string& model) const;

  /// Throws ApiError 429 with the time after which the request may succeed.
  std::shared_ptr<KeyUse> use(std::int64_t tokens, Clock::time_point now = Clock::now());

  /// x-ratelimit-limit-requests and so on, for the limits that the key has.
  std::vector<std::pair<std::string, std::string>> headers() const;

 private:
  friend class KeyUse;
  void end_use(std::int64_t returned_tokens);

  const KeyOptions options_;
  const std::uint64_t number_;
  mutable std::mutex mutex_;
  MinuteBudget requests_, tokens_;
  std::int64_t running_ = 0;
};

class Keys {
 public:
  explicit Keys(std::vector<KeyOptions> keys);
  static Keys read(const std::string& path);

  /// The key of "Bearer KEY". Compares every key in constant time. ApiError 401: none.
  std::shared_ptr<ApiKey> find(std::string_view authorization) const;

 private:
  std::string salt_;
  std::vector<std::pair<Digest, std::shared_ptr<ApiKey>>> keys_;  // by keyed_hash(salt_, key)
};

}  // namespace strata
