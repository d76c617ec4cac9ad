#include "strata/train/saving_agreement.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  ErrorText text;
};

std::optional<Failure> failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return Failure{error.kind(), error.text()};
  } catch (const std::exception& error) {  // others (a cancelled wait) go on
    return Failure{ErrorKind::kInternal,
                   {.operation = "train.save_checkpoint",
                    .what = "an unexpected exception",
                    .got = error.what()}};
  }
  return std::nullopt;
}

at::Tensor to_message(const Failure& failure) {
  const ErrorText& text = failure.text;
  const std::string bytes = ordered_json{static_cast<int>(failure.kind),
                                         text.operation,
                                         text.where,
                                         text.what,
                                         text.expected,
                                         text.got,
                                         text.fix}
                                .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  at::Tensor message = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(message.mutable_data_ptr(), bytes.data(), bytes.size());
  return message;
}

Failure from_message(const at::Tensor& message) {
  const char* bytes = static_cast<const char*>(message.const_data_ptr());
  const ordered_json fields = ordered_json::parse(bytes, bytes + message.numel());
  return {static_cast<ErrorKind>(fields.at(0).get<int>()),
          {fields.at(1), fields.at(2), fields.at(3), fields.at(4), fields.at(5), fields.at(6)}};
}

[[noreturn]] void raise(Failure failure) {
  if (failure.kind == ErrorKind::kUser) throw UserError(std::move(failure.text));
  if (failure.kind == ErrorKind::kSystem) throw SystemError(std::move(failure.text));
  throw InternalError(std::move(failure.text));
}

}  // namespace

void attempt(Group& group, const std::function<void()>& action) {
  std::optional<Failure> failure = failure_of(action);
  std::vector<double> failed(static_cast<std::size_t>(group.size()), 0.0);
  failed[static_cast<std::size_t>(group.rank())] = failure ? 1 : 0;
  group.all_reduce(failed);
  const auto first = std::find(failed.begin(), failed.end(), 1.0);
  if (first == failed.end()) return;
  const int speaker = static_cast<int>(first - failed.begin());
  const MessageTag tag = group.next_collective();
  if (group.rank() != speaker) raise(from_message(group.import_buffer(speaker, tag)));
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != speaker) group.export_buffer(peer, tag, to_message(*failure));
  raise(std::move(*failure));
}

}  // namespace strata
