/// Identifies this processor, and measures in which precision its matrix products are fast.
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

/// The properties that, in addition to the work, determine measured seconds.
struct ProcessorIdentity {
  std::string model;  ///< "Intel(R) Xeon(R) Processor"
  int cores = 1;
  std::string instruction_set;  ///< chosen by ATen: "AVX512"; with oneDNN's limit, if there is one
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

/// Measures square products with one thread and with `cores`, in a second or two; leaves the number
/// of threads unchanged.
PrecisionRates measure_precision_rates(int cores);

at::ScalarType fastest_precision(const PrecisionRates& rates);

/// A sentence such as "bf16: 2.4 times the products of fp32".
std::string fastest_text(const PrecisionRates& rates);

/// Why training in `precision` is slow here, with a remedy; empty if it is not.
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

/// The saved profile for ranks that compute on such a device: a processor has the rates above;
/// device, link and peers of a GPU apply only to ranks on GPUs. All unknown if nothing was saved.
MachineProfile load_profile(const std::string& file, const ProcessorIdentity& identity,
                            MachineKind device = MachineKind::kCpu);

}  // namespace strata
