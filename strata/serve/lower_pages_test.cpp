#include "strata/serve/lower_pages.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/disk/disk_forms_test.h"

namespace strata {
namespace {

// Of three layers; one keeps other types and shapes.
std::vector<at::Tensor> tensors_of(std::int64_t pages) {
  return {at::zeros({pages, 2, 3, 5}, at::kFloat), at::zeros({pages, 6}, at::kBFloat16),
          at::zeros({pages, 1, 2, 4}, at::kFloat)};
}

class LowerPagesTest : public testing::Test {
 protected:
  DiskScratch scratch_;
};

// Moves pages at random between all tiers; a page on the device always has the numbers that were
// written to it.
TEST_F(LowerPagesTest, KeepsTheBitsOfEveryPage) {
  for (const auto& [host, disk] : {std::pair{4, 5}, std::pair{6, 0}, std::pair{0, 6}}) {
    const PageRoom room{.page_tokens = 3, .pages = 3, .host_pages = host, .disk_pages = disk};
    const std::vector<at::Tensor> tensors = tensors_of(room.pages);
    MemoryAccount account("host");
    LowerPages lower(room, tensors, Device{},
                     {.host = &account, .folder = scratch_.path("pages" + std::to_string(host))});
    std::int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors)
      bytes += static_cast<std::int64_t>(tensor.nbytes()) / room.pages;
    EXPECT_EQ(account.current_bytes(), host_bytes_of_pages(room, bytes));
    const std::int64_t all = room.pages + host + disk;
    std::vector<std::optional<std::vector<at::Tensor>>> contents(static_cast<std::size_t>(all));
    std::mt19937 random(3);
    const auto tier = [&](std::int64_t page) {
      return page < room.pages ? 0 : page < room.pages + host ? 1 : 2;
    };
    int moves = 0;
    std::int64_t full = 0;  // pages
    for (int step = 0; step < 4000; ++step) {
      const auto from = static_cast<std::int64_t>(random() % all);
      const auto to = static_cast<std::int64_t>(random() % all);
      if (from < room.pages && !contents[from] && full + 2 < all) {
        ++full;
        contents[from].emplace();
        for (const at::Tensor& tensor : tensors) {
          tensor[from].copy_(at::randint(-99, 99, tensor[from].sizes()));
          contents[from]->push_back(tensor[from].clone());
        }
      }
      // Pages go down one or two tiers, and from any of them back to the device.
      const bool down = tier(to) > tier(from), back = tier(from) > 0 && tier(to) == 0;
      if (!contents[from] || contents[to] || (!down && !back)) continue;
      lower.move({static_cast<std::int32_t>(from), static_cast<std::int32_t>(to)});
      contents[to] = std::exchange(contents[from], std::nullopt);
      ++moves;
      if (!back) continue;
      for (std::size_t i = 0; i < tensors.size(); ++i)
        ASSERT_TRUE(at::equal(tensors[i][to], contents[to]->at(i))) << i;
    }
    EXPECT_GT(moves, 150);
  }
}

TEST_F(LowerPagesTest, RefusesPagesThatDoNotExist) {
  const PageRoom room{.page_tokens = 3, .pages = 2, .host_pages = 1, .disk_pages = 1};
  LowerPages lower(room, tensors_of(2), Device{}, {.folder = scratch_.path("pages")});
  for (const PageMove& move : PageMoves{{0, 4}, {4, 0}, {-1, 2}, {0, -1}, {0, 1}, {3, 2}})
    EXPECT_THROW(lower.move(move), InternalError) << move.from << " to " << move.to;
  EXPECT_THROW(LowerPages(room, tensors_of(2), Device{}, {}), InternalError);  // no folder
}

TEST_F(LowerPagesTest, IsChargedWithinABudget) {
  const PageRoom room{.page_tokens = 3, .pages = 2, .host_pages = 3};
  MemoryAccount account("host memory of rank 0", 2 * 4096, "memory.host");
  EXPECT_THROW(LowerPages(room, tensors_of(2), Device{}, {.host = &account}), SystemError);
  EXPECT_EQ(account.current_bytes(), 0);
}

}  // namespace
}  // namespace strata
