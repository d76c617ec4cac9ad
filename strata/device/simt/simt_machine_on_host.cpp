#include <cstdlib>
#include <cstring>

#include "strata/device/simt/simt.h"
#include "strata/device/simt/simt_machine.h"

namespace strata::simt {

bool has_machine() { return true; }
bool on_gpu() { return false; }

void* allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
void release(void* memory) { std::free(memory); }
// Arrays without elements have no address.
void to_machine(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void from_machine(void* to, const void* from, std::size_t bytes) { to_machine(to, from, bytes); }

void in_every_order(const std::function<void()>& body) {
  for (const HostOrder order : {HostOrder::kAscending, HostOrder::kDescending}) {
    host_order = order;
    body();
  }
  host_order = HostOrder::kAscending;
}

}  // namespace strata::simt
