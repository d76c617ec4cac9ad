#include "strata/base/errors.h"
#include "strata/tabular/sample_file.h"
#include "strata/tabular/text_file.h"

namespace strata {

std::shared_ptr<const SampleFile> open_samples(const std::string& path,
                                               const TabularOptions& options) {
  return open_text_samples(path, format_of(path, options.format), options);
}

}  // namespace strata
