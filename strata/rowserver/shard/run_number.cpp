#include "strata/rowserver/shard/run_number.h"

#include <random>
#include <string>

#include "strata/base/errors.h"

namespace strata {

std::uint64_t next_run_number(std::uint64_t newest, RunName name) {
  const std::uint64_t count = (newest >> 32) + 1;
  if (count >> 32 != 0)
    throw UserError({.operation = "embed.run",
                     .what = "the folder's number of the last run leaves no next one",
                     .expected = "a number below " + std::to_string(~std::uint64_t{0} << 32),
                     .got = std::to_string(newest),
                     .fix = "start the server in an empty folder with --from this one"});
  return count << 32 | name;
}

RunName draw_run_name() {
  std::random_device device;
  for (;;)
    if (const RunName name = device()) return name;
}

}  // namespace strata
