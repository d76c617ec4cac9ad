// Reads only cpuid: with a measured rate, bits would depend on the moment. Instructions count only
// if the system saves their registers (XCR0).
#include "strata/device/fast_products.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdint>
#include <cstring>

namespace strata {
namespace {

struct Instructions {
  bool bf16 = false;
  bool fp16 = false;
  bool others_avx512 = false;  // AVX-512 of a vendor other than Intel
};

#if defined(__x86_64__)
bool has_bit(std::uint32_t word, int bit) { return (word >> bit & 1) != 0; }

// Whether the operating system saves the registers: bits of XCR0.
bool keeps_state(std::uint32_t mask) {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has_bit(ecx, 27)) return false;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

Instructions find_instructions() {
  constexpr std::uint32_t kAvx512State = 0xe6, kTileState = 0x60000;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0, vendor[3] = {};
  __get_cpuid(0, &eax, &vendor[0], &vendor[2], &vendor[1]);
  const auto made_by = [&](const char* name) {
    return std::memcmp(vendor, name, sizeof(vendor)) == 0;
  };
  const bool amd = made_by("AuthenticAMD");
  Instructions found;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;
  const bool avx512 = has_bit(ebx, 16) && has_bit(ebx, 17) && has_bit(ebx, 30) && has_bit(ebx, 31);
  found.others_avx512 = avx512 && !made_by("GenuineIntel") && keeps_state(kAvx512State);
  const bool tiles = has_bit(edx, 22) && keeps_state(kTileState);
  const std::uint32_t leaves = eax;
  if (leaves < 1 || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
    found.bf16 = tiles;
    return found;
  }
  found.bf16 = tiles || (amd && has_bit(eax, 5) && keeps_state(kAvx512State));
  found.fp16 = has_bit(eax, 21) && keeps_state(kTileState);  // AMX-FP16
  return found;
}
#else
Instructions find_instructions() { return {}; }
#endif

const Instructions& instructions() {
  static const Instructions found = find_instructions();
  return found;
}

}  // namespace

bool mkl_leaves_avx512() { return instructions().others_avx512; }

bool has_fast_products(c10::ScalarType dtype) {
  const Instructions& found = instructions();
  if (dtype == c10::ScalarType::BFloat16) return found.bf16;
  return dtype == c10::ScalarType::Half ? found.fp16 : true;
}

}  // namespace strata
