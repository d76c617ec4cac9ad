/// Says what this processor is, and which precision its matrix products are fast in.
///
/// `strata doctor` measures and saves; plans read what was saved, so that an estimate allocates
/// nothing.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/plan/machine_profile.h"

namespace strata {

/// The properties besides the work that determine measured seconds.
struct ProcessorIdentity {
  std::string model;  ///< "Intel(R) Xeon(R) Processor"
  int cores = 1;
  std::string instruction_set;  ///< that ATen chose: "AVX512"; with oneDNN's limit if there is one
  std::string libtorch;         ///< "2.11.0"

  static ProcessorIdentity of_this_machine();
  std::string text() const;  ///< one line
};

struct PrecisionRate {
  at::ScalarType precision = at::kFloat;
  double flops_per_second_one_thread = 0;
  double flops_per_second = 0;  ///< all cores
};

/// Rates of fp32, bf16 and fp16.
using PrecisionRates = std::vector<PrecisionRate>;

std::string precision_name(at::ScalarType precision);  ///< "fp32", "bf16", "fp16"

/// Measures square products with one thread and with `cores`; leaves the number of threads as it
/// was. Cost: a second or two.
PrecisionRates measure_precision_rates(int cores);

at::ScalarType fastest_precision(const PrecisionRates& rates);

/// "bf16: 2.4 times the products of fp32" or the like.
std::string fastest_text(const PrecisionRates& rates);

/// Why training in `precision` is slow here, with what to do; empty if it is not.
std::string slow_precision_text(at::ScalarType precision, const PrecisionRates& rates);

/// Next to the probe's cache; empty if there is no folder for it.
std::string default_rates_file();

/// Replaces the rates of this processor, instruction set and libtorch; others stay in the file.
void save_rates(const std::string& file, const ProcessorIdentity& identity,
                const PrecisionRates& rates);
std::optional<PrecisionRates> load_rates(const std::string& file,
                                         const ProcessorIdentity& identity);

/// Saves all other measurements next to the rates. A value of 0 keeps the earlier measurement.
void save_profile(const std::string& file, const ProcessorIdentity& identity,
                  const MachineProfile& machine);

/// What was saved, for ranks that compute on such a device: a processor's rates are those above,
/// and device, link and peers of a GPU count for ranks on GPUs alone. Nothing known where there is
/// none.
MachineProfile load_profile(const std::string& file, const ProcessorIdentity& identity,
                            MachineKind device = MachineKind::kCpu);

}  // namespace strata
