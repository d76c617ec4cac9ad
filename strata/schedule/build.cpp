#include <algorithm>

#include "strata/base/errors.h"
#include "strata/schedule/order.h"

namespace strata::schedule {
namespace {

struct Kind {
  const char* name;
  Schedule (*build)(Shape);
  int (*in_flight_bound)(Shape, int rank);
};

int every_activation(Shape shape, int) { return shape.micro_batches * shape.virtual_stages; }

int warm_up_and_one(Shape shape, int rank) {
  return std::min(warm_up_1f1b(shape, rank) + 1, every_activation(shape, rank));
}

int only_the_current(Shape, int) { return 1; }

constexpr Kind kKinds[] = {{"gpipe", gpipe, every_activation},
                           {"1f1b", one_f_one_b, warm_up_and_one},
                           {"interleaved", interleaved, warm_up_and_one},
                           {"forward", forward_only, only_the_current}};

const Kind& find(const std::string& name) {
  std::string names;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "" : " | ") + std::string(kind.name);
  }
  throw UserError({.operation = "schedule.build",
                   .where = "schedule",
                   .what = "no schedule has this name",
                   .expected = names,
                   .got = "'" + name + "'",
                   .fix = "choose one of the names above"});
}

}  // namespace

Schedule build(const std::string& name, Shape shape) { return find(name).build(shape); }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

int in_flight_bound(const std::string& name, Shape shape, int rank) {
  return find(name).in_flight_bound(shape, rank);
}

}  // namespace strata::schedule
