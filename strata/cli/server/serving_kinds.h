/// Finds the kind of task that serves a checkpoint, and adds the options of all kinds.
///
/// Errors  UserError: no checkpoint; one of a task that this program was built without or does not
///         serve; options of another kind.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "strata/cli/server/serving_kind.h"
#include "strata/cli/server/serving_kind_makers.h"

namespace strata {

class ServingKinds {
 public:
  /// Adds the options of every kind under a heading.
  explicit ServingKinds(CLI::App& verb);

  /// The kind that serves the checkpoint at `path`.
  ServingKind& of(const std::string& path) const;

  /// Refuses options of other kinds, which would have no effect.
  void refuse_other_options(const ServingKind& kind) const;

 private:
  struct Entry {
    std::unique_ptr<ServingKind> kind;
    std::vector<const CLI::Option*> options;
  };
  std::vector<Entry> entries_;
};

}  // namespace strata
