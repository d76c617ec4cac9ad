// Keys are compared by a hash, so a comparison takes the same time whatever their lengths.
#include "strata/openai/keys.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "strata/base/error_source.h"
#include "strata/base/options.h"
#include "strata/base/random_access_file.h"
#include "strata/http/routes.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

constexpr std::uint64_t kMaxKeyFileBytes = 4 << 20;
constexpr ErrorSource kKeyErrors{"openai.keys", "give every key a text of its own"};

[[noreturn]] void refuse_rate(const std::string& what, std::chrono::milliseconds after) {
  throw ApiError({.status = 429,
                  .message = "the key's limit of " + what + " is reached",
                  .type = "rate_limit_error",
                  .code = "rate_limit_exceeded",
                  .retry_after = std::max(after, std::chrono::milliseconds(1))});
}

}  // namespace

void describe(OptionSet& set, const std::string& prefix, KeyOptions& key) {
  set.add(prefix + ".name", &key.name, {.help = "whose key it is"});
  set.add(prefix + ".key", &key.key, {.help = "what clients send"});
  set.add(prefix + ".requests_per_minute", &key.requests_per_minute,
          {.help = "0: no limit", .unit = "requests", .minimum = 0});
  set.add(prefix + ".tokens_per_minute", &key.tokens_per_minute,
          {.help = "0: no limit", .unit = "tokens", .minimum = 0});
  set.add(prefix + ".concurrency", &key.concurrency,
          {.help = "requests at once; 0: no limit", .unit = "requests", .minimum = 0});
  set.add(prefix + ".models", &key.models, {.help = "models that it may use; none: all"});
}

std::chrono::milliseconds MinuteBudget::take(double units, Clock::time_point now) {
  if (limit_ == 0) return std::chrono::milliseconds(0);
  const auto limit = static_cast<double>(limit_);
  const double per_second = limit / 60;
  if (last_ != Clock::time_point{})
    left_ =
        std::min(limit, left_ + per_second * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  const double needed = std::min(units, limit);
  if (left_ + 1e-6 >= needed) {
    left_ -= units;
    return std::chrono::milliseconds(0);
  }
  const double seconds = (needed - left_) / per_second;
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000 - 1e-3)));
}

void MinuteBudget::give_back(double units) {
  left_ = std::min(static_cast<double>(limit_), left_ + units);
}

std::int64_t MinuteBudget::left() const {
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(left_));
}

KeyUse::~KeyUse() {
  if (key_ != nullptr) key_->end_use(tokens_);
}

void KeyUse::settle(std::int64_t used_tokens) {
  if (key_ != nullptr) key_->end_use(tokens_ - used_tokens);
  key_ = nullptr;
}

ApiKey::ApiKey(KeyOptions options, std::uint64_t number)
    : options_(std::move(options)),
      number_(number),
      requests_(options_.requests_per_minute),
      tokens_(options_.tokens_per_minute) {}

bool ApiKey::may_use(const std::string& model) const {
  return options_.models.empty() || std::ranges::count(options_.models, model) > 0;
}

std::shared_ptr<KeyUse> ApiKey::use(std::int64_t tokens, Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (options_.concurrency > 0 && running_ >= options_.concurrency)
    refuse_rate(std::to_string(options_.concurrency) + " requests at once",
                std::chrono::milliseconds(1000));
  if (const auto after = requests_.take(1, now); after.count() > 0)
    refuse_rate(std::to_string(options_.requests_per_minute) + " requests a minute", after);
  if (const auto after = tokens_.take(static_cast<double>(tokens), now); after.count() > 0) {
    requests_.give_back(1);
    refuse_rate(std::to_string(options_.tokens_per_minute) + " tokens a minute", after);
  }
  ++running_;
  return std::make_shared<KeyUse>(shared_from_this(), tokens);
}

void ApiKey::end_use(std::int64_t returned_tokens) {
  const std::scoped_lock lock(mutex_);
  --running_;
  tokens_.give_back(static_cast<double>(std::max<std::int64_t>(0, returned_tokens)));
}

std::vector<std::pair<std::string, std::string>> ApiKey::headers() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::pair<std::string, std::string>> headers;
  const auto add = [&](const std::string& unit, const MinuteBudget& budget) {
    if (budget.limit() == 0) return;
    headers.emplace_back("x-ratelimit-limit-" + unit, std::to_string(budget.limit()));
    headers.emplace_back("x-ratelimit-remaining-" + unit, std::to_string(budget.left()));
  };
  add("requests", requests_);
  add("tokens", tokens_);
  return headers;
}

Keys::Keys(std::vector<KeyOptions> keys) : salt_(make_secret()) {
  for (KeyOptions& key : keys) {
    const Digest digest = keyed_hash(salt_, key.key);  // before the key is moved
    keys_.emplace_back(digest, std::make_shared<ApiKey>(std::move(key), keys_.size() + 1));
  }
}

Keys Keys::read(const std::string& path) {
  std::vector<KeyOptions> keys;
  OptionSet set;
  set.add("keys", &keys, "", {.help = "who may send requests"});
  set.load_yaml(
      read_file(path, {.operation = "openai.keys", .fix = "name a file of keys"}, kMaxKeyFileBytes),
      path);
  if (keys.empty()) throw kKeyErrors.user(path, "the file has no keys", "keys: [{name, key}]", "");
  std::set<std::string> known;
  for (const KeyOptions& key : keys)
    if (key.key.empty() || !known.insert(key.key).second)
      throw kKeyErrors.user(path, "a key has no text, or the text of another one",
                            "a different text for each key", "the key of '" + key.name + "'");
  return Keys(std::move(keys));
}

std::shared_ptr<ApiKey> Keys::find(std::string_view authorization) const {
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer = authorization.size() > kBearer.size() &&
                      equal_in_any_case(authorization.substr(0, kBearer.size()), kBearer);
  const Digest sent = keyed_hash(salt_, bearer ? authorization.substr(kBearer.size()) : "");
  std::shared_ptr<ApiKey> found;
  for (const auto& [digest, key] : keys_)
    if (equal_in_constant_time(digest, sent)) found = key;
  if (found != nullptr && bearer) return found;
  throw ApiError(
      {.status = 401,
       .message = bearer ? "the key is unknown" : "send a key: Authorization: Bearer KEY",
       .type = "authentication_error",
       .code = "invalid_api_key"});
}

}  // namespace strata
