#include "strata/train/step_events.h"

#include <ATen/ops/empty.h>

#include <optional>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/schedule/action.h"

namespace strata {
namespace {

constexpr int kNumbers = 6;

int op_of(const char* kind) {
  if (const std::optional<Op> op = op_named(kind)) return static_cast<int>(*op);
  throw InternalError(
      {.operation = "train.encode_events", .what = "an event that is no action", .got = kind});
}

}  // namespace

at::Tensor encode_events(const std::vector<TraceEvent>& events) {
  at::Tensor encoded =
      at::empty({static_cast<std::int64_t>(events.size()), kNumbers}, host_options(at::kDouble));
  double* to = encoded.data_ptr<double>();
  for (const TraceEvent& event : events) {
    for (const double number :
         {static_cast<double>(op_of(event.kind)), static_cast<double>(event.stage),
          static_cast<double>(event.micro_batch), static_cast<double>(event.first_layer),
          event.begin_seconds, event.end_seconds})
      *to++ = number;
  }
  return encoded;
}

std::vector<TraceEvent> decode_events(const at::Tensor& encoded) {
  std::vector<TraceEvent> events(encoded.size(0));
  const double* from = encoded.const_data_ptr<double>();
  for (TraceEvent& event : events) {
    event = {kind_of(static_cast<Op>(static_cast<int>(from[0]))),
             static_cast<int>(from[1]),
             static_cast<int>(from[2]),
             static_cast<int>(from[3]),
             from[4],
             from[5]};
    from += kNumbers;
  }
  return events;
}

}  // namespace strata
