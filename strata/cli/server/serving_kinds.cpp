#include "strata/cli/server/serving_kinds.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/checkpoint/reader.h"
#include "strata/task/kinds/kinds.h"

namespace strata {

ServingKinds::ServingKinds(CLI::App& verb) {
  for (const MakeServingKind make : serving_kinds()) {
    Entry entry{.kind = make(), .options = {}};
    const std::vector<CLI::Option*> before = verb.get_options();
    entry.kind->add_options(verb);
    for (CLI::Option* option : verb.get_options()) {
      if (std::ranges::find(before, option) != before.end()) continue;
      option->group(entry.kind->title());
      entry.options.push_back(option);
    }
    entries_.push_back(std::move(entry));
  }
}

// The first kind of task serves another program's model, which has no recipe.
ServingKind& ServingKinds::of(const std::string& path) const {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  const std::string task = task_kind_of(checkpoint.manifest().recipe, path, {}).name;
  std::string known;
  for (const Entry& entry : entries_) {
    if (entry.kind->task() == task) return *entry.kind;
    known += (known.empty() ? "" : ", ") + entry.kind->task();
  }
  throw UserError({.operation = "cli.serve",
                   .where = path,
                   .what = "checkpoints of task " + quote(task) + " are not served",
                   .expected = "task " + known,
                   .got = "task " + task,
                   .fix = "name a checkpoint of such a task"});
}

void ServingKinds::refuse_other_options(const ServingKind& kind) const {
  for (const Entry& entry : entries_) {
    if (entry.kind.get() == &kind) continue;
    for (const CLI::Option* option : entry.options)
      if (option->count() > 0)
        throw UserError({.operation = "cli.serve",
                         .where = option->get_name(),
                         .what = "the option belongs to task " + quote(entry.kind->task()),
                         .expected = "options of task " + quote(kind.task()),
                         .got = option->get_name(),
                         .fix = "leave it out; strata serve --help lists the options"});
  }
}

}  // namespace strata
