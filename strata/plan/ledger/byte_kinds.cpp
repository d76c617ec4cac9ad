#include "strata/plan/ledger/byte_kinds.h"

#include <numeric>

#include "strata/base/enum_names.h"

namespace strata {

static_assert(kNumByteKinds == count_enumerators<ByteKind>());

const char* name_of(ByteKind kind) {
  using enum ByteKind;
  static constexpr EnumNames<ByteKind> kNames{
      {kWeights, "weights"},       {kGradients, "gradients"}, {kStates, "states"},
      {kReplicas, "replicas"},     {kSaved, "saved"},         {kValues, "values"},
      {kTransients, "transients"}, {kBuffers, "buffers"},     {kBatch, "batch"},
      {kPages, "pages"},           {kDraft, "draft"},         {kContext, "context"},
      {kWorkspaces, "workspaces"}, {kCommunicators, "NCCL"},  {kPools, "pools"},
      {kRounding, "rounding"}};
  return kNames[kind];
}

bool is_charged(ByteKind kind) {
  using enum ByteKind;
  return kind != kContext && kind != kCommunicators && kind != kPools && kind != kRounding;
}

std::int64_t ByteTable::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t ByteTable::charged() const {
  std::int64_t charged = 0;
  for (int kind = 0; kind < kNumByteKinds; ++kind)
    if (is_charged(static_cast<ByteKind>(kind))) charged += bytes[kind];
  return charged;
}

}  // namespace strata
