/// Writes logs for tests and catches their errors.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/tabular/options.h"
#include "strata/tabular/sample_file.h"

namespace strata {

class LogTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream file(folder_.path(name), std::ios::binary);
    file << text;
    return folder_.path(name);
  }

  static ErrorText refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.text();
    }
    ADD_FAILURE() << "no UserError";
    return {};
  }

  static std::vector<std::string> fields_of(const SampleFile& file, std::int64_t sample) {
    SampleText text;
    file.read(sample, text);
    return {text.fields.begin(), text.fields.end()};
  }

  using Fields = std::vector<std::string>;
  ScratchFolder folder_;
};

}  // namespace strata
