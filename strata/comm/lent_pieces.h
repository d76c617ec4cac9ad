/// Lends a flat tensor to a rank, which reads it from front to back: whole where the rank reads it
/// in place, else in pieces, so that the next is on its way while one is used.
///
/// The reader need not know which: what arrives says how long it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "strata/comm/group.h"
#include "strata/comm/loan.h"

namespace strata {

constexpr std::int64_t kPieceElements = 1 << 18;

/// Lends what is ready, elements [0, ready), apart from [0, lent), which was already; both are
/// multiples of kPieceElements or all.
void lend_pieces(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                 std::int64_t lent, std::int64_t ready);

class LentPieces {
 public:
  LentPieces(Group& group, int peer, const MessageTag& tag, std::int64_t numel)
      : group_(&group), peer_(peer), tag_(tag), numel_(numel) {}
  explicit LentPieces(Loan whole) : numel_(whole.numel()), piece_(std::move(whole)) {}

  std::int64_t numel() const { return numel_; }

  /// The next elements, which must not cross a multiple of kPieceElements: where they are, or read
  /// to `buffer`. Valid until the next call. Waits for them.
  const void* next(std::int64_t count, at::ScalarType dtype, void* buffer);

  /// Copies all that is left.
  void read_rest(at::ScalarType dtype, void* to);

 private:
  const Loan& await(at::ScalarType dtype);  ///< the piece with the next element

  Group* group_ = nullptr;  // null: piece_ is all there is
  int peer_ = 0;
  MessageTag tag_;
  std::int64_t numel_;
  std::int64_t position_ = 0;  // of the next element
  std::int64_t piece_begin_ = 0;
  std::optional<Loan> piece_;
};

}  // namespace strata
