#include "strata/comm/lent_pieces.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

MessageTag tag_of_piece(MessageTag tag, std::int64_t begin) {
  tag.micro_batch = static_cast<std::int32_t>(begin / kPieceElements);
  return tag;
}

}  // namespace

void lend_pieces(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                 std::int64_t lent, std::int64_t ready) {
  if (group.reads_in_place(peer)) {
    if (lent < ready && ready == flat.numel()) group.lend(peer, tag_of_piece(tag, 0), flat);
    return;
  }
  for (std::int64_t begin = lent; begin < ready; begin += kPieceElements)
    group.lend(peer, tag_of_piece(tag, begin),
               flat.narrow(0, begin, std::min(kPieceElements, ready - begin)));
}

const Loan& LentPieces::await(at::ScalarType dtype) {
  if (!piece_ || position_ == piece_begin_ + piece_->numel()) {
    piece_.reset();  // returned before the wait
    piece_begin_ = position_;
    piece_ = group_->borrow(peer_, tag_of_piece(tag_, position_));
    STRATA_CHECK(piece_->numel() > 0, "comm.pieces");
  }
  STRATA_CHECK(piece_->dtype() == dtype, "comm.pieces");
  return *piece_;
}

const void* LentPieces::next(std::int64_t count, at::ScalarType dtype, void* buffer) {
  const Loan& piece = await(dtype);
  const std::int64_t first = position_ - piece_begin_;
  STRATA_CHECK(first + count <= piece.numel(), "comm.pieces");
  position_ += count;
  if (const void* data = piece.data())
    return static_cast<const char*>(data) +
           static_cast<std::size_t>(first) * c10::elementSize(dtype);
  piece.read(first, count, buffer);
  return buffer;
}

void LentPieces::read_rest(at::ScalarType dtype, void* to) {
  auto* at = static_cast<char*>(to);
  while (position_ < numel_) {
    const Loan& piece = await(dtype);
    const std::int64_t first = position_ - piece_begin_, count = piece.numel() - first;
    piece.read(first, count, at);
    position_ += count;
    at += static_cast<std::size_t>(count) * c10::elementSize(dtype);
  }
}

}  // namespace strata
