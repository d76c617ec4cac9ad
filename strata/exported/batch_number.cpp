#include "strata/exported/batch_number.h"

#include <charconv>
#include <string_view>
#include <vector>

namespace strata {
namespace {

constexpr std::int64_t kMostNumber = std::int64_t{1} << 40;
constexpr int kMostDepth = 16;

class NumberReader {
 public:
  NumberReader(std::string_view text, std::string& symbol) : text_(text), symbol_(symbol) {}

  std::optional<BatchNumber> read() {
    const std::optional<BatchNumber> number = expression(0);
    return number && text_.empty() ? number : std::nullopt;
  }

 private:
  bool accept(std::string_view token) {
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  std::optional<BatchNumber> expression(int depth) {
    if (depth > kMostDepth) return std::nullopt;
    if (accept("Symbol('")) return symbol();
    if (accept("Integer(")) return integer();
    if (accept("Mul("))
      return fold(depth, [](BatchNumber a, BatchNumber b) { return times(a, b); });
    if (accept("Add(")) return fold(depth, [](BatchNumber a, BatchNumber b) { return plus(a, b); });
    return std::nullopt;
  }

  std::optional<BatchNumber> symbol() {
    const std::size_t end = text_.find('\'');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string name(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    const std::size_t close = text_.find(')');
    if (close == std::string_view::npos) return std::nullopt;
    text_.remove_prefix(close + 1);
    if (symbol_.empty()) symbol_ = name;
    if (name != symbol_) return std::nullopt;
    return BatchNumber{.per_sample = 1};
  }

  std::optional<BatchNumber> integer() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || std::abs(value) > kMostNumber) return std::nullopt;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    if (!accept(")")) return std::nullopt;
    return BatchNumber{.constant = value};
  }

  template <typename Combine>
  std::optional<BatchNumber> fold(int depth, Combine combine) {
    std::optional<BatchNumber> all = expression(depth + 1);
    while (all && accept(", ")) {
      const std::optional<BatchNumber> next = expression(depth + 1);
      if (!next) return std::nullopt;
      all = combine(*all, *next);
    }
    return all && accept(")") ? all : std::nullopt;
  }

  static std::optional<BatchNumber> bounded(BatchNumber number) {
    const bool small =
        std::abs(number.per_sample) <= kMostNumber && std::abs(number.constant) <= kMostNumber;
    return small ? std::optional(number) : std::nullopt;
  }
  static std::optional<BatchNumber> plus(BatchNumber a, BatchNumber b) {
    return bounded({a.per_sample + b.per_sample, a.constant + b.constant});
  }
  static std::optional<BatchNumber> times(BatchNumber a, BatchNumber b) {
    if (a.per_sample != 0 && b.per_sample != 0) return std::nullopt;
    constexpr std::int64_t kMostFactor = std::int64_t{1} << 31;
    for (const std::int64_t factor : {a.per_sample, a.constant, b.per_sample, b.constant})
      if (std::abs(factor) > kMostFactor) return std::nullopt;
    return bounded(
        {a.per_sample * b.constant + a.constant * b.per_sample, a.constant * b.constant});
  }

  std::string_view text_;
  std::string& symbol_;
};

}  // namespace

std::optional<BatchNumber> read_batch_number(const std::string& text, std::string& symbol) {
  return NumberReader(text, symbol).read();
}

}  // namespace strata
