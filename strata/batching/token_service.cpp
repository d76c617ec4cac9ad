#include "strata/batching/token_service.h"

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(FinishReason reason) {
  using enum FinishReason;
  static constexpr EnumNames<FinishReason> kNames{
      {kStop, "stop"}, {kLength, "length"}, {kCancelled, "cancelled"}, {kFailed, "error"}};
  return kNames[reason];
}

}  // namespace strata
