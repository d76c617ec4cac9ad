#include "strata/tabular/record_file.h"
#include "strata/tabular/sample_check.h"
#include "strata/tabular/sample_file.h"
#include "strata/tabular/synthetic.h"
#include "strata/tabular/text_file.h"

namespace strata {
namespace {

std::shared_ptr<const SampleFile> open(const std::string& path, const TabularOptions& options,
                                       SampleValues values) {
  switch (const SampleFormat format = format_of(path, options.format)) {
    case SampleFormat::kRecords:
      return open_records(path, options.memory.count);
    case SampleFormat::kSynthetic:
      return std::make_shared<const SyntheticClicks>(options.synthetic, options.label);
    default:
      return open_text_samples(path, format, options, values);
  }
}

}  // namespace

std::shared_ptr<const SampleFile> open_samples(const std::string& path,
                                               const TabularOptions& options) {
  return open(path, options, SampleValues::kUnchecked);
}

std::shared_ptr<const SampleFile> open_checked_samples(const std::string& path,
                                                       const TabularOptions& options) {
  return open(path, options, SampleValues::kChecked);
}

}  // namespace strata
