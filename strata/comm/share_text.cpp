#include "strata/comm/share_text.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace strata {

std::string share_text(Group& group, const std::string& text) {
  const MessageTag tag = group.next_collective();
  if (group.rank() > 0) {
    const at::Tensor bytes = group.receive(0, tag);
    const char* const data = static_cast<const char*>(bytes.const_data_ptr());
    return {data, data + bytes.numel()};
  }
  const at::Tensor bytes =
      at::empty({static_cast<std::int64_t>(text.size())}, host_options(at::kByte));
  std::ranges::copy(text, static_cast<char*>(bytes.mutable_data_ptr()));
  for (int peer = 1; peer < group.size(); ++peer) group.send(peer, tag, bytes);
  return text;
}

}  // namespace strata
