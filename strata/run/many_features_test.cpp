// Tests that the work of a run, including hot ids and report, is proportional to the number of
// features. Work is counted as allocations, which depend on no clock.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

#include "strata/base/scratch_folder.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

#if !defined(STRATA_SANITIZED)  // sanitizers replace operator new and check that it matches delete
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace strata {
namespace {

// Allocations of training, hot ids and report.
std::int64_t allocations_of_run(int features) {
  const ScratchFolder folder;
  std::ofstream log(folder.path("clicks.tsv"));
  std::string names = "click", categorical;
  for (int i = 0; i < features; ++i) {
    names += "\tf" + std::to_string(i);
    categorical +=
        (i > 0 ? ", " : "") + std::string("{name: f") + std::to_string(i) + ", width: 4}";
  }
  log << names << '\n';
  for (int sample = 0; sample < 32; ++sample) {
    log << sample % 2;
    for (int i = 0; i < features; ++i) log << "\tt" << (sample + i) % 12;
    log << '\n';
  }
  log.close();
  const Recipe recipe = parse_recipe(
      "model: {kind: deep_wide, top: [4]}\ndata: {label: click, validation_fraction: 0}\n"
      "train: {steps: 2, mini_batch: 16, optimizer: {kind: sgd, learning_rate: 1e-3}}\n"
      "mesh: {threads: 1}\n",
      "recipe.yaml",
      {"data.train=" + folder.path("clicks.tsv"), "data.categorical=[" + categorical + "]"});
  const ResolvedRun resolved = resolve(recipe);
  World world = join_world(resolved);
  const PlannedRun run = plan_run(resolved, /*probe=*/false);
  const std::int64_t before = allocations;
  const TrainingResult result = train(world, recipe, run, {.inspection = {.hot_ids = 5}});
  write_run_report(folder.path("report.html"), recipe, run, result, {}, {});
  EXPECT_EQ(result.inspection.tables.size(), static_cast<std::size_t>(features));
  EXPECT_EQ(result.inspection.tables.back().columns.front(), "text");
  EXPECT_EQ(result.inspection.tables.back().rows.size(), 5u);
  return allocations - before;
}

TEST(ManyFeatures, TakeProportionalWork) {
#if defined(STRATA_SANITIZED)
  GTEST_SKIP() << "allocations are not counted in a build with sanitizers";
#endif
  const auto some = static_cast<double>(allocations_of_run(100));
  const auto twice = static_cast<double>(allocations_of_run(200));
  EXPECT_LT(twice / some, 2.3) << some << " and " << twice;
}

}  // namespace
}  // namespace strata
